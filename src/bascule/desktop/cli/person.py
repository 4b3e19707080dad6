"""What the person at the machine decides about the desktop as a whole: enable, disable, stop, resume, status."""

import argparse
import os
from typing import Any

from bascule.cli.checks.patient import Mark, Patient
from bascule.cli.person import unlock
from bascule.cli.talk import ask as ask_daemon
from bascule.cli.talk import connect, state_of
from bascule.desktop.cli import checks
from bascule.desktop.cli.ways import ask
from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import UNEXPECTED, WrongUsage
from bascule.programs.helpers.terminal import say, show, show_json

_UNDER_STANDARD = """\
  to see     an agent asks you once for each app; after that it may look at that app again
  to act     it asks each time, showing what, where and a picture; you may say "this app for 10 minutes"
  terminals  what is typed there runs outside the sandbox: no 10 minutes for them
  never      password managers, keyrings, lock screens and Bascule's own windows
"""


def run_enable(args: argparse.Namespace) -> int:
    from bascule.desktop.rows import SESSION_VARIABLES

    environment = {name: os.environ[name] for name in SESSION_VARIABLES if os.environ.get(name)}
    if args.daemon_session:
        environment = {}
    elif not (environment.get("WAYLAND_DISPLAY") or environment.get("DISPLAY")):
        raise WrongUsage(
            "this terminal belongs to no desktop session: neither WAYLAND_DISPLAY nor DISPLAY is set",
            "run it in a terminal on the desktop that agents shall use; or give --daemon-session to use the session "
            "that the daemon was started in",
        )
    with connect(args) as client:
        status = client.call("desktop.status", {})
        if not args.json:
            policy = client.call("policy.show", {}).get("name")
            show(_meaning(environment.get("WAYLAND_DISPLAY") or environment.get("DISPLAY"), policy, status["stopKeys"]))
        unlock(client)
        status = client.call("desktop.enable", {"environment": environment})
        if args.json:
            show_json(status)
            return 0
        show(f"enabled{_of_display(status)}; take it back with: bascule desktop disable")
        show("agents get the tools with: bascule mcp --toolset agents,workspace,desktop")
        return _findings(client.call("desktop.doctor", {}))


def _meaning(display: str | None, policy: str | None, keys: str | None) -> str:
    where = f"on display {visible(display)}" if display else "of the daemon's session"
    rules = (
        _UNDER_STANDARD
        if policy == "standard"
        else "  what they may and what asks is in your policy: bascule policy show\n"
    )
    return (
        f"Agents will be able to see and use the windows {where}:\n{rules}"
        f"  stop       {f'press {visible(keys)}, or ' if keys else ''}run: bascule desktop stop"
    )


def run_disable(args: argparse.Namespace) -> int:
    status = ask_daemon(args, "desktop.disable")
    _show_result(
        args, status, "disabled; no agent sees or uses the desktop, and which apps they might look at is forgotten"
    )
    return 0


def run_stop(args: argparse.Namespace) -> int:
    result = ask(args, "desktop.stop", {}) if args.socket is not None else ask_daemon(args, "desktop.stop")
    _show_result(args, result, f"stopped; {result['aborted']} aborted. Go on with: bascule desktop resume")
    return 0


def run_resume(args: argparse.Namespace) -> int:
    if args.socket is not None:
        result = ask(args, "desktop.resume", {}, confirmed=True)
    else:
        with connect(args) as client:
            unlock(client)
            result = client.call("desktop.resume", {})
    _show_result(args, result, "input is taken again")
    return 0


def run_status(args: argparse.Namespace) -> int:
    status = ask_daemon(args, "desktop.status")
    if args.json:
        show_json(status)
        return 0
    if not status["enabled"]:
        show("not enabled: bascule desktop enable")
        return 0
    stopped = ", STOPPED: nothing reaches the screen until `bascule desktop resume`" if status["stopped"] else ""
    show(f"enabled{_of_display(status)}{stopped}")
    pid = f", process {status['pid']}" if status.get("pid") else ""
    show(f"host       {visible(status['host'])}{pid}")
    if status.get("problem"):
        show(f"problem    {one_line(status['problem'])}")
    show(f"stop keys  {visible(status['stopKeys'] or 'none here; run: bascule desktop stop')}")
    for each in status.get("seen", []):
        show(f"seen       {one_line(each)}")
    return 0


def run_doctor(args: argparse.Namespace) -> int:
    """What the host finds; where there is none yet, what it would find in this terminal's session."""
    if args.socket is not None:
        return _diagnosis(args, ask(args, "desktop.doctor", {"programs": True}))
    with connect(args) as client:
        if client.call("desktop.status", {})["enabled"]:
            return _diagnosis(args, client.call("desktop.doctor", {"programs": True}))
    say("the desktop is not enabled (bascule desktop enable); in this terminal's session the host would find:")
    patient = Patient(state=state_of(args), environment=os.environ)
    verdicts = [check(patient) for check in (checks.check_packages, checks.check_screen, checks.check_accessibility)]
    for verdict in verdicts:
        show(f"{verdict.mark:<4}  {verdict.what}" + (f"\n      -> {verdict.fix}" if verdict.fix else ""))
    return 0 if all(verdict.mark is Mark.OK for verdict in verdicts) else UNEXPECTED


def _diagnosis(args: argparse.Namespace, result: dict[str, Any]) -> int:
    if args.json:
        show_json(result)
        return 0 if result["healthy"] else UNEXPECTED
    return _findings(result)


def _findings(result: dict[str, Any]) -> int:
    for issue, remedy in zip(result["issues"], result["remedies"], strict=True):
        show(f"{visible(issue)}\n  {visible(remedy)}")
    if can := result.get("capabilities"):
        names = ("session", "pictures", "keys", "clicks", "text")
        show("  ".join(f"{name}: {visible(str(can[name]))}" for name in names))
    for note in result.get("notes", ()):
        show(f"note: {visible(note)}")
    if result["healthy"]:
        show("the desktop can be seen and used")
    return 0 if result["healthy"] else UNEXPECTED


def _of_display(status: dict[str, Any]) -> str:
    return f" for {visible(status['display'])}" if status.get("display") else ""


def _show_result(args: argparse.Namespace, result: dict[str, Any], words: str) -> None:
    show_json(result) if args.json else show(words)
