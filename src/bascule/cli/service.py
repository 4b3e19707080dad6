"""`bascule service`: let the machine's own service manager keep the daemon running.

A systemd user unit on Linux, a launchd agent on macOS. The file is shown before anything is started, so
that nothing runs at login that its owner has not seen.
"""

import argparse
import os
import plistlib
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bascule.foundation import paths

UNIT = "bascule.service"
LABEL = "bascule.daemon"
# The daemon answers what it holds and closes its store in about a second; a slow disk gets time.
STOP_SECONDS = 30
# A service manager that does not answer for this long will not answer.
MANAGER_SECONDS = 60
# Where the daemon keeps its things when the user said so; the service must look in the same places.
KEPT_VARIABLES = ("BASCULE_STATE_DIR", "BASCULE_CONFIG_DIR")


class CannotInstall(Exception):
    """No service manager that we know, or a path it cannot hold."""


@dataclass(frozen=True, kw_only=True)
class Service:
    """One service manager: its file, and the commands that make it follow the file."""

    file: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    # The file is in force from the next login on, without starting anything now.
    enable: tuple[tuple[str, ...], ...]
    # The file changed under a service that runs.
    restart: tuple[tuple[str, ...], ...]
    # Before the file goes: while it runs, and while it does not.
    stop: tuple[tuple[str, ...], ...]
    disable: tuple[tuple[str, ...], ...]
    # After the file is gone.
    forget: tuple[tuple[str, ...], ...]
    # Succeeds while the service runs.
    running: tuple[str, ...]
    # Succeeds where there is such a manager for this user.
    there: tuple[str, ...]
    hint: str


def command(python: str) -> list[str]:
    """How the manager starts the daemon: by the full path of a Python, whatever PATH says at login.

    With -P: it starts in the user's home, and a `json.py` there must not be imported.
    """
    return [python, "-P", "-m", "bascule.cli.start", "up", "--log", "json"]


def for_platform(home: Path, environment: dict[str, str], platform: str = sys.platform) -> Service:
    if platform == "darwin":
        return launchd(home, environment)
    if platform.startswith("linux"):
        return systemd(home, environment)
    raise CannotInstall(f"there is no service manager we know on {platform}; start it with: bascule up -d")


def systemd(home: Path, environment: dict[str, str], python: str = sys.executable) -> Service:
    # systemd: "Executable name contains special characters", and the unit does not start.
    if any(character in python for character in "\"'\\"):
        raise CannotInstall(f"systemd takes no quotes or backslashes in a program's path: {python}; install elsewhere")
    lines = [
        "# Written by `bascule service install`; it is replaced by the next one.",
        "[Unit]",
        "Description=Bascule, the local daemon through which AI agents act",
        # A daemon that cannot start (its place is taken, a broken store) is not hammered for ever.
        "StartLimitIntervalSec=60",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=exec",
        "ExecStart=" + " ".join(_systemd_word(word) for word in command(python)),
        *(f"Environment={_systemd_word(f'{name}={value}')}" for name, value in sorted(environment.items())),
        "Restart=on-failure",
        "RestartSec=2",
        "KillSignal=SIGTERM",
        f"TimeoutStopSec={STOP_SECONDS}",
        # What fits a daemon that starts agents' commands: namespaces and syscall filters are left to the
        # sandbox around each command, which an outer one would break.
        "NoNewPrivileges=yes",
        "UMask=0077",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    ]
    control = ("systemctl", "--user")
    reload = (*control, "daemon-reload")
    return Service(
        file=home / ".config" / "systemd" / "user" / UNIT,
        text="\n".join(lines),
        start=(reload, (*control, "enable", "--now", UNIT)),
        enable=(reload, (*control, "enable", UNIT)),
        restart=(reload, (*control, "enable", UNIT), (*control, "restart", UNIT)),
        stop=((*control, "disable", "--now", UNIT),),
        disable=((*control, "disable", UNIT),),
        forget=(reload,),
        running=(*control, "is-active", "--quiet", UNIT),
        there=(*control, "show-environment"),
        hint="It starts at login; to start it with the machine: loginctl enable-linger",
    )


