"""Whether a client's process is still there, the same one, with a person in front of it; and what its calls left."""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Collection
from typing import NamedTuple

from bascule.native.ports import Left, ProcessStart

# Characters of a command line that are shown; of a script in it the beginning is enough.
MAX_COMMAND_CHARS = 120
# Hooks and bells of a client are its children, too, and none of a call's. A bell waits for a day.
_OURS = re.compile(rb"(?:^|[/\0\s'\"])(?:bridge-[a-z]+|bascule)(?:$|[\0\s'\"])")


def start_of(pid: int) -> ProcessStart | None:
    """None when it is gone, or is another user's."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid() and os.getuid() != 0:
            return None
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return None if os.path.isdir("/proc/self") else _without_proc(pid)
    except OSError:
        return None
    # proc(5): starttime is field 22, the state field 3; a zombie is gone.
    return None if fields[0] == b"Z" else ProcessStart(pid, int(fields[19]))


def _without_proc(pid: int) -> ProcessStart | None:
    try:
        os.kill(pid, 0)
    except OSError:
        return None
    return ProcessStart(pid, 0)


# Where a process stands that has ended.
NOWHERE = ""
# Claude Code's options for one prompt and its answer.
_ONE_PROMPT = frozenset([b"-p", b"--print"])


def has_terminal(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        source = os.readlink(f"/proc/{pid}/fd/0")
    except OSError:
        return False
    return source.startswith(("/dev/pts/", "/dev/tty")) and _ONE_PROMPT.isdisjoint(words)


class _Process(NamedTuple):
    name: str
    parent: int
    session: int
    start: int


def ticks_now() -> int:
    """As the start of a process that starts now; 0 where the system does not tell."""
    try:
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
    except (AttributeError, OSError, ValueError):
        return 0


def left_by(
    client: ProcessStart, since: int, root: str, *, others: Collection[ProcessStart], orphans_only: bool
) -> list[Left]:
    """Processes that a call of this client has left, which began at `since` (ticks). Linux alone.

    They are younger than the call, and descend from the client; or their parent is gone and they are in the client's
    session, or stand in the project in a session whose leader is gone or that they have made themselves. What descends
    from `others`, which earlier calls have left, is theirs. With `orphans_only` the client has other calls under way,
    whose processes descend from it as well.
    """
    table = _table()
    if client.pid not in table or table[client.pid].start != client.ticks:
        return []
    theirs = {each.pid for each in others if each.pid in table and table[each.pid].start == each.ticks}
    found = []
    for pid, process in table.items():
        if process.start < since:
            continue
        line = _line(pid, table)
        if not theirs.isdisjoint(line) or (client.pid in line and (orphans_only or client.pid == pid)):
            continue
        if client.pid not in line and not _is_orphan(line, table, since, client.pid, root):
            continue
        command = _command(pid)
        if command is not None and not _OURS.search(command):
            words = command.replace(b"\0", b" ").decode("utf-8", "replace").strip() or process.name
            found.append(Left(ProcessStart(pid, process.start), words[:MAX_COMMAND_CHARS]))
    return found


def is_silenced(client: ProcessStart, since: int, directory: str) -> bool:
    """Whether the client cannot report the end of a call any more, and nothing that may be the call's runs.

    A client starts its hooks in its directory. What is younger than the call may be the call's if it descends from the
    client, or has lost its parent and is in the client's session or stands where the client does, wherever that is by
    now; so may be what does not tell where it stands.
    """
    table = _table()
    lives = client.pid in table and table[client.pid].start == client.ticks
    if not table or (lives and os.path.isdir(directory)):
        return False
    place = _place_of(client.pid) if lives else directory
    for pid, process in table.items():
        if process.start < since:
            continue
        line = _line(pid, table)
        top = next(each for each in reversed(line) if table[each].start >= since)
        parent = table.get(table[top].parent)
        if lives and client.pid in line:
            return False
        if parent is None or table[top].parent == 1 or parent.name == "systemd":
            stands = _place_of(pid)
            if stands == NOWHERE:
                # It has ended by now.
                continue
            if stands is None or place is None or f"{stands}/".startswith(f"{place}/"):
                return False
            if lives and process.session == table[client.pid].session:
                return False
    return True


def _place_of(pid: int) -> str | None:
    """What is removed says so behind its name; None where it is not told."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except (FileNotFoundError, ProcessLookupError):
        return NOWHERE
    except OSError:
        return None


def _line(pid: int, table: dict[int, _Process]) -> list[int]:
    """It and its ancestors."""
    line = [pid]
    # A table that is read while processes come and go may have a circle.
    while (parent := table[line[-1]].parent) in table and parent not in line:
        line.append(parent)
    return line


def _is_orphan(line: list[int], table: dict[int, _Process], since: int, client: int, root: str) -> bool:
    # The last ancestor that is as young as the call.
    top = next(each for each in reversed(line) if table[each].start >= since)
    parent, session = table[top].parent, table[top].session
    if parent in table and parent != 1 and table[parent].session == session:
        # Another program that lives has started it.
        return False
    if session == table[client].session:
        return True
    return (session not in table or session == top) and _stands_in(line[0], root)


def _stands_in(pid: int, root: str) -> bool:
    place = _place_of(pid)
    return place is not None and f"{place}/".startswith(f"{root}/")


def _table() -> dict[int, _Process]:
    """Processes of this user that live, and their parents' table as far as it can be read."""
    table = {}
    try:
        with open("/proc/2/comm", "rb") as file:
            kernel = file.read()
    except OSError:
        kernel = b""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                head, _, rest = file.read().rpartition(b")")
        except OSError:
            continue
        # proc(5): state is field 3, ppid 4, session 6, starttime 22; threads of the kernel have kthreadd as parent.
        fields = rest.split()
        if fields and fields[0] not in (b"Z", b"X") and (fields[1] != b"2" or b"kthreadd" not in kernel):
            called = head.partition(b"(")[2].decode("utf-8", "replace")
            table[int(name)] = _Process(called, int(fields[1]), int(fields[3]), int(fields[19]))
    return table


def _command(pid: int) -> bytes | None:
    """None of what is gone or another user's; empty in the moment in which a process becomes another program."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return None
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return None


async def gone(process: ProcessStart) -> None:
    """Returns when this process has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        if start_of(process.pid) == process:
            loop.add_reader(descriptor, ended.cancel)
            await asyncio.wait({ended})
    finally:
        with contextlib.suppress(OSError):
            loop.remove_reader(descriptor)
        os.close(descriptor)
