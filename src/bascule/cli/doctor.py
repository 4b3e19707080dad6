"""`bascule doctor`: what this machine can do, what is missing, and what to do about it.

It looks and measures; it changes nothing but one temporary file for the disk's speed.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from bascule import __version__
from bascule.cli.checks import daemon, machine
from bascule.cli.checks.patient import Check, Mark, Patient, Verdict, fail, info
from bascule.foundation import paths
from bascule.foundation.text import visible
from bascule.local_client.values import encode

# Of the machine and the daemon itself. Those of the bridges follow.
CHECKS: tuple[Check, ...] = (
    Check("python", machine.check_python),
    Check("packages", machine.check_packages),
    Check("mcp", machine.check_mcp),
    Check("sqlite", machine.check_sqlite),
    Check("settings", daemon.check_settings),
    Check("home", daemon.check_home),
    Check("state directory", daemon.check_state_dir),
    Check("sockets", daemon.check_sockets),
    Check("daemon", daemon.check_daemon),
    Check("port", daemon.check_port),
    Check("console", daemon.check_console),
    Check("token", daemon.check_token),
    Check("loopback", machine.check_loopback),
    Check("disk", machine.check_disk),
    Check("disk speed", machine.check_sync),
    Check("memory", machine.check_memory),
    Check("open files", machine.check_open_files),
    Check("commands", machine.check_helpers),
    Check("stopped", daemon.check_stopped),
    Check("person", daemon.check_person),
    Check("policy", daemon.check_policy),
    Check("ledger", daemon.check_ledger),
    Check("moved aside", daemon.check_aside),
    Check("clock", machine.check_clock),
)
# Nothing fails without them; a person who wants the named thing looks for the line.
PROGRAMS = (
    ("claude", "Claude Code, an agent that talks to Bascule through `bascule mcp`"),
    ("codex", "Codex, an agent that talks to Bascule through `bascule mcp`"),
    ("gemini", "Gemini CLI, an agent that talks to Bascule through `bascule mcp`"),
    ("tmux", "rings for an agent in its pane: bascule tmux"),
)


class Finding(NamedTuple):
    name: str
    verdict: Verdict


def bridge_checks() -> tuple[Check, ...]:
    """None where a package is missing, which is a finding of its own."""
    try:
        from bascule.bridge_list import BRIDGES
        from bascule.kernel.declared import named
    except ImportError:
        return ()
    return tuple(check for each in BRIDGES if each.checked_by for check in named(each.checked_by))


def examine(patient: Patient) -> Iterator[Finding]:
    for name, look in (*CHECKS, *bridge_checks()):
        try:
            verdict = look(patient)
        except OSError as error:
            verdict = fail(f"could not be looked at: {error}", "see whether the file and its folder are yours")
        yield Finding(name, verdict)
    for name, use in PROGRAMS:
        yield Finding(name, info(f"{shutil.which(name, path=patient.path) or 'not found'}: {use}"))


def lines(findings: list[Finding], *, colour: bool) -> Iterator[str]:
    paint = {Mark.OK: "32", Mark.INFO: "2", Mark.WARN: "33", Mark.FAIL: "1;31"}
    width = max(len(name) for name, _ in findings)
    for name, (mark, what, fix) in findings:
        shown = f"\x1b[{paint[mark]}m{mark:<4}\x1b[0m" if colour else f"{mark:<4}"
        yield f"{shown}  {name:<{width}}  {visible(what)}"
        if fix:
            yield f"{'':4}  {'':<{width}}  -> {visible(fix)}"
    marks = [finding.verdict.mark for finding in findings]
    warned = marks.count(Mark.WARN)
    yield ""
    failed = marks.count(Mark.FAIL) or "nothing"
    yield f"{failed} failed, {warned or 'no'} warning{'' if warned == 1 else 's'}"


def as_dict(findings: list[Finding]) -> dict[str, Any]:
    return {
        "version": __version__,
        "ok": all(finding.verdict.mark is not Mark.FAIL for finding in findings),
        "checks": [
            {"name": name, "result": mark, "message": what} | ({"fix": fix} if fix else {})
            for name, (mark, what, fix) in findings
        ],
    }


def run(patient: Patient, *, as_json: bool = False) -> int:
    findings = list(examine(patient))
    report = as_dict(findings)
    if as_json:
        print(encode(report).decode())
    else:
        colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print("\n".join(lines(findings, colour=colour)))
    return 0 if report["ok"] else 1


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="say what this machine can do, what is missing and how to fix it",
        description="Look at this machine; exit code 0 when nothing failed, else 1.",
    )
    # SUPPRESS: the same option before the command's name must not be overwritten by a default here.
    parser.add_argument("--state-dir", default=argparse.SUPPRESS, help="where the daemon keeps its things")
    parser.add_argument("--port", type=int, default=argparse.SUPPRESS, help="the TCP port to look at; 0 is off")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=main)


def main(args: argparse.Namespace) -> int:
    patient = Patient(
        state=paths.state_dir(getattr(args, "state_dir", None)),
        port=getattr(args, "port", None),
        path=os.environ.get("PATH", os.defpath),
        config_dir=paths.config_dir(getattr(args, "config_dir", None)),
        config_file=getattr(args, "config", None),
        environment=os.environ,
    )
    return run(patient, as_json=args.json)
