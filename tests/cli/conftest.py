"""A home of its own, and `bascule setup` run in it."""

import os
from pathlib import Path

import pytest

from bascule.cli.main import main


class Machine:
    """A home of its own, and the command run in it."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys

    def setup(self, *words: str, expect: int = 0) -> str:
        code = main(["setup", *words])
        captured = self._capsys.readouterr()
        assert code == expect, captured
        return captured.out + captured.err

    def write(self, path: str, text: str) -> Path:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def read(self, path: str) -> str:
        return (self.home / path).read_bytes().decode()

    def files(self) -> dict[str, bytes]:
        """Everything there is, but what Bascule keeps for itself."""
        return {
            str(file.relative_to(self.home)): file.read_bytes() if file.is_file() else b"/"
            for file in self.home.rglob("*")
            if "state" not in file.relative_to(self.home).parts
        }


@pytest.fixture
def machine(tmp_path, monkeypatch, capsys):
    for name in list(os.environ):
        if name.startswith(("BASCULE_", "BRIDGE_", "CLAUDE", "CODEX")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BASCULE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return Machine(tmp_path, capsys)
