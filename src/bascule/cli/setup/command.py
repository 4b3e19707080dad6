"""`bascule setup claude | codex | gemini | shell`: shows what it would change, asks, and writes it."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from bascule.cli import paste
from bascule.foundation import paths
from bascule.foundation.text import visible
from bascule.local_client.exits import WrongUsage
from bascule.local_client.values import agent_id
from bascule.programs.helpers.terminal import say, show, show_exactly
from bascule.programs.mcp_stdio.tools import by_default, toolsets, toolsets_in

if TYPE_CHECKING:
    from bascule.cli.setup.changes import Change
    from bascule.cli.setup.planning import Plan
    from bascule.cli.setup.record import Record

SHELLS = ("bash", "zsh", "fish")
_ABOUT = {
    "claude": "Claude Code: MCP server, instructions in CLAUDE.md, hooks that announce messages and wake it",
    "codex": "Codex: MCP server, instructions in AGENTS.md, hooks that announce messages",
    "gemini": "Gemini CLI: MCP server, instructions in GEMINI.md",
}
_ALLOWS = {
    "claude": "let it fetch and answer messages without asking you (permissions.allow)",
    "codex": "let it use our tools without asking you; Bascule's policy still decides (default_tools_approval_mode)",
}
_EPILOG = """\
examples:
  bascule setup claude                   for you, in every project
  bascule setup codex --agent Jerry      with a name of its own
  bascule setup claude --toolset agents,workspace,desktop
  bascule setup claude --project .       for this project: .mcp.json, CLAUDE.md, .claude/settings.json
  bascule setup claude --print           only show what belongs where
  bascule setup claude --undo            take it out again
  bascule setup shell bash               aliases and completions

Nothing is written before you have seen the difference and said yes (--yes says it for you).
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    setup = commands.add_parser(
        "setup",
        help="connect Claude Code, Codex or Gemini CLI; aliases and completions for the shell",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whats = setup.add_subparsers(metavar="WHAT", required=True)
    for name, about in _ABOUT.items():
        client = whats.add_parser(name, help=about, description=about)
        client.set_defaults(run=run_client, client=name)
        scope = client.add_mutually_exclusive_group()
        scope.add_argument("--user", action="store_true", help="for you, in every project (the default)")
        scope.add_argument(
            "--project", metavar="DIR", nargs="?", const=".", help="for one project (default: the current directory)"
        )
        client.add_argument("--agent", metavar="NAME", help="the handle (default: made from client and directory)")
        client.add_argument(
            "--toolset",
            metavar="SETS",
            help=f"the tools it gets, of {','.join(toolsets())} (default: {','.join(by_default())})",
        )
        if name in _ALLOWS:
            client.add_argument("--allow-tools", action="store_true", help=_ALLOWS[name])
        client.add_argument("--no-hooks", action="store_true", help="leave the client's hooks alone")
        client.add_argument("--no-instructions", action="store_true", help="leave its instructions file alone")
        client.add_argument("--state-dir", metavar="DIR", help="where the daemon keeps its sockets, if not as usual")
        _add_common(client)
    shells = whats.add_parser("shell", help="aliases (reply, register) and completions for bash, zsh or fish")
    shells.set_defaults(run=run_shell)
    shells.add_argument("shell", nargs="?", choices=SHELLS, help="default: the one you use")
    shells.add_argument("--agent", metavar="NAME", help="`register` means this handle")
    shells.add_argument("--state-dir", metavar="DIR", help=argparse.SUPPRESS)
    _add_common(shells)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--print", dest="only_print", action="store_true", help="show what belongs where; write nothing"
    )
    parser.add_argument("--undo", action="store_true", help="remove what this command added")
    parser.add_argument("--yes", action="store_true", help="write without asking")
    # For tests, and for root who sets up somebody else.
    parser.add_argument("--home", metavar="DIR", help=argparse.SUPPRESS)


