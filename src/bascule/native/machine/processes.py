"""Whether a client's process is still there, the same one, and with a person in front of it."""

import os

from bascule.native.ports import ProcessStart


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
