"""Starting a cell's processes from the daemon: by posix_spawn, never by fork.

A fork copies the page tables of the whole daemon (43 ms at 1 GB, measured) and `preexec_fn` may deadlock; with
file actions, bwrap's own options and `setpriv` there is nothing left that would need code between the two.
"""

import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from typing import NamedTuple

from bascule.workspace.machine.sandbox.layout import SPAWNER, Bound, Layout, arguments, made_up_files
from bascule.workspace.machine.sandbox.limits import SandboxLimits

SPAWNER_FILE = os.path.join(os.path.dirname(__file__), "spawner.py")
# No site, no environment, no user directory: nothing but the standard library.
PYTHON_OPTIONS = ("-I", "-S")
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
# Enough of what bwrap says before it gives up.
MAX_COMPLAINT_BYTES = 4096


class User(NamedTuple):
    """Whom commands run as, when that is not whom we run as."""

    user: int
    group: int


class Child(NamedTuple):
    """What is left in our hands after a start."""

    pid: int
    pidfd: int
    control: socket.socket
    # What bwrap says about its child, in JSON; None outside a sandbox.
    info: int | None
    complaints: int


class Tools(NamedTuple):
    """Programs of this machine, found once."""

    bwrap: str | None
    setpriv: str | None
    # An interpreter that is in the sandbox anyway, or ours with its prefix bound.
    python: str
    prefix: str | None
    bind_by_descriptor: bool


def start_in_bwrap(tools: Tools, layout: Layout, limits: SandboxLimits, binds: list[Bound], user: User | None) -> Child:
    assert tools.bwrap is not None
    with contextlib.ExitStack() as ours:
        control, theirs = _pair(ours)
        info, info_end = _pipe(ours)
        complaints, complaints_end = _pipe(ours)
        data = {place: _memory_file(ours, content) for place, content in made_up_files(layout).items()}
        data[SPAWNER] = _memory_file(ours, _read(SPAWNER_FILE))
        if tools.prefix is not None:
            prefix = os.open(tools.prefix, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            ours.callback(os.close, prefix)
            binds = [Bound(prefix, tools.prefix, writable=False), *binds]
        files = [(place, _memory_file(ours, content)) for place, content in layout.files]
        argv = [
            tools.bwrap,
            *arguments(
                layout,
                limits,
                binds=binds,
                data=data,
                files=files,
                info=info_end,
                bind_by_descriptor=tools.bind_by_descriptor,
            ),
            "--",
            tools.python,
            *PYTHON_OPTIONS,
            SPAWNER,
            "first",
            str(theirs.fileno()),
        ]
        inherited = [theirs.fileno(), info_end, *data.values(), *(bound.descriptor for bound in binds)]
        inherited += [descriptor for _, descriptor in files]
        pid = _spawn(tools, argv, inherited, complaints_end, user)
        return _child(pid, control, info, complaints)


def start_bare(tools: Tools, user: User | None) -> Child:
    """The same spawner with no sandbox around it."""
    with contextlib.ExitStack() as ours:
        control, theirs = _pair(ours)
        complaints, complaints_end = _pipe(ours)
        source = _memory_file(ours, _read(SPAWNER_FILE))
        # Read through the descriptor: whom it runs as may not be able to read where we are installed.
        argv = [tools.python, *PYTHON_OPTIONS, f"/proc/self/fd/{source}", "reaper", str(theirs.fileno())]
        pid = _spawn(tools, argv, [theirs.fileno(), source], complaints_end, user)
        return _child(pid, control, None, complaints)


def _spawn(tools: Tools, argv: list[str], inherited: list[int], complaints: int, user: User | None) -> int:
    if user is not None:
        assert tools.setpriv is not None
        who = [f"--reuid={user.user}", f"--regid={user.group}", "--clear-groups"]
        argv = [tools.setpriv, *who, "--", *argv]
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        actions = [
            (os.POSIX_SPAWN_DUP2, null, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, complaints, 2),
            # Onto itself: POSIX says that this clears close-on-exec and nothing else.
            *((os.POSIX_SPAWN_DUP2, descriptor, descriptor) for descriptor in inherited),
        ]
        # A session of its own: Ctrl-C in the daemon's terminal is for the daemon.
        return os.posix_spawn(
            argv[0],
            argv,
            {"PATH": os.defpath, "LANG": "C.UTF-8"},
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM),
        )
    finally:
        os.close(null)


def _child(pid: int, control: socket.socket, info: int | None, complaints: int) -> Child:
    """The stack closes what only the child needs; these stay open."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    kept = Child(
        pid=pid,
        pidfd=pidfd,
        control=socket.socket(fileno=os.dup(control.fileno())),
        info=None if info is None else os.dup(info),
        complaints=os.dup(complaints),
    )
    kept.control.setblocking(False)
    return kept


def _pair(ours: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in pair:
        ours.enter_context(end)
    return pair


def _pipe(ours: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(ends[0], False)
    for end in ends:
        ours.callback(os.close, end)
    return ends


def _memory_file(ours: contextlib.ExitStack, content: bytes) -> int:
    descriptor = os.memfd_create("bascule", os.MFD_CLOEXEC)
    ours.callback(os.close, descriptor)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def pythons() -> Iterator[tuple[str, str | None]]:
    """Interpreters to try, the ones under /usr first: they are in every cell anyway."""
    for path in SYSTEM_PYTHONS:
        if os.access(path, os.X_OK):
            yield path, None
    real = os.path.realpath(sys.executable)
    if real.startswith("/usr/"):
        yield real, None
    else:
        yield real, os.path.realpath(sys.base_prefix)


def find(name: str) -> str | None:
    """On a path of our own: what the daemon's environment says is not to choose the sandbox."""
    return shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")
