"""A command on a terminal of its own, and somebody who types."""

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from inside import BASCULE
from patience import PATIENCE


class Session(NamedTuple):
    code: int
    shown: str


def on_a_terminal(
    *arguments: str,
    typed: list[tuple[str, str]],
    seconds: float = PATIENCE,
    until: Callable[[], bool] | None = None,
    reader: Callable[[str], None] | None = None,
    environment: dict[str, str] | None = None,
    program: Sequence[str] = BASCULE,
) -> Session:
    """Run `bascule ...` on a pty; after each prompt, type its line. What does not end by itself gets Ctrl-C `until`.

    `reader` is called with all that was shown so far, whenever there is more. `environment` replaces this process's.
    `program` is run in place of `bascule`."""
    child, master = os.forkpty()
    if not child:
        os.execve(
            program[0],
            [*program, *arguments],
            environment or {**os.environ, "BASCULE_CONFIG_DIR": "/nonexistent"},
        )
    shown = b""
    seen = 0
    waiting = list(typed)
    deadline = time.monotonic() + seconds
    try:
        while True:
            left = max(0, deadline - time.monotonic())
            readable, _, _ = select.select([master], [], [], min(left, 0.05) if until else left)
            if until is not None and not waiting and until():
                os.write(master, b"\x03")
                until = None
            if not readable and left:
                continue
            if not readable:
                raise AssertionError(f"{' '.join((*program, *arguments))} waits: {shown!r}")
            try:
                data = os.read(master, 4096)
            except OSError:
                # Linux ends a pty whose last process is gone with EIO.
                break
            if not data:
                break
            shown += data
            if reader is not None:
                reader(shown.decode(errors="replace"))
            while waiting and waiting[0][0].encode() in shown[seen:]:
                prompt, line = waiting.pop(0)
                seen = shown.index(prompt.encode(), seen) + len(prompt.encode())
                os.write(master, line.encode() + b"\n")
    finally:
        os.close(master)
        _, status = os.waitpid(child, 0)
    assert not waiting, f"never asked: {waiting}"
    return Session(os.waitstatus_to_exitcode(status), shown.decode())
