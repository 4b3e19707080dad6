"""What a cell sees of the machine, as arguments of bwrap.

/usr and a few files of /etc, read-only; the workspace at its own path, through its descriptor; a /tmp of the cell's
own, in memory, and in it the home directory that commands of one principal share.
Nothing of /home, /root, /run or /var: no socket of tmux, X11, D-Bus, ssh-agent or docker is there, and of the
daemon's only `space.sock`, at which every command is the space's own agent.
"""

import os
import re
from typing import NamedTuple

from bascule.kernel.policy.programs import ProgramRules
from bascule.kernel.policy.shell.wrappers import is_multicall
from bascule.workspace.machine.sandbox.limits import SandboxLimits

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TMP = "/tmp"  # noqa: S108 - the name inside the cell; it is in memory
HOME = "/tmp/home"  # noqa: S108 - the name inside the cell; outside it is a private directory of ours
SHM = "/dev/shm"  # noqa: S108 - the name inside the cell
SPAWNER = "/run/spawner.py"
SPACE_SOCK = "/run/bascule/space.sock"
# Merged into /usr on most systems, directories of their own on some.
TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What programs read to find libraries, certificates, names and the time. No keys, no passwords, no history.
ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "fonts",
    "gitconfig",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pki/tls/certs",
    "pki/ca-trust/extracted",
    "profile",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
ETC_FOR_NETWORK = ("resolv.conf", "gai.conf")
# Kernel settings and switches obey the user id 0 even without any capability (core_pattern starts a program
# outside as root): a cell of root's workspace must not be able to write them.
READ_ONLY_PROC = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
# Which keys and timers there are is nobody's business in here.
HIDDEN_PROC = ("kcore", "keys", "key-users", "timer_list", "kallsyms", "kmsg", "latency_stats", "sched_debug")
# As git takes settings from the environment. Packing refs deletes files whose content is then in our copy of
# `packed-refs` alone, until that is copied out: `git gc` leaves it. By itself it would end with its command.
# Indexes are written without what we do not copy out.
_GIT = {
    "gc.packRefs": "false",
    "gc.auto": "0",
    # `objects/info` is read-only.
    "gc.writeCommitGraph": "false",
    "fetch.writeCommitGraph": "false",
    "repack.updateServerInfo": "false",
    "index.sparse": "false",
    "index.recordEndOfIndexEntries": "false",
    "index.recordOffsetTable": "false",
}
GIT_SETTINGS = {
    "GIT_CONFIG_COUNT": str(len(_GIT)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_GIT)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_GIT.values())},
}

# Stands where a denied program would. The supervisor decides before the kernel reads a path again, and a process
# with two threads may exchange it in between: then this is what it gets. An executable file, so that shells find
# it, and the refusal is recorded.
MASK = b"#!/bin/sh\necho 'this program is blocked by policy' >&2\nexit 126\n"
# Each is a mount of its own.
MAX_MASKED = 64


def masked(rules: ProgramRules, keep: str) -> tuple[str, ...]:
    """Files of programs that are denied whatever their arguments; never `keep`, which the spawner needs."""
    found = set()
    for rule in rules.denied:
        if rule.words or not _PLAIN.fullmatch(rule.name):
            continue
        for folder in PATH.split(":"):
            path = os.path.realpath(os.path.join(folder, rule.name))
            # One file that is many programs is denied by the name it is called by, at exec.
            if path.startswith("/usr/") and os.path.isfile(path) and not is_multicall(os.path.basename(path)):
                found.add(path)
    return tuple(sorted(found - {os.path.realpath(keep)}))[:MAX_MASKED]


_PLAIN = re.compile(r"[A-Za-z0-9._+-]+")


class Bound(NamedTuple):
    """A file or directory that goes into a cell through its descriptor, never through a name."""

    descriptor: int
    where: str
    writable: bool

    def identity(self) -> tuple[int, int]:
        found = os.fstat(self.descriptor)
        return found.st_dev, found.st_ino


