"""The first process of a cell: starts one command at a time and ends all that is left of it.

A program of its own: the standard library only, run by `python -I -S` inside the sandbox, where nothing of
ours can be imported. It is pid 1 of its pid namespace, so signals from inside cannot end it, orphans come to it,
and its end ends everything. Outside a sandbox (`reaper`) it is a subreaper and looks its descendants up.

Over the control socket (SOCK_SEQPACKET, one JSON object per message; its descriptor is our argument):
    -> {"setup": {...}}             once             <- {"ready": {...}} and, if asked for, the exec listener
    -> {"run": {...}} with 2 pipes  one at a time    <- {"ended": {...}} once nothing of it is left
    -> {"end": "why"}               ends the command: the answer is `ended` all the same
    -> {"pause": true or false}     stops the command's processes, or lets them go on    <- {"paused": ...}
When the socket ends, so do we: the program that started us is gone.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

# typing costs each cell 5 ms at its start; who checks types has read it already.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, NoReturn

# The sender keeps requests below this.
MAX_REQUEST_BYTES = 256 * 1024
# How often limits that the kernel does not keep for us are looked at; a command shorter than this pays nothing.
TICK_SECONDS = 0.25

# inotify: a name was moved away or there, made, deleted; and more happened than the kernel keeps.
IN_NAMES = 0x40 | 0x80 | 0x100 | 0x200
IN_Q_OVERFLOW = 0x4000
# Descriptor of the watch, what happened, a cookie, the length of the name that follows.
IN_EVENT = struct.Struct("iIII")
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_NEW_LISTENER = 8
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_RESTRICT_SELF = 446
# Mounts that only this cell sees, and System V's memory, outlive the command that filled them.
LEFTOVER_DIR = "/dev/shm"  # noqa: S108 - the sandbox's own, looked at, never written
TMP = "/tmp"  # noqa: S108 - the sandbox's own
# Entries of /tmp that are worth deleting one by one; a cell with more left in it is not used again.
MAX_TIDIED = 500
LEFTOVER_LISTS = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


class Guard:
    """Notices when a path stops leading to the file that is bound over it.

    A rename in another mount namespace takes such a mount away or along, and the kernel lets it. Names are watched in
    the directories themselves, so that a rename is seen wherever it is made, and however shortly it lasts.
    """

    def __init__(self, libc: ctypes.CDLL, workspace: str, places: list[str]) -> None:
        self.libc = libc
        self.workspace = workspace
        self.paths = [f"{workspace}/{place}" for place in places]
        # Something on the way to one of them was moved or made anew.
        self.moved = False
        self.descriptor = check(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify_init1")
        # By the descriptor of the watch.
        self.names: dict[int, set[bytes]] = {}
        for folder, name in self.steps():
            self.names.setdefault(check(self.watch(folder), f"inotify_add_watch {folder}"), set()).add(name)
        self.files = {path: identity(path) for path in self.paths}
        for path, (device, _) in self.files.items():
            # What is bound lies in bwrap's own memory.
            if device == identity(os.path.dirname(path))[0]:
                raise OSError(f"{path} was exchanged while the sandbox started; run it again")

    def steps(self) -> Iterator[tuple[str, bytes]]:
        """Each directory on the way to each file, through links and beside them, and the name that counts there."""
        for path in self.paths:
            for way in {path, os.path.realpath(path)}:
                folder, name = os.path.split(way)
                while f"{folder}/".startswith(f"{self.workspace}/"):
                    yield folder, os.fsencode(name)
                    folder, name = os.path.split(folder)

    def watch(self, folder: str) -> int:
        return self.libc.inotify_add_watch(self.descriptor, os.fsencode(folder), IN_NAMES)  # type: ignore[no-any-return] # C's int

    def is_touched(self) -> bool:
        """Since it was asked last."""
        touched = False
        while True:
            try:
                data = os.read(self.descriptor, 64 * 1024)
            except BlockingIOError:
                return touched
            at = 0
            while at < len(data):
                watch, what, _, length = IN_EVENT.unpack_from(data, at)
                at += IN_EVENT.size + length
                name = data[at - length : at].rstrip(b"\0")
                touched = touched or bool(what & IN_Q_OVERFLOW) or name in self.names.get(watch, ())

    def is_exchanged(self) -> bool:
        """Whether another file stands where one of them was. Where none stands, none can be run."""
        if not self.is_touched():
            return False
        self.moved = True
        for folder, name in self.steps():
            # A new directory has no watch yet.
            if (watch := self.watch(folder)) >= 0:
                self.names.setdefault(watch, set()).add(name)
        for path, expected in self.files.items():
            with contextlib.suppress(OSError):
                if identity(path) != expected:
                    return True
        return False


class Spawner:
    def __init__(self, control: socket.socket, *, first: bool) -> None:
        self.control = control
        # Opened while we may: once nobody may look into us, our own files in /proc are root's.
        self.io = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        # Whether we are pid 1 of a namespace of our own.
        self.first = first
        self.environment: dict[str, str] = {}
        self.limits: dict[str, Any] = {}
        self.main = 0
        self.status = 0
        self.why: str | None = None
        self.cpu_before = 0.0
        # By path, in the order of the limits.
        self.free_before: list[int] = []
        self.written_before = self.written_alone()
        # What was in /tmp before the first command, by path: what is mounted there, and the way to it.
        self.mounted: set[str] = set()
        self.tmp_device = 0
        # The directories of it, with the size that each has while nothing is added.
        self.tmp_folders: dict[str, int] = {}
        self.left_to_tidy = 0
        self.buffer = bytearray(MAX_REQUEST_BYTES)
        self.empty = 0
        self.lists: list[int] = []
        if first:
            self.look_at_leftovers()
        self.null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.guard: Guard | None = None
        self.poll = select.poll()

    # -- before the first command

    def set_up(self, wanted: dict[str, Any]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        # Programs in here run as the same user: none of them may look into or trace this one.
        check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(dumpable)")
        if not self.first:
            check(libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(subreaper)")
        # The daemon's own keeps its state private; what commands make belongs to the workspace.
        os.umask(0o022)
        self.environment = wanted["environment"]
        self.limits = wanted["watch"]
        for kind, wanted_limit in wanted["rlimits"]:
            hard = resource.getrlimit(kind)[1]
            most = wanted_limit if hard == resource.RLIM_INFINITY else min(wanted_limit, hard)
            resource.setrlimit(kind, (most, most))
        if wanted["nice"]:
            os.nice(wanted["nice"])
        # What was really bound where, for the daemon to compare.
        seen = []
        for path in wanted["look"]:
            found = os.lstat(path)
            seen.append([found.st_dev, found.st_ino])
        if wanted["guarded"]:
            self.guard = Guard(libc, wanted["workspace"], wanted["guarded"])
            self.poll.register(self.guard.descriptor, select.POLLIN)
        if wanted["scope"]:
            self.scope(libc, wanted["scope"])
        listener: list[int] = []
        if wanted["filter"]:
            descriptor = self.filter(libc, wanted)
            listener = [descriptor] if wanted["listen"] else []
        self.send({"ready": {"seen": seen}}, listener)
        for descriptor in listener:
            os.close(descriptor)

    def scope(self, libc: ctypes.CDLL, scopes: int) -> None:
        """Landlock: abstract sockets and signals beyond this cell are out of reach, whatever the network."""
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(no_new_privs)")
        attributes = (ctypes.c_uint64 * 3)(0, 0, scopes)
        rules = check(libc.syscall(LANDLOCK_CREATE_RULESET, attributes, 24, 0), "landlock_create_ruleset")
        check(libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0), "landlock_restrict_self")
        os.close(rules)

    def filter(self, libc: ctypes.CDLL, wanted: dict[str, Any]) -> int:
        """With a listener every exec from here on waits for the holder of the descriptor that this returns."""
        code = bytes.fromhex(wanted["filter"])
        program = Filter(len(code) // 8, code)
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(no_new_privs)")
        flags = SECCOMP_FILTER_FLAG_NEW_LISTENER if wanted["listen"] else 0
        number = wanted["seccompNumber"]
        return check(libc.syscall(number, SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(program)), "seccomp")

    # -- one command

    def run(self, request: dict[str, Any], pipes: array.array[int]) -> None:
        environment = self.environment | request["environment"]
        self.why, self.status = None, 0
        actions = [
            (os.POSIX_SPAWN_DUP2, self.null, 0),
            (os.POSIX_SPAWN_DUP2, pipes[0], 1),
            (os.POSIX_SPAWN_DUP2, pipes[1], 2),
        ]
        try:
            os.chdir(request["cwd"])
            # Ignored here; a program that did not ask for that must not.
            self.main = os.posix_spawn(
                request["argv"][0],
                request["argv"],
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT),
            )
        except OSError as error:
            self.main = 0
            self.send({"ended": {"fault": [error.errno or 0, str(error.filename or "")], **NOTHING_RAN}})
        finally:
            for pipe in pipes:
                os.close(pipe)
        # While the command begins: what it writes in its first microseconds is not what the limit is about.
        self.free_before = [free_bytes(disk["path"]) for disk in self.limits.get("disks", ())]

    def end(self, why: str) -> None:
        """All of it, at once: the answer goes out when the last process is reaped."""
        if not self.main:
            return
        self.why = why
        self.finish()

    def check_guarded(self) -> None:
        if self.guard is not None and self.guard.is_exchanged():
            self.end("exchanged")

    def finish(self) -> None:
        left = self.kill_all()
        if self.guard is not None and self.guard.is_exchanged():
            self.why = "exchanged"
        self.main = 0
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        self.send(
            {
                "ended": {
                    "fault": None,
                    "status": self.status,
                    "why": self.why,
                    "left": left,
                    "cpu": cpu - self.cpu_before,
                    "clean": self.is_clean(),
                    "moved": self.guard is not None and self.guard.moved,
                }
            }
        )
        # What the next command is measured from: until it starts, nothing runs that could add to these.
        self.cpu_before, self.written_before = cpu, self.written_alone()

    def is_clean(self) -> bool:
        """Whether the cell is as it was before the command; it is not used again if not."""
        if not self.first:
            return True
        if os.stat(LEFTOVER_DIR).st_size != self.empty or not self.empty_tmp():
            return False
        # One line of headings, then a line each.
        return all(os.pread(descriptor, 4096, 0).count(b"\n") <= 1 for descriptor in self.lists)

    def look_at_leftovers(self) -> None:
        """In memory's file system an empty directory has its own size again."""
        self.empty = os.stat(LEFTOVER_DIR).st_size
        self.tmp_device = os.stat(TMP).st_dev
        self.look_at_tmp(TMP)
        for path in LEFTOVER_LISTS:
            with contextlib.suppress(FileNotFoundError):
                self.lists.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def look_at_tmp(self, folder: str) -> None:
        """What is mounted there, and the directories on the way to it."""
        found = os.stat(folder)
        self.tmp_folders[folder] = found.st_size
        with os.scandir(folder) as entries:
            for entry in entries:
                self.mounted.add(entry.path)
                if entry.stat(follow_symlinks=False).st_dev == self.tmp_device:
                    self.look_at_tmp(entry.path)

    def empty_tmp(self) -> bool:
        """Whether nothing of the command is left there. Nobody else is in the cell by now."""
        try:
            if all(os.stat(path).st_size == size for path, size in self.tmp_folders.items()):
                return True
            self.left_to_tidy = MAX_TIDIED
            for path in self.tmp_folders:
                self.tidy(path)
        except OSError:
            return False
        return True

    def tidy(self, folder: str) -> None:
        """Delete what commands made. `OSError` when it is too much, or something mounted was moved there."""
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.path not in self.mounted]
        for entry in found:
            self.left_to_tidy -= 1
            if self.left_to_tidy < 0 or entry.stat(follow_symlinks=False).st_dev != self.tmp_device:
                raise OSError(f"{entry.path} stays")
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                self.tidy(entry.path)
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)

    def pause(self, paused: bool) -> None:
        """Of a cell's own namespace only: elsewhere a child could be missed."""
        if self.first and self.main:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGSTOP if paused else signal.SIGCONT)
        self.send({"paused": paused})

    def kill_all(self) -> int:
        """How many processes were left. None is when this returns."""
        # Usually there is none: orphans come to us before the death of their parent is told, so no child means
        # no descendant.
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return 0
        return self.kill_rest()

    def kill_rest(self) -> int:
        left = 0
        while True:
            if self.first:
                # From pid 1 this reaches the whole namespace in one step, and no fork slips through it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(-1, signal.SIGKILL)
            else:
                for pid in self.others():
                    kill_descendant(pid)
            try:
                while True:
                    pid, status = os.waitpid(-1, 0 if self.first else os.WNOHANG)
                    if pid == 0:
                        time.sleep(0.001)
                        break
                    if pid == self.main:
                        self.status = status
                    else:
                        left += os.WIFSIGNALED(status)
            except ChildProcessError:
                return left

    def reap(self) -> None:
        """Orphans as they end, so that a long command's dead do not count against its limit of processes."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main:
                self.status = status
                self.finish()
                return

    # -- limits that are ours to keep

    def watch(self) -> None:
        limits = self.limits
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu, memory, tasks = used.ru_utime + used.ru_stime - self.cpu_before, 0, 0
        if self.first and "memoryBytes" in limits:
            memory += used_bytes(TMP) + used_bytes(LEFTOVER_DIR)
        for pid in self.others():
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    text = file.read()
                with open(f"/proc/{pid}/statm", "rb") as file:
                    pages = file.read().split()
            except OSError:
                continue
            # The name in parentheses may contain anything, spaces and parentheses too.
            fields = text[text.rindex(b")") + 2 :].split()
            # Its own time, and that of the children it has waited for.
            cpu += sum(int(field) for field in fields[11:15]) / TICKS
            tasks += int(fields[17])
            # Without what is shared: a hundred shells do not have a hundred copies of the C library.
            memory += (int(pages[1]) - int(pages[2])) * PAGE
        if cpu > limits["cpuSeconds"]:
            self.end("cpu")
        elif tasks > limits.get("processes", tasks):
            self.end("processes")
        elif memory > limits.get("memoryBytes", memory):
            self.end("memory")
        else:
            self.watch_disks()

    def watch_disks(self) -> None:
        written = None
        for disk, free_before in zip(self.limits.get("disks", ()), self.free_before):  # noqa: B905 - not in 3.9
            if written is None:
                written = self.written() - self.written_before
            free = free_bytes(disk["path"])
            # Others write to this disk too: what is missing is this command's only if it wrote as much.
            if (written > disk["bytes"] and free_before - free > disk["bytes"]) or (
                free < disk["keepFree"] and written > disk["blame"]
            ):
                self.end("disk")
                return

    def written(self) -> int:
        """What the living and the reaped have written: a reaped child's counts are added to its parent's."""
        total = self.written_alone()
        for pid in self.others():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/io", "rb") as file:
                total += written_bytes(file.read())
        return total

    def written_alone(self) -> int:
        return written_bytes(os.pread(self.io, 4096, 0))

    def others(self) -> list[int]:
        if self.first:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        found, waiting = [], [os.getpid()]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                        children = [int(child) for child in file.read().split()]
                    found += children
                    waiting += children
        return found

    # -- the loop

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode()
        try:
            if descriptors:
                socket.send_fds(self.control, [data], descriptors)
            else:
                self.control.send(data)
        except OSError:
            self.leave()

    def leave(self) -> NoReturn:
        self.kill_all()
        os._exit(0)

    def receive(self) -> None:
        # Not socket.recv_fds: it ignores its flags (3.11), and every command would inherit the pipes once more.
        # Into one buffer for all requests: a new one of this size would be mapped and unmapped each time.
        size, extra, _, _ = self.control.recvmsg_into([self.buffer], socket.CMSG_SPACE(8), socket.MSG_CMSG_CLOEXEC)
        data = self.buffer[:size]
        pipes = array.array("i", b"".join(content for _, _, content in extra))
        if not data:
            self.leave()
        request = json.loads(data)  # noqa: TID251 - in here there is no other parser, and the daemon is trusted
        if "run" in request:
            self.run(request["run"], pipes)
        elif "end" in request:
            self.end(request["end"])
        elif "pause" in request:
            self.pause(request["pause"])
        elif "setup" in request:
            self.set_up(request["setup"])

    def serve(self) -> NoReturn:
        bell, ring = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(bell, select.POLLIN)
        next_tick = 0.0
        while True:
            # A command has a tick ahead: it came by `receive`.
            ready = self.poll.poll(max(0.0, next_tick - time.monotonic()) * 1000 if self.main else None)
            for descriptor, _ in ready:
                if descriptor == bell:
                    with contextlib.suppress(BlockingIOError):
                        os.read(bell, 4096)
                    if self.main:
                        self.reap()
                elif descriptor != self.control.fileno():
                    self.check_guarded()
                else:
                    self.receive()
                    next_tick = time.monotonic() + TICK_SECONDS
            if self.main and time.monotonic() >= next_tick:
                self.watch()
                next_tick = time.monotonic() + TICK_SECONDS


NOTHING_RAN = {"status": 0, "why": None, "left": 0, "cpu": 0.0, "clean": True, "moved": False}


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def free_bytes(path: str) -> int:
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def used_bytes(path: str) -> int:
    disk = os.statvfs(path)
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


def written_bytes(counts: bytes) -> int:
    return next((int(line[12:]) for line in counts.splitlines() if line.startswith(b"write_bytes:")), 0)


def kill_descendant(pid: int) -> None:
    """By descriptor, and only while it still is below us: its number may have gone to a stranger."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.pidfd_open(pid)
        try:
            if is_descendant(pid):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


def is_descendant(pid: int) -> bool:
    while pid > 1:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        pid = int(text[text.rindex(b")") + 2 :].split()[1])
        if pid == os.getpid():
            return True
    return False


def main() -> None:
    mode, number = sys.argv[1], int(sys.argv[2])
    first = os.getpid() == 1
    if first is not (mode == "first"):
        raise SystemExit(f"spawner: pid {os.getpid()} cannot be {mode}")
    # With Python's handler even pid 1 would get this signal from inside, and end. The daemon ends us by the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nothing that bwrap or its starter left open may reach a command.
    os.closerange(3, number)
    os.closerange(number + 1, 1 << 20)
    os.set_inheritable(number, False)
    # Nothing here is made in circles, and a command should not wait for the search for them.
    gc.disable()
    Spawner(socket.socket(fileno=number), first=first).serve()


if __name__ == "__main__":
    main()
