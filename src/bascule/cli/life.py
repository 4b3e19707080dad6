"""`bascule up | status | logs | down`: the daemon's life from a terminal."""

import argparse
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from bascule import __version__
from bascule.cli import paste
from bascule.cli.talk import add_json, add_state_dir, ask, state_of
from bascule.foundation import paths
from bascule.foundation.text import one_line
from bascule.local_client.exits import CONFLICT, UNEXPECTED, UNREACHABLE
from bascule.programs.helpers.terminal import say, show, show_json

# A start takes a fraction of a second; with a hundred thousand tickets and a check of the file, a few.
START_SECONDS = 30.0
# Waiting clients are answered and data is written well within this.
STOP_SECONDS = 20.0
_POLL_SECONDS = 0.02


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = commands.add_parser(
        "up",
        help="start the daemon",
        description="Start the daemon in the foreground, or with -d in the background. It listens on two unix "
        "sockets in the state directory and on 127.0.0.1.",
    )
    up.add_argument("-d", "--detach", action="store_true", help="run in the background; returns when it is ready")
    up.add_argument("--port", type=int, help="TCP port on 127.0.0.1 (default 5050; 0 for none)")
    up.add_argument("--auth", choices=("on", "off"), help="off: TCP needs no token")
    up.add_argument("--durability", choices=("fsync", "relaxed", "memory"), help="how much survives (default fsync)")
    up.add_argument("--policy", help="restrictive, standard or permissive (default standard)")
    up.add_argument("--log", choices=("human", "json", "off"), help="what this terminal shows (default human)")
    up.add_argument("--config", metavar="FILE", help="settings file (default: config.toml in ~/.config/bascule)")
    up.add_argument("--tcp-optional", action="store_true", help="go on without TCP when the port is taken")
    up.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    add_state_dir(up)
    up.set_defaults(run=run_up)

    status = commands.add_parser("status", help="what runs, where it listens, how much it holds")
    add_state_dir(status)
    add_json(status)
    status.set_defaults(run=run_status)

    logs = commands.add_parser("logs", help="show the daemon's log", description="Show the end of the daemon's log.")
    logs.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="how many lines (default 50)")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as lines come")
    add_state_dir(logs)
    add_json(logs)
    logs.set_defaults(run=run_logs)

    down = commands.add_parser("down", help="stop the daemon: waiting clients get an answer, data is on disk")
    add_state_dir(down)
    down.set_defaults(run=run_down)


# -- up --


def run_up(args: argparse.Namespace) -> int:
    if args.detach:
        return _up_detached(args)
    from bascule.daemon import config as settings
    from bascule.daemon.lifecycle import run

    state = state_of(args)
    names = ("port", "auth", "durability", "policy", "log")
    config = settings.load(
        paths.config_dir(),
        dict(os.environ),
        file=args.config,
        overrides={name: getattr(args, name) for name in names},
    )

    failpoint = os.environ.get("BASCULE_FAILPOINT")
    if failpoint is not None:
        # Only then: nobody else pays for it, and no line of the daemon knows of it.
        from bascule.testing import failpoints

        failpoints.arm(failpoint)
        say(f"bascule: failpoint {failpoint} is armed (BASCULE_FAILPOINT): this daemon will kill itself")

    def ready(daemon: Any) -> None:
        if failpoint is not None:
            daemon.log("failpoint", level="warning", armed=failpoint)
        if args.ready_fd is not None:
            os.write(args.ready_fd, b"ready\n")
            os.close(args.ready_fd)
        elif config.of(settings.DaemonSettings).log == "human":
            show(greeting(daemon.doors, state, person=daemon.has_person()))

    return run(config, state, tcp_optional=args.tcp_optional, on_ready=ready)


def greeting(doors: dict[str, str], state: str, *, person: bool) -> str:
    tcp = doors.get("tcp", "off")
    unset = [] if person else ["Only you can do some things: choose a passphrase with  bascule person set", ""]
    return "\n".join(
        [
            f"Bascule {__version__} is ready.",
            f"  HTTP    {tcp}   (token: {paths.local_token_file(state)})",
            f"  sockets {doors['link']}",
            f"          {doors['http']}",
            "",
            "Let your agents in with  bascule setup claude | codex | gemini  or by hand:",
            paste.lines(state),
            "",
            *unset,
            "Then try, in another terminal:  bascule demo   |   bascule status   |   Ctrl-C here stops it",
        ]
    )


