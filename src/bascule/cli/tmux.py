"""`bascule tmux launch | panes | ring`: agents in tmux panes."""

import argparse
import asyncio
import os
import shutil
import sys

from bascule.cli.talk import add_json, add_state_dir
from bascule.foundation import paths
from bascule.local_client.exits import DoorError, WrongUsage
from bascule.local_client.values import agent_id
from bascule.programs.helpers.terminal import say, show, show_json, show_table
from bascule.terminals.tmux import AGENT_OPTION, Tmux, TmuxFailed

SESSION = "bascule"


class NoTmux(DoorError):
    """tmux is missing, or refuses."""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    tmux = commands.add_parser("tmux", help="start agents in tmux panes, list them, ring in them")
    verbs = tmux.add_subparsers(metavar="VERB", required=True)
    launch = verbs.add_parser(
        "launch",
        help="open a pane with an agent's program in the wrapper",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=(
            "examples:\n  bascule tmux launch --agent Jerry -- codex\n"
            "  bascule tmux launch --agent Spock --split -- claude --continue\n"
        ),
    )
    launch.add_argument("--agent", metavar="NAME", required=True, help="the handle")
    launch.add_argument("--type", metavar="TYPE", help="what kind of agent (default: the program's name)")
    launch.add_argument("--session", metavar="NAME", help=f"the tmux session (default: this one, else {SESSION})")
    launch.add_argument("--split", action="store_true", help="beside this pane instead of in a new window")
    launch.add_argument("--deliver", choices=("bell", "payload"), help="as bridge-wrap")
    launch.add_argument("--auto-reply", action="store_true", help="as bridge-wrap")
    launch.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="what to run")
    launch.set_defaults(run=run_launch)
    panes = verbs.add_parser("panes", help="panes that were launched for agents")
    add_json(panes)
    panes.set_defaults(run=run_panes)
    ring = verbs.add_parser(
        "ring", help="ring in the panes of registered agents that nobody wrapped, and watch whether they live"
    )
    ring.set_defaults(run=run_ring)
    for verb in (launch, panes, ring):
        verb.add_argument("--socket", metavar="PATH", help="the tmux server's socket (default: tmux's own choice)")
        add_state_dir(verb)


def run_launch(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise WrongUsage("which program? Write it behind `--`", "bascule tmux launch --agent Jerry -- codex")
    handle = agent_id(args.agent)
    tmux = Tmux(args.socket)
    try:
        pane = _open(tmux, args, handle, _wrapped(args, handle, command))
    except TmuxFailed as fault:
        raise NoTmux(
            f"tmux: {fault}", "`bascule doctor` says what is installed; tmux itself: apt install tmux"
        ) from None
    session = tmux.run("display-message", "-p", "-t", pane, "#{session_name}").strip()
    show(f"{handle} runs in pane {pane}; look at it with: tmux attach -t {session}")
    return 0


def _wrapped(args: argparse.Namespace, handle: str, command: list[str]) -> list[str]:
    words = [_beside("bridge-wrap"), "--agent", handle]
    # In words: the pane has the environment of the tmux server, not ours.
    if (state := paths.state_dir(args.state_dir)) != paths.default_state_dir():
        words += ["--state-dir", state]
    for option in ("type", "deliver"):
        if value := getattr(args, option):
            words += [f"--{option}", value]
    if args.auto_reply:
        words.append("--auto-reply")
    return [*words, "--", *command]


def _beside(name: str) -> str:
    """Our own helper, not whatever the pane's PATH finds."""
    path = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), name)
    beside_python = os.path.join(os.path.dirname(sys.executable), name)
    found = next((each for each in (path, beside_python) if os.access(each, os.X_OK)), None) or shutil.which(name)
    if found is None:
        raise NoTmux(f"{name} is not installed beside bascule", "install the package again")
    return found


def _open(tmux: Tmux, args: argparse.Namespace, handle: str, words: list[str]) -> str:
    """A pane with the wrapper in it. Its program is given as words: no shell reads them."""
    # A program that ends at once must leave its last words readable, so the pane says how it ended.
    answer = ("-P", "-F", "#{pane_id}", "-c", os.getcwd())
    here = os.environ.get("TMUX_PANE") if os.environ.get("TMUX") and not args.socket else None
    if args.split:
        if here is None:
            raise WrongUsage("--split needs a pane to split", "run it inside tmux, or leave --split out")
        pane = tmux.run("split-window", "-d", "-t", here, *answer, "--", *words)
    elif here is not None and args.session is None:
        pane = tmux.run("new-window", "-d", "-n", handle, *answer, "--", *words)
    else:
        session = args.session or SESSION
        try:
            tmux.run("has-session", "-t", f"={session}")
        except TmuxFailed:
            pane = tmux.run(
                "new-session", "-d", "-s", session, "-n", handle, "-x", "160", "-y", "50", *answer, "--", *words
            )
        else:
            pane = tmux.run("new-window", "-d", "-t", f"={session}:", "-n", handle, *answer, "--", *words)
    pane = pane.strip()
    tmux.run("set-option", "-p", "-t", pane, AGENT_OPTION, handle)
    return pane


def run_panes(args: argparse.Namespace) -> int:
    try:
        found = [pane for pane in Tmux(args.socket).panes() if pane.agent]
    except TmuxFailed as fault:
        raise NoTmux(f"tmux: {fault}") from None
    if args.json:
        fields = ("id", "agent", "session", "command", "cwd", "dead")
        show_json([{field: getattr(pane, field) for field in fields} for pane in found])
    elif found:
        rows = [(pane.agent, pane.id, pane.session, pane.command, pane.cwd) for pane in found]
        show_table(("AGENT", "PANE", "SESSION", "RUNS", "DIRECTORY"), rows)
    else:
        show("no pane was launched for an agent; start one with: bascule tmux launch --agent Jerry -- codex")
    return 0


def run_ring(args: argparse.Namespace) -> int:
    from bascule.programs.wrap.panes import ring_panes

    say("ringing in the panes of registered agents; Ctrl-C ends it")
    asyncio.run(ring_panes(paths.state_dir(args.state_dir), Tmux(args.socket), say))
    return 0