class Layout(NamedTuple):
    workspace: str
    user: int
    group: int
    network: bool
    # More directories to read, as the person's settings say.
    readable: tuple[str, ...]
    # Programs that have something else in their place.
    masked: tuple[str, ...]
    # Place in the workspace and content: it stands there, whatever the file is by then.
    files: tuple[tuple[str, bytes], ...] = ()
    # Who commands are at `space.sock`; empty where there is none.
    agent: str = ""


def made_up_files(layout: Layout) -> dict[str, bytes]:
    """The users of this little world are one, whoever else has an account on the machine."""
    name = "root" if layout.user == 0 else "agent"
    user, group = layout.user, layout.group
    return {
        "/etc/passwd": f"{name}:x:{user}:{group}:Agent:{HOME}:/bin/sh\n".encode(),
        "/etc/group": f"{name}:x:{group}:\n".encode(),
        "/etc/hosts": b"127.0.0.1 localhost bascule\n::1 localhost\n",
        **dict.fromkeys(layout.masked, MASK),
    }


def environment(layout: Layout) -> dict[str, str]:
    name = "root" if layout.user == 0 else "agent"
    door = {"BASCULE_SPACE_SOCK": SPACE_SOCK, "BASCULE_SPACE_AGENT": layout.agent} if layout.agent else {}
    return door | {
        "PATH": PATH,
        "HOME": HOME,
        "TMPDIR": TMP,
        "USER": name,
        "LOGNAME": name,
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "BASCULE_SANDBOX": "bubblewrap",
        **GIT_SETTINGS,
    }


def arguments(
    layout: Layout,
    limits: SandboxLimits,
    *,
    binds: list[Bound],
    data: dict[str, int],
    files: list[tuple[str, int]],
    info: int,
    bind_by_descriptor: bool,
) -> list[str]:
    """bwrap's, up to the program it starts. `data` are descriptors of made-up files by their place; `files` stand in
    the workspace."""
    out = ["--unshare-all", "--unshare-user", "--as-pid-1", "--die-with-parent", "--new-session"]
    out += ["--cap-drop", "ALL", "--hostname", "bascule", "--clearenv", "--info-fd", str(info)]
    if layout.network:
        out.append("--share-net")
    out += [*_system(layout), *_proc()]
    out += ["--dev", "/dev", "--size", str(limits.shm_bytes), "--perms", "1777", "--tmpfs", SHM]
    out += ["--size", str(limits.tmp_bytes), "--perms", "1777", "--tmpfs", TMP]
    for place, descriptor in data.items():
        mode = "0555" if place in layout.masked else "0444"
        out += ["--perms", mode, "--ro-bind-data", str(descriptor), place]
    for bound in binds:
        kind = "--bind" if bound.writable else "--ro-bind"
        if bind_by_descriptor:
            out += [f"{kind}-fd", str(bound.descriptor), bound.where]
        else:
            out += [kind, f"/proc/self/fd/{bound.descriptor}", bound.where]
    for place, descriptor in files:
        out += ["--perms", "0555", "--ro-bind-data", str(descriptor), f"{layout.workspace}/{place}"]
    return [*out, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", layout.workspace]


def _system(layout: Layout) -> list[str]:
    out = ["--ro-bind", "/usr", "/usr"]
    for name in TOP:
        path = f"/{name}"
        if os.path.islink(path):
            out += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            out += ["--ro-bind", path, path]
    for name in ETC + (ETC_FOR_NETWORK if layout.network else ()):
        out += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in layout.readable:
        out += ["--ro-bind-try", path, path]
    return out


def _proc() -> list[str]:
    out = ["--proc", "/proc"]
    for name in READ_ONLY_PROC:
        if os.path.exists(f"/proc/{name}"):
            out += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    for name in HIDDEN_PROC:
        if os.path.exists(f"/proc/{name}"):
            out += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return out
