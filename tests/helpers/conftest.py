"""A private state directory, a clean environment, and a way to run a command as a user would."""

import os
import sys
from pathlib import Path

import pytest

from bascule.foundation import paths

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
    # A socket's path is short; pytest's own directories are not.
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    return str(folder)


@pytest.fixture
def keep_token(state):
    """What the daemon does at registration."""

    def keep(handle: str, token: str) -> str:
        os.makedirs(paths.tokens_dir(state), mode=0o700, exist_ok=True)
        paths.write_private_file(paths.token_file(state, handle), token)
        return token

    return keep


@pytest.fixture(scope="module")
def daemon():
    """One daemon with default settings for all tests of a module."""
    from living import Living, short_dir

    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living


@pytest.fixture
def agents(daemon):
    """Two fresh handles, because one daemon serves all tests of a module."""
    from hook_client import ok

    stamp = os.urandom(4).hex()
    names = f"Jerry-{stamp}", f"Spock-{stamp}"
    for name in names:
        ok(daemon, "bridge-register", "--agent", name)
    return names


@pytest.fixture(scope="module")
def client():
    """A program that runs hooks as Claude Code and Codex do."""
    from hook_client import CLIENT
    from living import short_dir

    with short_dir() as folder:
        path = Path(folder, "claude")
        path.write_text(CLIENT)
        path.chmod(0o700)
        yield path