def run_client(args: argparse.Namespace) -> int:
    from bascule.cli.setup.clients import CLIENTS
    from bascule.cli.setup.planning import Planner, SetupRequest
    from bascule.cli.setup.record import Record

    project = os.path.abspath(args.project) if args.project is not None else None
    if project is not None and not os.path.isdir(project):
        raise WrongUsage(f"{args.project} is not a directory")
    request = SetupRequest(
        bascule=paste.command(),
        bridge_wait=beside(paste.command(), "bridge-wait"),
        home=home_of(args),
        project=project,
        agent=agent_id(args.agent) if args.agent else None,
        toolsets=toolsets_in(args.toolset) if args.toolset else (),
        state_dir=os.path.abspath(args.state_dir) if args.state_dir else None,
        hooks=not args.no_hooks,
        instructions=not args.no_instructions,
        allow_tools=getattr(args, "allow_tools", False),
        environment=os.environ,
    )
    record = Record(paths.state_dir(args.state_dir))
    planner = Planner(request, args.client, record, undo=args.undo)
    CLIENTS[args.client](planner)
    return apply_plan(args, planner.finish(), record)


def run_shell(args: argparse.Namespace) -> int:
    from bascule.cli.setup import shell
    from bascule.cli.setup.record import Record

    name = args.shell or os.path.basename(os.environ.get("SHELL", ""))
    if name not in SHELLS:
        raise WrongUsage(f"which shell? One of {', '.join(SHELLS)}")
    handle = agent_id(args.agent) if args.agent else None
    script = shell.script(name, os.path.dirname(paste.command()), handle)
    if args.only_print:
        show(script.rstrip("\n"))
        return 0
    record = Record(paths.state_dir(args.state_dir))
    home = home_of(args)
    config = os.environ.get("BASCULE_CONFIG_DIR") or os.path.join(home, ".config", "bascule")
    place = shell.Place(home=home, config=os.path.abspath(config), environment=os.environ)
    return apply_plan(args, shell.plan(name, script, place, record, undo=args.undo), record)


def apply_plan(args: argparse.Namespace, plan: "Plan", record: "Record") -> int:
    if args.only_print:
        for path, piece in plan.pieces:
            show_exactly(f"# {path}\n{piece}")
        return 0
    if not plan.changes:
        show("nothing to change")
        return 0
    show_changes(plan.changes)
    if not args.yes and not agreed("Write this?"):
        show("nothing was written")
        return 1
    write_changes(plan.changes, record, undo=args.undo)
    if getattr(args, "project", None) is not None:
        plan.notes.append(
            "These files name programs of this machine by their full paths: think before you commit them."
        )
    for note in [] if args.undo else plan.notes:
        show(f"- {note}")
    return 0


def show_changes(changes: "list[Change]") -> None:
    for change in changes:
        show(visible(change.diff()) + "\n")


def write_changes(changes: "list[Change]", record: "Record", *, undo: bool) -> None:
    try:
        for change in changes:
            change.write()
            if undo:
                record.forget(change.target)
            else:
                record.add(change.target, change.made)
            show(f"{'removed' if change.new is None else 'wrote'} {change.path}")
    finally:
        # Also of a set-up that got only half-way.
        record.save()


def agreed(question: str, *, details: Callable[[], None] | None = None) -> bool:
    """`details` shows more before the question is put again."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise WrongUsage("nobody can be asked here, so nothing was written", "run it in a terminal, or pass --yes")
    while True:
        say(f"{question} [y/N{', d shows every line' if details is not None else ''}]")
        answer = sys.stdin.readline().strip().lower()
        if details is None or answer not in ("d", "details"):
            return answer in ("y", "yes")
        details()


def home_of(args: argparse.Namespace) -> str:
    return os.path.abspath(args.home or paths.home())


def beside(program: str, name: str) -> str:
    beside = os.path.join(os.path.dirname(program), name)
    return beside if os.path.isabs(program) and os.path.exists(beside) else name
