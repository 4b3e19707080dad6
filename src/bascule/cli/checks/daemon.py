"""Our own things: the state directory, its sockets, the daemon, its port and token, the person."""

import errno
import os
import socket
import stat

from bascule import __version__
from bascule.cli.checks.patient import Daemon, Patient, Verdict, ask_daemon, fail, info, ok, warn
from bascule.daemon import aside, ground
from bascule.foundation import paths
from bascule.foundation.agreement import DEFAULT_PORT, PROTOCOL_VERSION
from bascule.foundation.errors import BasculeError
from bascule.local_client.exits import DoorError, NotRunning

MAX_PORT = 65535
# What an HTTP server's head needs at most to show that it is ours.
MAX_PROBE_BYTES = 4096


def check_state_dir(patient: Patient) -> Verdict:
    if not os.path.lexists(patient.state):
        if not os.access(patient.nearest, os.W_OK | os.X_OK):
            return fail(
                f"cannot make {patient.state}: {patient.nearest} is not yours to write",
                "name another with --state-dir",
            )
        return ok(f"{patient.state} will be made at the first start")
    try:
        ground.check_parents(patient.state)
        paths.check_private_dir(patient.state)
        ground.check_contents(patient.state)
    except paths.UnsafePlace as error:
        return _unsafe(error)
    return ok(f"{patient.state} is yours alone")


def check_home(patient: Patient) -> Verdict:
    """Programs that start without our `$HOME` meet the daemon of the passwd entry's place."""
    home, theirs = paths.home(), paths.passwd_home()
    other = paths.default_state_dir(theirs)
    if os.path.realpath(home) == os.path.realpath(theirs) or patient.state != paths.default_state_dir():
        return ok(home)
    try:
        found = ask_daemon(other, patient.answer_seconds)
    except DoorError:
        return ok(f"{home}, as HOME says; the passwd entry says {theirs}, and no daemon runs there")
    return warn(
        f"HOME is {home}, and another daemon of yours (process {found.status.get('pid', 'unknown')}) runs in {other}, "
        "where programs without this HOME look",
        f"stop it with `bascule down --state-dir '{other}'`, or unset HOME to use it",
    )


def check_aside(patient: Patient) -> Verdict:
    there = aside.moved_aside(patient.state)
    what = "; ".join(f"{each.path} ({each.size() / 1e6:.1f} MB): {each.what}" for each in there)
    how = "; ".join(each.how for each in there)
    if not all(each.finished for each in there):
        return warn(what, how)
    return info(what, how) if there else ok("nothing is kept in a format that this Bascule does not read")


def check_sockets(patient: Patient) -> Verdict:
    for path in (of(patient.state) for of in (paths.link_socket, paths.http_socket, paths.stop_socket)):
        size = len(os.fsencode(path))
        if size > paths.MAX_SOCKET_PATH_BYTES:
            what = f"{path} has {size} bytes; a socket's path may have {paths.MAX_SOCKET_PATH_BYTES}"
            return fail(what, "choose a shorter --state-dir")
        if os.path.lexists(path):
            mode = os.lstat(path).st_mode
            if not stat.S_ISSOCK(mode):
                return fail(f"{path} is not a socket", f"move it away: mv '{path}' '{path}.old'")
            if mode & 0o077:
                return fail(f"{path} is open to others (mode {stat.S_IMODE(mode):04o})", f"run: chmod 600 '{path}'")
    return ok("the paths are short enough and closed to others")


def check_settings(patient: Patient) -> Verdict:
    settings = patient.settings
    if settings is None:
        return info("not looked at")
    if isinstance(settings, BasculeError):
        return fail(settings.message, settings.hint or "docs/reference/config.md lists the keys")
    from bascule.daemon.config import DaemonSettings

    own = settings.of(DaemonSettings)
    return ok(f"policy {own.policy}, durability {own.durability}, auth {own.auth}")


def check_daemon(patient: Patient) -> Verdict:
    daemon = patient.daemon
    if isinstance(daemon, NotRunning):
        return info("not running", "start it with `bascule up -d`")
    if isinstance(daemon, DoorError):
        return fail(daemon.message, daemon.hint or "restart it with `bascule down && bascule up -d`")
    restart = "restart the daemon with `bascule down && bascule up -d`, or reinstall so that both match"
    if daemon.protocol != PROTOCOL_VERSION:
        theirs = f"Bascule {daemon.version} with protocol {daemon.protocol}"
        return fail(f"it is {theirs}, this program {__version__} with {PROTOCOL_VERSION}", restart)
    if daemon.version != __version__:
        return warn(
            f"it is Bascule {daemon.version} and this program {__version__}; they understand each other",
            restart,
        )
    return ok(f"Bascule {daemon.version} answers, process {daemon.status.get('pid', 'unknown')}")