def _up_detached(args: argparse.Namespace) -> int:
    state = state_of(args)
    if running_pid(state) is not None:
        say("bascule: the daemon runs already (`bascule status`)")
        return 0
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "up", "--state-dir", state]
    for name in ("port", "auth", "durability", "policy", "config"):
        if getattr(args, name) is not None:
            command += [f"--{name}", str(getattr(args, name))]
    if args.tcp_optional:
        command.append("--tcp-optional")
    read, write = os.pipe()
    child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [*command, "--log", "json", "--ready-fd", str(write)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(write,),
        start_new_session=True,
        cwd="/",
    )
    os.close(write)
    return _await_ready(args, child, read)


def _await_ready(args: argparse.Namespace, child: "subprocess.Popen[bytes]", read: int) -> int:
    """Until the child says it is ready, or ends; what it complained about is ours to repeat."""
    assert child.stderr is not None
    deadline = time.monotonic() + START_SECONDS
    with os.fdopen(read, "rb") as pipe, child.stderr as errors:
        readable, _, _ = select.select([pipe], [], [], START_SECONDS)
        if readable and pipe.read(6) == b"ready\n":
            if not args.tcp_optional:
                show(f"Bascule {__version__} is ready (pid {child.pid}); `bascule status` shows where it listens")
            return 0
        while child.poll() is None and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if child.poll() is None:
            child.terminate()
            say(f"bascule: the daemon was not ready after {START_SECONDS:.0f} s and was stopped")
            return UNREACHABLE
        lines = [line for line in errors.read().decode(errors="replace").splitlines() if not line.startswith("{")]
        say("\n".join(lines) or f"bascule: the daemon ended with exit code {child.returncode}")
        return child.returncode or UNEXPECTED


# -- status --


def run_status(args: argparse.Namespace) -> int:
    status = ask(args, "daemon.status")
    if args.json:
        show_json(status)
        return 0
    for name, value in _status_lines(status):
        show(f"{name:<10} {value}")
    return 0


def _status_lines(status: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("daemon", f"Bascule {status['version']}, pid {status['pid']}, up {_duration(status['uptimeS'])}"),
        *((door, address) for door, address in status["doors"].items()),
        ("state", f"{status['stateDir']} (durability {status['durability']})"),
        ("policy", f"{status['policy']}, auth {status['auth']}"),
        ("person", "set" if status["person"] else "not set (`bascule person set`)"),
        ("agents", f"{status['agentsOnline']} online of {status['agents']}"),
        ("tickets", f"{status['ticketsOpen']} open of {status['tickets']}"),
        ("ledger", f"{status['ledgerRecords']} records, head {status['ledgerHead'][:16]}"),
    ]
    if stopped := status.get("stopped"):
        why = f": {one_line(stopped['reason'])}" if stopped.get("reason") else ""
        lines.insert(1, ("STOPPED", f"everything, since {stopped['at']} by {stopped['by']}{why}; `bascule resume`"))
    if status.get("ledgerProblem"):
        lines.append(("problem", f"{status['ledgerProblem']}; `bascule doctor` says what to do"))
    if status["version"] != __version__:
        lines.append(("note", f"this command is {__version__}; restart with `bascule down && bascule up -d`"))
    return lines


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


# -- logs --


def run_logs(args: argparse.Namespace) -> int:
    from bascule.cli import tail

    return tail.logs(args, state_of(args))


# -- down --


def running_pid(state: str) -> int | None:
    """Who holds the lock. The lock counts, not the number in the file: a pid alone may be anybody's."""
    try:
        descriptor = os.open(paths.lock_file(state), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(os.pread(descriptor, 4096, 0))
    else:
        return None
    finally:
        os.close(descriptor)


def _pid_in(text: bytes) -> int:
    from gabp import codec

    try:
        return int(codec.decode(text, dict[str, Any])["pid"])
    except (codec.BadJson, KeyError, ValueError):
        # Between taking the lock and writing the note: somebody is there, we just cannot name them.
        return 0


def run_down(args: argparse.Namespace) -> int:
    state = state_of(args)
    pid = running_pid(state)
    if pid is None:
        say("bascule: no daemon runs here")
        return 0
    if not pid:
        say("bascule: a daemon is starting; try again in a moment")
        return CONFLICT
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while running_pid(state) == pid:
        if time.monotonic() > deadline:
            say(f"bascule: pid {pid} has not stopped after {STOP_SECONDS:.0f} s; `bascule logs` may say why")
            return UNEXPECTED
        time.sleep(_POLL_SECONDS)
    show("stopped")
    return 0
