"""`bascule native`, `bascule sessions`: what agents' own tools were seen to do, and what hooks do about it."""

import argparse
import os
from typing import Any

from bascule.cli.talk import add_json, add_state_dir, ask
from bascule.cli.top import ago, state_words
from bascule.foundation.text import one_line, short_id
from bascule.native.protocol import CLIENTS
from bascule.programs.helpers.terminal import show, show_json, show_table

MODES = ("observe", "warn", "enforce")
MAX_EXAMPLE_CHARS = 60
_EPILOG = """\
modes:
  observe    says nothing to the client; everything is recorded and can be undone (the default)
  warn       tells the agent what a rule would have said
  enforce    denies what a rule denies, and asks, or denies where the client cannot ask

What hooks cannot see is in docs/native.md.
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    native = commands.add_parser(
        "native",
        help="agents' own tools: what was seen, and what hooks do",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = native.add_subparsers(metavar="VERB")
    report = verbs.add_parser("report", help="what the rules would have said so far (the default)")
    report.set_defaults(run=run_report)
    report.add_argument("--client", choices=CLIENTS, default=None)
    _common(report, below=True)
    mode = verbs.add_parser("mode", help="choose what hooks of a client do: observe, warn, enforce")
    mode.set_defaults(run=run_mode)
    mode.add_argument("client", choices=CLIENTS)
    mode.add_argument("mode", choices=MODES)
    mode.add_argument("--directory", metavar="DIR", help="only there and beneath (default: everywhere)")
    _common(mode, below=True)
    native.set_defaults(run=run_report, client=None)
    _common(native)
    sessions = commands.add_parser("sessions", help="what agents' clients are doing, and what says so")
    sessions.set_defaults(run=run_sessions)
    _common(sessions)


def _common(parser: argparse.ArgumentParser, *, below: bool = False) -> None:
    add_state_dir(parser, below=below)
    add_json(parser, below=below)


def run_report(args: argparse.Namespace) -> int:
    params = {"client": args.client} if args.client else {}
    report = ask(args, "native.report", params)
    if args.json:
        show_json(report)
        return 0
    if not report["calls"]:
        show("no call of an agent's own tool was seen yet: `bascule on claude` installs hooks")
        return 0
    asks, denies = report.get("wouldAsk", 0), report.get("wouldDeny", 0)
    show(
        f"{report['calls']} calls since {report['since'][:19].replace('T', ' ')}, {report['undoable']} of them undoable"
    )
    if report.get("withoutUndo"):
        show(f"{report['withoutUndo']} calls went on without an undo: `bascule runs list --all` says why")
    show(f"the rules would have asked {asks} times and denied {denies}")
    if report.get("open") or report.get("gaps"):
        show(f"{report['open']} calls never said how they ended, {report['gaps']} were not announced")
    if report.get("rules"):
        rows = [
            (
                each["client"],
                each["verdict"],
                each["rule"],
                str(each["count"]),
                one_line(each["example"], MAX_EXAMPLE_CHARS),
            )
            for each in report["rules"]
        ]
        show_table(("CLIENT", "VERDICT", "RULE", "TIMES", "LAST"), rows)
    _show_modes(report.get("modes", []))
    return 0


def _show_modes(modes: list[dict[str, Any]]) -> None:
    for each in modes:
        show(f"mode of {each['client']} in {each['directory']}: {each['mode']}")


def run_mode(args: argparse.Namespace) -> int:
    params = {"client": args.client, "mode": args.mode}
    if args.directory:
        params["directory"] = os.path.realpath(args.directory)
    view = ask(args, "native.mode", params)
    show_json(view) if args.json else _show_modes([view])
    return 0


def run_sessions(args: argparse.Namespace) -> int:
    sessions = ask(args, "sessions.list")
    if args.json:
        show_json(sessions)
        return 0
    if not sessions:
        show("no session was heard of since the daemon was started")
        return 0
    rows = [
        (
            each["client"],
            short_id(each["session"]),
            each.get("agent", "-"),
            state_words(each),
            f"{each['evidence']}, {ago(each['ageMs'])} ago",
            f"{each.get('pid', '-')} {each.get('process', 'claimed')}",
            each.get("pane", "-"),
            each.get("directory", "-"),
        )
        for each in sessions
    ]
    show_table(("CLIENT", "SESSION", "AGENT", "STATE", "EVIDENCE", "PROCESS", "PANE", "DIRECTORY"), rows)
    for each in sessions:
        if each.get("notice"):
            show(f"{each['client']} {short_id(each['session'])}: {one_line(each['notice'])}")
        if each.get("noUndo"):
            show(f"{each['client']} {short_id(each['session'])}, its last change: {one_line(each['noUndo'])}")
        for line in each.get("steering", ()):
            show(f"{each['client']} {short_id(each['session'])}: [look at it: {one_line(line)}]")
    return 0