def check_port(patient: Patient) -> Verdict:
    running = not isinstance(patient.daemon, NotRunning)
    door = _tcp_door(patient)
    port = patient.port if patient.port is not None else int(door.rpartition(":")[2])
    if port == 0:
        return info("TCP is off; agents come in by the sockets")
    if not 0 < port <= MAX_PORT:
        return fail(f"{port} is not a port", f"choose one from 1 to {MAX_PORT}, or 0 for none")
    with socket.socket(socket.AF_INET) as probe:
        # As the daemon does it: closed connections of the last run do not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return fail(f"127.0.0.1:{port} cannot be used: {error.strerror}", "choose another with --port")
        else:
            if running:
                return warn(
                    f"the daemon runs without 127.0.0.1:{port}",
                    "restart it with `bascule down && bascule up -d`",
                )
            return ok(f"127.0.0.1:{port} is free")
    if door == f"https://127.0.0.1:{port}":
        # Asking it would need its certificate; the daemon says that it holds this port, and it is held.
        return ok(f"the daemon listens at {door}")
    if not _answers_as_bascule(port, patient.answer_seconds):
        fix = f"find it with `ss -ltnp sport = :{port}`, or give Bascule another with --port"
        return fail(f"127.0.0.1:{port} belongs to another program", fix)
    if not running:
        fix = "stop that one, or give this one another with --port"
        return fail(f"127.0.0.1:{port} belongs to a Bascule of another user or state directory", fix)
    return ok(f"the daemon answers at 127.0.0.1:{port}")


def _tcp_door(patient: Patient) -> str:
    """What the daemon says, or would open: `http://127.0.0.1:5050`; port 0 when there is none."""
    if isinstance(patient.daemon, Daemon):
        doors = patient.daemon.status.get("doors")
        address = str(doors.get("tcp", "")) if isinstance(doors, dict) else ""
        return address if address.rpartition(":")[2].isdigit() else "http://127.0.0.1:0"
    settings = patient.settings
    if settings is None or isinstance(settings, BasculeError):
        port = DEFAULT_PORT
    else:
        from bascule.daemon.config import DaemonSettings

        port = settings.of(DaemonSettings).port
    return f"http://127.0.0.1:{port}"


def _answers_as_bascule(port: int, seconds: float) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as probe:
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % port)
            head = b""
            while b"\r\n\r\n" not in head and len(head) < MAX_PROBE_BYTES and (piece := probe.recv(MAX_PROBE_BYTES)):
                head += piece
    except OSError:
        return False
    return b"\r\nbascule-version:" in head.lower()


def check_console(patient: Patient) -> Verdict:
    if not isinstance(patient.daemon, Daemon):
        return info("unknown while the daemon does not answer")
    status = patient.daemon.status
    if problem := status.get("consoleProblem"):
        return warn(
            str(problem),
            "stop that program, or set console_port (a number, or off), then `bascule down && bascule up -d`",
        )
    doors = status.get("doors")
    address = doors.get("console") if isinstance(doors, dict) else None
    if address is None:
        return info("off; agents do not need it", "console_port = 5051 in config.toml turns it on")
    return ok(f"{address}, at 127.0.0.1 and ::1: `bascule console` opens it")


def check_token(patient: Patient) -> Verdict:
    path = paths.local_token_file(patient.state)
    try:
        token = paths.read_private_file(path).strip()
    except FileNotFoundError:
        return info("no local.token yet; the daemon makes it at its first start with a TCP port")
    except paths.UnsafePlace as error:
        return _unsafe(error)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return fail(f"{path} is a symbolic link", "remove it; the daemon makes a new one at its next start")
        raise
    if not token:
        return fail(f"{path} is empty", "remove it; the daemon makes a new one at its next start")
    return ok("local.token is yours alone")


def check_person(patient: Patient) -> Verdict:
    if not isinstance(patient.daemon, Daemon):
        return info("unknown while the daemon does not answer")
    if not patient.daemon.person_is_set:
        return info("no passphrase is set: nobody can revoke or approve", "set one with `bascule person set`")
    return ok("a passphrase is set")


def check_stopped(patient: Patient) -> Verdict:
    if not isinstance(patient.daemon, Daemon):
        return info("unknown while the daemon does not answer")
    stopped = patient.daemon.status.get("stopped")
    if not isinstance(stopped, dict):
        return ok("nothing is stopped")
    return warn(
        f"everything is stopped since {stopped.get('at')} by {stopped.get('by')}: agents can do nothing",
        "let it begin again with `bascule resume`",
    )


def check_policy(patient: Patient) -> Verdict:
    if not isinstance(patient.daemon, Daemon) or not patient.daemon.policy:
        return info("unknown while the daemon does not answer")
    policy = patient.daemon.policy
    if problem := policy.get("problem"):
        return fail(str(problem), "mend policy.toml in the config directory: `bascule policy test` checks it")
    if policy.get("pending"):
        return warn(
            f"{policy.get('file')} was edited and is not in force",
            "look and put it in force with `bascule policy accept`",
        )
    return ok(f"{policy.get('name')} is in force, digest {str(policy.get('digest'))[:16]}")


def check_ledger(patient: Patient) -> Verdict:
    if not isinstance(patient.daemon, Daemon):
        return info("unknown while the daemon does not answer", "`bascule ledger verify` looks without it")
    problem = patient.daemon.status.get("ledgerProblem")
    if problem:
        anchors = paths.anchors_file(patient.state)
        return warn(
            str(problem),
            "messages, tokens and the policy may be as they were then. If you put a backup back, take leave of the old "
            f"anchors: mv '{anchors}' '{anchors}.old', then `bascule down && bascule up -d`. If you did not, "
            "`bascule ledger verify` shows what is missing",
        )
    return ok(f"it goes on from its anchors, {patient.daemon.status.get('ledgerRecords', 0)} records")


def _unsafe(error: paths.UnsafePlace) -> Verdict:
    # Its sentences are "what is wrong; what to do".
    what, _, fix = str(error).partition("; ")
    return fail(what, fix)
