"""One way to run `sh -c 'echo hi'`: does it so many times and prints the seconds of each, as JSON.

python bench/shells.py WAY TIMES DIRECTORY
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

COMMAND = "echo hi"
EXPECTED = b"hi\n"


def bare() -> Callable[[], bytes]:
    """The limit: what the kernel takes to start a shell and to read what it says."""

    def run() -> bytes:
        reading, writing = os.pipe()
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1)]
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", COMMAND], os.environ, file_actions=actions)
        os.close(writing)
        output = b""
        while piece := os.read(reading, 4096):
            output += piece
        os.close(reading)
        os.waitpid(pid, 0)
        return output

    return run


def bwrap(directory: str) -> Callable[[], bytes]:
    """A sandbox for each command."""
    roots = ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
    roots += ["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--bind", directory, directory]
    command = ["bwrap", "--unshare-all", "--die-with-parent", *roots, "--chdir", directory, "sh", "-c", COMMAND]
    return lambda: subprocess.run(command, capture_output=True, check=True).stdout


@contextmanager
def sandlock(directory: str) -> Iterator[Callable[[], bytes]]:
    from sandlock import Sandbox

    readable = ["/usr", "/bin", "/lib", "/lib64", "/etc", "/dev", "/proc"]

    def run() -> bytes:
        done = Sandbox(fs_readable=readable, fs_writable=[directory], cwd=directory).run(["sh", "-c", COMMAND])
        return done.stdout

    yield run


async def swerex_session(times: int) -> list[float]:
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest
    from swerex.runtime.local import LocalRuntime

    runtime = LocalRuntime()
    await runtime.create_session(CreateBashSessionRequest())
    action = BashAction(command=f"sh -c '{COMMAND}'", check="silent")

    async def run() -> bytes:
        # Now and then its own prompt is in the output, too.
        return (await runtime.run_in_session(action)).output.split()[0].encode() + b"\n"

    try:
        return await _timed(run, times)
    finally:
        await runtime.close()


async def swerex_execute(times: int) -> list[float]:
    from swerex.runtime.abstract import Command
    from swerex.runtime.local import LocalRuntime

    runtime = LocalRuntime()
    command = Command(command=["sh", "-c", COMMAND])

    async def run() -> bytes:
        return (await runtime.execute(command)).stdout.encode()

    return await _timed(run, times)


async def cell(directory: str, times: int) -> list[float]:
    """Our sandbox adapter alone: a warm cell of a space, with the supervisor that sees every exec."""
    from bascule.testing.policies import standard
    from bascule.workspace.machine.files.roots import WorkspaceFiles
    from bascule.workspace.machine.sandbox.sandboxes import Sandboxes
    from bascule.workspace.ports import Command

    workspace = os.path.join(directory, "workspace")
    os.makedirs(workspace, exist_ok=True)
    root = WorkspaceFiles(forbidden=()).open_root(workspace)
    sandbox = Sandboxes(os.path.join(directory, "cells"), log=lambda *_, **__: None).open(
        "spc_bench", root, network=False
    )
    rules = standard().program_rules("local")
    numbers = iter(range(1_000_000))

    async def run() -> bytes:
        # Which repositories there are a run knows from its checkpoint, so no command searches for them.
        command = Command(process_id=f"prc_{next(numbers)}", command=COMMAND, programs=rules, repositories=())
        started = await sandbox.start(command, lambda *_: None)
        return (await started.wait()).stdout.text.encode()

    try:
        return await _timed(run, times)
    finally:
        await sandbox.close()
        root.close()


async def _timed(run: Callable[[], Coroutine[Any, Any, bytes]], times: int) -> list[float]:
    taken = []
    # The first ones open what the others find open.
    for number in range(-3, times):
        began = time.perf_counter()
        output = await run()
        took = time.perf_counter() - began
        assert output == EXPECTED, output
        if number >= 0:
            taken.append(took)
    return taken


def _repeat(run: Callable[[], bytes], times: int) -> list[float]:
    async def later() -> bytes:
        return run()

    return asyncio.run(_timed(later, times))


def main() -> None:
    way, times, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    match way:
        case "bare":
            taken = _repeat(bare(), times)
        case "bwrap":
            taken = _repeat(bwrap(directory), times)
        case "sandlock":
            with sandlock(directory) as run:
                taken = _repeat(run, times)
        case "swerex-session":
            taken = asyncio.run(swerex_session(times))
        case "swerex-execute":
            taken = asyncio.run(swerex_execute(times))
        case "cell":
            import uvloop

            taken = uvloop.run(cell(directory, times))
        case _:
            sys.exit(f"there is no way {way}")
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
