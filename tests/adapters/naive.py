"""The control: file operations that check the real path and then open by name, as many services do."""

import os


class NaiveFiles:
    """Refuses whatever leads outside, and loses the race against a name that changes after the check."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.realpath(directory)

    def _checked(self, path: str) -> str:
        whole = os.path.join(self._directory, path)
        if os.path.commonpath([self._directory, os.path.realpath(whole)]) != self._directory:
            raise PermissionError(path)
        return whole

    def read(self, path: str, max_bytes: int) -> bytes:
        with open(self._checked(path), "rb") as file:
            return file.read(max_bytes)

    def create(self, path: str, data: bytes, *, overwrite: bool) -> None:
        whole = self._checked(path)
        with open(f"{whole}.new", "wb") as file:
            file.write(data)
        os.replace(f"{whole}.new", whole)

    def replace(self, path: str, data: bytes, *, expected: bytes) -> None:
        if self.read(path, len(expected) + 1) != expected:
            raise PermissionError(path)
        self.create(path, data, overwrite=True)

    def delete(self, path: str) -> None:
        os.unlink(self._checked(path))
