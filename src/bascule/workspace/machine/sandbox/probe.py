"""What this machine offers, found out by trying it."""

import os
import select
import signal

from bascule.workspace.machine.sandbox import launch

# A Python on a cold disk.
PROBE_SECONDS = 20.0
MODULES = "array, contextlib, ctypes, gc, json, os, resource, select, signal, socket, sys, time"
APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
CLONE = "/proc/sys/kernel/unprivileged_userns_clone"
MOST = "/proc/sys/user/max_user_namespaces"
INSTALL = (
    "install it: apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), pacman -S bubblewrap (Arch)"
)


def find_tools() -> launch.Tools:
    bwrap = launch.find("bwrap")
    python, prefix = next(
        ((path, prefix) for path, prefix in launch.pythons() if _works(path)), next(reversed(list(launch.pythons())))
    )
    return launch.Tools(
        bwrap=bwrap,
        setpriv=launch.find("setpriv"),
        python=python,
        prefix=prefix,
        # Upstream since 0.10, in distributions' older ones as a security fix: the help knows.
        bind_by_descriptor=bwrap is not None and "--bind-fd" in output_of([bwrap, "--help"])[1],
    )


def version(tools: launch.Tools) -> str:
    """As `bwrap --version` says it."""
    return output_of([tools.bwrap, "--version"])[1].strip().rpartition(" ")[2] if tools.bwrap else ""


def _works(python: str) -> bool:
    return (
        output_of([python, *launch.PYTHON_OPTIONS, "-c", f"import {MODULES}; assert sys.version_info >= (3, 9)"])[0]
        == 0
    )


def bubblewrap_problem(tools: launch.Tools) -> str | None:
    """One sentence with its remedy; None when cells can be made."""
    if tools.bwrap is None:
        return f"bubblewrap is not installed; {INSTALL}"
    if os.getuid() == 0 and tools.setpriv is None:
        return "setpriv is missing, so root cannot run commands as a workspace's owner; install util-linux"
    tried = [tools.bwrap, "--unshare-all", "--unshare-user", "--cap-drop", "ALL", "--ro-bind", "/", "/"]
    code, text = output_of([*tried, "--proc", "/proc", "--dev", "/dev", "--", "/bin/true"])
    if code == 0:
        return None
    line = text.strip().rpartition("\n")[2] or f"exit code {code}"
    return f"bubblewrap cannot make a sandbox here ({line}); {remedy(line)}"


def remedy(line: str) -> str:
    if _setting(APPARMOR) == "1":
        return (
            "AppArmor keeps user namespaces from programs without a profile: give bwrap one"
            " (apt install apparmor-profiles), or run: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if _setting(CLONE) == "0":
        return "user namespaces are off for users: sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting(MOST) == "0":
        return "user namespaces are off: sysctl -w user.max_user_namespaces=10000"
    if "proc" in line:
        return (
            "a container hides parts of /proc: start it with --security-opt systempaths=unconfined,"
            " or run the daemon outside of it"
        )
    return (
        "in a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined,"
        " or run the daemon outside of it"
    )


def _setting(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def output_of(argv: list[str]) -> tuple[int, str]:
    """Exit code and output of both streams, at most a pipe full; without fork."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_DUP2, writer, 2),
        ]
        environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
        try:
            pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions, setsigmask=())
        except OSError as error:
            return 127, str(error)
        pidfd = os.pidfd_open(pid)
        try:
            # It says little: what would fill the pipe is not what we asked for, and it is killed for it.
            if not _ends(pidfd):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.set_blocking(reader, False)
        try:
            text = os.read(reader, 65536).decode("utf-8", "replace")
        except BlockingIOError:
            text = ""
    finally:
        os.close(reader)
        os.close(writer)
    return code, text


def _ends(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(PROBE_SECONDS * 1000))