def launchd(home: Path, environment: dict[str, str], python: str = sys.executable) -> Service:
    file = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    log = str(home / "Library" / "Logs" / "bascule.log")
    agent: dict[str, object] = {
        "Label": LABEL,
        "ProgramArguments": command(python),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ExitTimeOut": STOP_SECONDS,
        "Umask": 0o077,
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    if environment:
        agent["EnvironmentVariables"] = environment
    domain = f"gui/{os.getuid()}"
    start = ("launchctl", "bootstrap", domain, str(file))
    stop = ("launchctl", "bootout", f"{domain}/{LABEL}")
    return Service(
        file=file,
        text=plistlib.dumps(agent).decode(),
        start=(start,),
        # launchd reads the folder at login by itself.
        enable=(),
        restart=(stop, start),
        stop=(stop,),
        disable=(),
        forget=(),
        running=("launchctl", "print", f"{domain}/{LABEL}"),
        there=("launchctl", "list"),
        hint="It starts at login.",
    )


def _systemd_word(text: str) -> str:
    """One word of a unit file: specifiers (`%h`) and C escapes are systemd's, not ours."""
    if not text.isprintable():
        raise CannotInstall(f"systemd cannot hold this path: {text!r}; move it to one without control characters")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if escaped != text or " " in text or "'" in text else text


# -- what the commands do -------------------------------------------------------------------------


def install(service: Service, *, state: str) -> int:
    print(f"# {service.file}\n{service.text}")
    outcome = put_in_force(service, state=state)
    if outcome is None:
        return 1
    print(outcome)
    return 0


def put_in_force(service: Service, *, state: str) -> str | None:
    """Write the file and make the manager follow it: what holds now, or None when it did not."""
    before = _read(service.file)
    if before != service.text:
        service.file.parent.mkdir(parents=True, exist_ok=True)
        paths.write_private_file(str(service.file), service.text)
    running = _succeeds(service.running)
    if running:
        commands, outcome = service.restart, "Bascule runs as a service, restarted with the new file."
        if before == service.text:
            commands, outcome = service.enable, "Bascule runs as a service; nothing has changed."
    elif listens(paths.link_socket(state)):
        commands, outcome = (
            service.enable,
            (
                "A daemon started by hand is running; the service takes its place at the next login. "
                "To change over now: bascule down && bascule service install"
            ),
        )
    else:
        commands, outcome = service.start, f"Bascule runs as a service. {service.hint}"
    return outcome if _run_all(commands) else None


def uninstall(service: Service) -> int:
    if _read(service.file) is None:
        print(f"Nothing is installed: there is no {service.file}")
        return 0
    forgotten = take_down(service)
    print(f"Removed {service.file}. Messages and settings stay; `bascule up -d` starts the daemon by hand.")
    return 0 if forgotten else 1


def take_down(service: Service) -> bool:
    """Stop it and remove its file; whether the manager took it."""
    stopped = _run_all(service.stop if _succeeds(service.running) else service.disable)
    service.file.unlink(missing_ok=True)
    return stopped and _run_all(service.forget)


def answers(service: Service) -> bool:
    return _succeeds(service.there)


def is_current(service: Service) -> bool:
    """Its file is there, as this version writes it."""
    return _read(service.file) == service.text


def status(service: Service) -> int:
    """0 while the service runs, 1 when it is installed and does not, 3 when it is not installed."""
    there = _read(service.file)
    if there is None:
        print("not installed; install it with: bascule service install")
        return 3
    print(f"installed: {service.file}")
    if there != service.text:
        print("the file differs from what this version would write; renew it with: bascule service install")
    if _succeeds(service.running):
        print("running")
        return 0
    print("not running; what the service manager knows: " + " ".join(service.running).replace(" --quiet", ""))
    return 1


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None


def listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _manager_environment() -> dict[str, str]:
    """Agent clients strip `XDG_*` from what they start, and `systemctl --user` needs this one."""
    environment = dict(os.environ)
    runtime = f"/run/user/{os.getuid()}"
    if "XDG_RUNTIME_DIR" not in environment and Path(runtime).is_dir():
        environment["XDG_RUNTIME_DIR"] = runtime
    return environment


def _run(argv: tuple[str, ...]) -> tuple[int, str]:
    """The exit code and what was said; 127 when there is no such program."""
    program = shutil.which(argv[0])
    if program is None:
        return 127, f"{argv[0]} is not on PATH"
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, the program found on the user's own PATH
            [program, *argv[1:]],
            env=_manager_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=MANAGER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"{argv[0]} did not answer in {MANAGER_SECONDS} s"
    return done.returncode, done.stdout.strip()


def _succeeds(argv: tuple[str, ...]) -> bool:
    return _run(argv)[0] == 0


def _run_all(commands: tuple[tuple[str, ...], ...]) -> bool:
    """Run them in order; when one fails say which are left for the user to run."""
    for done, argv in enumerate(commands):
        code, output = _run(argv)
        if code == 0:
            continue
        print(f"The service manager did not take it: {output or f'exit code {code}'}", file=sys.stderr)
        print("From a login session of yours, run:", file=sys.stderr)
        for left in commands[done:]:
            print("  " + " ".join(left), file=sys.stderr)
        return False
    return True


# -- mounting -------------------------------------------------------------------------------------


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "service",
        help="run the daemon as a service of yours (systemd, launchd)",
        description="Install, remove or show the service that keeps the daemon running after login.",
    )
    parser.add_argument("action", choices=("install", "uninstall", "status"))
    parser.add_argument("--print", action="store_true", dest="print_only", help="print the file and change nothing")
    parser.set_defaults(run=main)


def environment_of(state_dir: str | None) -> dict[str, str]:
    """What the service is started with, so that it looks where this command looks."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if os.environ.get(name)}
    if state_dir:
        environment["BASCULE_STATE_DIR"] = paths.state_dir(state_dir)
    if (ours := paths.home()) != paths.passwd_home():
        # The manager starts the daemon with the passwd entry's.
        environment["HOME"] = ours
    return environment


def main(args: argparse.Namespace, *, home: Path | None = None, platform: str = sys.platform) -> int:
    chosen = getattr(args, "state_dir", None)
    try:
        service = for_platform(home or Path(paths.passwd_home()), environment_of(chosen), platform)
    except CannotInstall as error:
        print(f"bascule service: {error}", file=sys.stderr)
        return 1
    if args.print_only:
        print(service.text, end="")
        return 0
    if args.action == "install":
        return install(service, state=paths.state_dir(chosen))
    if args.action == "uninstall":
        return uninstall(service)
    return status(service)
