"""Runs `bascule doctor --json` as a child: it blocks for seconds, and must see the daemon as any other program does."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Literal

import msgspec

from bascule.admin.protocol import DoctorCheck
from bascule.foundation.errors import Unavailable
from gabp import codec

# It takes one to three seconds; each question to a daemon that is stuck adds five.
DOCTOR_SECONDS = 30.0
# Some thirty checks with a sentence or two each are 10 KiB.
MAX_REPORT_BYTES = 256 * 1024

_HINT = "run `bascule doctor` in a terminal"


class _Check(msgspec.Struct, frozen=True):
    name: str
    result: Literal["ok", "info", "warn", "fail"]
    message: str
    fix: str | None = None


class _Report(msgspec.Struct, frozen=True):
    checks: list[_Check]


_report = codec.decoder(_Report)


def doctor_command(state_dir: str) -> list[str]:
    # -P: the directory that the daemon was started in is nobody's to put modules into.
    return [sys.executable, "-P", "-m", "bascule.cli.start", "doctor", "--json", "--state-dir", state_dir]


async def examine(
    command: Sequence[str], *, seconds: float = DOCTOR_SECONDS, max_bytes: int = MAX_REPORT_BYTES
) -> list[DoctorCheck]:
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            # A group of its own: what it starts ends with it.
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"the doctor could not be started: {error.strerror}", hint=_HINT) from error
    try:
        async with asyncio.timeout(seconds):
            text = await _output(child, max_bytes)
            await child.wait()
    except TimeoutError as error:
        raise Unavailable(f"the doctor took longer than {seconds:g} s", hint=_HINT) from error
    finally:
        await _end(child)
    try:
        checks = _report.decode(text).checks
    except codec.BadJson as error:
        raise Unavailable("the doctor's report cannot be read", hint=_HINT) from error
    return [DoctorCheck(name=each.name, state=each.result, text=each.message, remedy=each.fix) for each in checks]


async def _output(child: asyncio.subprocess.Process, max_bytes: int) -> bytes:
    assert child.stdout is not None
    pieces: list[bytes] = []
    size = 0
    while piece := await child.stdout.read(65_536):
        size += len(piece)
        if size > max_bytes:
            raise Unavailable(f"the doctor's report is longer than {max_bytes} bytes", hint=_HINT)
        pieces.append(piece)
    return b"".join(pieces)


async def _end(child: asyncio.subprocess.Process) -> None:
    """With what it started; the number of a child that has ended may be somebody else's by now."""
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
