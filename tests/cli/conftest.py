"""A home of its own, and `bascule setup` run in it; a desktop whose `xdg-open` can be looked at."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from bascule.cli import opening
from bascule.cli.main import main
from patience import PATIENCE


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


@pytest.fixture
def screen(monkeypatch, tmp_path):
    """A desktop whose `xdg-open` writes down what it is to open."""
    opened = tmp_path / "opened"
    program = tmp_path / "xdg-open"
    program.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":7")
    started = []
    real = subprocess.Popen

    def start(*args, **more):
        started.append(real(*args, **more))
        return started[-1]

    monkeypatch.setattr(opening.subprocess, "Popen", start)
    monkeypatch.setattr(opening.sys, "platform", "linux")
    yield SimpleNamespace(opened=opened, started=started)
    for each in started:
        each.wait(PATIENCE)
