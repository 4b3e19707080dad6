"""File operations by name: each resolves its path and acts on what it found, as an operation of a run does."""

from bascule.workspace.machine.files.root import WorkspaceRoot
from bascule.workspace.ports import FileFault


class ByName:
    def __init__(self, root: WorkspaceRoot) -> None:
        self._root = root

    def read(self, path, max_bytes):
        with self._root.resolve(path, follow=True) as place:
            return self._root.read(place, max_bytes)

    def create(self, path, data, *, overwrite):
        with self._root.resolve(path, follow=overwrite) as place:
            self._root.create(place, data, overwrite=overwrite)

    def replace(self, path, data, *, expected):
        with self._root.resolve(path, follow=True) as place:
            self._root.replace(place, data, expected=expected)

    def delete(self, path):
        with self._root.resolve(path, follow=False) as place:
            self._root.delete(place)

    def entries(self, path, limit):
        if path is None:
            return self._root.entries(None, limit)
        with self._root.resolve(path, follow=True) as place:
            return self._root.entries(place, limit)

    def digest(self, path, max_bytes):
        try:
            with self._root.resolve(path, follow=True) as place:
                return self._root.digest(place, max_bytes)
        except FileFault:
            return None
