"""A private state directory and an environment without our variables."""

import os
import sys
from pathlib import Path

import pytest

# The living daemon is shared with the tests of the daemon itself.
sys.path.insert(0, str(Path(__file__).parent.parent / "daemon"))

_OURS = ("BRIDGE_", "BASCULE_", "CODEX_", "CLAUDECODE", "TMUX")


@pytest.fixture(autouse=True)
def _no_environment_of_ours(monkeypatch):
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)


@pytest.fixture
def state(tmp_path: Path) -> str:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    return str(folder)


@pytest.fixture(scope="session")
def daemon():
    """One daemon with default settings for all tests that name their agents apart."""
    from living import Living, short_dir

    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living
