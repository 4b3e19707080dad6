"""`bridge-wrap`: run an agent's program so that it can be written to."""

import argparse
import asyncio
import os
import select
import signal
import sys
from collections.abc import Sequence

from bascule.client.faults import NotRunning
from bascule.foundation import paths
from bascule.foundation.errors import BasculeError
from bascule.local_client import choice
from bascule.local_client.exits import BY_STATUS, UNEXPECTED, WrongUsage
from bascule.local_client.values import agent_id, ticket_id
from bascule.programs.helpers import program, terminal
from bascule.programs.wrap import child, codex_servers, profiles, screen
from bascule.programs.wrap.broker_link import BrokerLink, metadata_here
from bascule.programs.wrap.host_terminal import HostTerminal
from bascule.programs.wrap.recording import Recording
from bascule.programs.wrap.session import Session
from bascule.programs.wrap.spool import Spool
from bascule.programs.wrap.supervisor import Supervisor
from bascule.programs.wrap.turn_state import TurnState

# A program that fills the screen hides what was said before it; any key goes on at once.
READING_SECONDS = 3.0

EXAMPLES = """\
  bridge-wrap --agent Jerry --type codex -- codex
  bridge-wrap --agent Jerry -- claude --continue

The program runs as it would without: keys, colours, size, Ctrl-C, Ctrl-Z and exit code are its own.
While it runs it is the agent Jerry; when a message waits, one line is typed for it, between your lines
and its turns. Messages it has received and not answered are answered for it when it ends.
"""


def main(arguments: Sequence[str]) -> int:
    options = build_parser().parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise WrongUsage("which program? Write it behind `--`", "bridge-wrap --agent Jerry -- codex")
    handle = agent_id(options.agent) if options.agent else choice.environment_handle()
    if handle is None:
        raise WrongUsage("which agent? Pass --agent NAME or set BRIDGE_AGENT_ID")
    if options.ticket:
        ticket_id(options.ticket)
    if options.auto_reply and options.deliver != "payload":
        raise WrongUsage("--auto-reply answers messages that were typed", "add --deliver payload")
    if options.sentinel and not options.auto_reply:
        raise WrongUsage("--sentinel belongs to --auto-reply")
    try:
        return asyncio.run(_wrapped(options, handle, command))
    except BasculeError as error:
        terminal.say(f"bridge-wrap: {error.message}")
        if error.hint:
            terminal.say(f"  next: {error.hint}")
        return BY_STATUS.get(error.status, UNEXPECTED)


def _wait_for_reader() -> None:
    """The key itself stays for the program."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        select.select([sys.stdin], [], [], READING_SECONDS)


async def _wrapped(options: argparse.Namespace, handle: str, command: list[str]) -> int:
    state = paths.state_dir(options.state_dir)
    profile = profiles.choose(options.profile, command, options.type)
    outer = HostTerminal()
    called = os.path.basename(command[0])
    if options.type and profile is not profiles.NOTHING_KNOWN and called not in profile.program:
        terminal.say(f"bridge-wrap: {called} is treated as {profile.name}, by --type; --profile NAME chooses another")
    sees = options.auto_reply or (profile.row is not None and screen.is_there())
    transcript = screen.Transcript(*outer.size()) if sees else None
    if profile.row is not None and transcript is None:
        terminal.say(f"bridge-wrap: no bell is typed for {profile.name}: its screen cannot be read without pyte")
        terminal.say("  next: pip install 'bascule[wrap]'; until then its hooks and MCP tools tell it of messages")
        _wait_for_reader()
    type_ = options.type or profile.type or called
    groups = [agent_id(each) for each in options.group] if options.group else None
    post = BrokerLink(state, handle, type_=type_, metadata=metadata_here(), groups=groups)
    joined = await _joined(post, start_daemon=not options.no_start)
    turns = TurnState(state, handle)
    recording = Recording(options.record, *outer.size(), command[0]) if options.record else None
    spool = None if options.spool == "off" else Spool(state, handle, options.spool)
    try:
        environment = await _environment(options, post, state, joined=joined)
        if spool is not None:
            environment["BRIDGE_SPOOL"] = spool.path
        started = child.start(
            _as_agent(command, profile, environment),
            environment,
            size=outer.size(),
            like=0 if outer.reads_terminal else None,
            # With a terminal in front the output is for it, be it through `| tee`.
            plain=not outer.reads_terminal,
        )
        session = Session(started, outer, profile, transcript)
        session.recording = recording
        try:
            session.open()
            supervisor = Supervisor(session, post, profile, turns=turns, spool=spool, options=options)
            await _until_ended(session, supervisor, joined=joined)
        finally:
            session.close()
            _report_losses(session)
            await post.leave(started.exit_code if started.exit_code is not None else UNEXPECTED)
    finally:
        turns.close()
        if spool is not None:
            spool.close()
        if recording is not None:
            recording.close()
    return started.exit_code if started.exit_code is not None else UNEXPECTED


def _as_agent(command: list[str], profile: profiles.Profile, environment: dict[str, str]) -> list[str]:
    """The command whose MCP tools are those of the wrapper's agent; where they are not, the person hears it now."""
    is_codex = profile.type == "codex" and os.path.basename(command[0]) in profile.program
    if not is_codex or not profile.is_about(command[1:]):
        return command
    if not codex_servers.passes_identity(environment):
        handle = environment["BRIDGE_AGENT_ID"]
        terminal.say(f"bridge-wrap: the MCP tools in this Codex are not those of {handle}: its settings do not say so")
        terminal.say("  next: `bascule setup codex`, then start it again; until then answer with bridge-reply")
        _wait_for_reader()
    return codex_servers.alone(command, environment)


async def _joined(post: BrokerLink, *, start_daemon: bool) -> bool:
    try:
        await post.join(start_daemon=start_daemon)
    except NotRunning as away:
        # The person wants their program; that others can write to it comes second.
        terminal.say(f"bridge-wrap: {away.message}")
        terminal.say(f"  going on without it; {post.handle} joins when it runs")
        return False
    return True


async def _until_ended(session: Session, supervisor: Supervisor, *, joined: bool) -> None:
    serving = asyncio.ensure_future(supervisor.run(joined=joined))
    ended = asyncio.ensure_future(session.ended.wait())
    try:
        await asyncio.wait((ended, serving), return_when=asyncio.FIRST_COMPLETED)
        # Should the broker's side break, the person's program goes on; the reason is told when it has ended.
        await ended
    finally:
        ended.cancel()
        if not serving.done():
            serving.cancel()
            await asyncio.wait((serving,))
        elif not serving.cancelled() and (fault := serving.exception()) is not None:
            terminal.say(f"bridge-wrap: stopped serving {supervisor.handle}: {_first(fault)}\r")


def _report_losses(session: Session) -> None:
    if session.lost_output is not None and session.child.exit_code != child.KILLED + signal.SIGPIPE:
        terminal.say(f"bridge-wrap: the program's output is not complete: {session.lost_output}")
    if session.recording is not None and session.recording.fault is not None:
        terminal.say(f"bridge-wrap: the recording is not complete: {session.recording.fault}")


def _first(fault: BaseException) -> str:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return str(fault) or type(fault).__name__


async def _environment(options: argparse.Namespace, post: BrokerLink, state: str, *, joined: bool) -> dict[str, str]:
    """The program's: who it is and where the broker is, for every helper that it or its shells run."""
    environment = dict(os.environ)
    for name in ("BRIDGE_AGENT_TOKEN", "BRIDGE_TICKET", "BRIDGE_BROKER_URL"):
        environment.pop(name, None)
    environment["BRIDGE_AGENT_ID"] = post.handle
    # Two processes share the handle: the stdio program that the program may start is not a namesake.
    environment["BRIDGE_WRAPPED"] = post.handle
    if options.state_dir:
        environment["BASCULE_STATE_DIR"] = state
    if token := choice.stored_token(choice.own_door(state), post.handle):
        environment["BRIDGE_AGENT_TOKEN"] = token
    if options.ticket:
        environment["BRIDGE_TICKET"] = options.ticket
    if joined and (url := await post.broker_url()):
        environment["BRIDGE_BROKER_URL"] = url
    return environment


def build_parser() -> argparse.ArgumentParser:
    parser = program.parser("bridge-wrap", "Run a program as an agent that others can write to.", EXAMPLES)
    parser.add_argument("--agent", metavar="NAME", help="the handle (default: BRIDGE_AGENT_ID)")
    parser.add_argument("--type", metavar="TYPE", help="what kind of agent (default: the program's name)")
    parser.add_argument("--group", metavar="NAME", action="append", help="share this group's queue; may be repeated")
    parser.add_argument("--profile", metavar="NAME", help="what is known about the program (default: by its name)")
    parser.add_argument("--ticket", metavar="ID", help="the message it is started for, as BRIDGE_TICKET")
    parser.add_argument(
        "--deliver",
        choices=("bell", "payload"),
        default="bell",
        help="type a one-line notice, or the message itself where the program takes pastes (default: bell)",
    )
    parser.add_argument(
        "--auto-reply",
        action="store_true",
        help="send what the program shows after a typed message back as its reply; needs --deliver payload",
    )
    parser.add_argument("--sentinel", metavar="TEXT", help="with --auto-reply: the answer ends where this is shown")
    parser.add_argument(
        "--spool", metavar="DIR", help="where helpers in shells without sockets leave requests; `off`: nowhere"
    )
    parser.add_argument(
        "--record", metavar="FILE", help="write down what is shown and typed (asciicast), for a profile"
    )
    parser.add_argument("--no-start", action="store_true", help="do not start the daemon when none runs")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="what to run")
    return parser


def _fill_standard_descriptors() -> None:
    """Were 0, 1 or 2 closed (`<&-`), the next socket would get the number, and be read as somebody's keys."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= 2:
        # Inherited by the program as any other 0, 1 and 2 would be, until its terminal takes their place.
        os.set_inheritable(opened, True)
    os.close(opened)


def bridge_wrap() -> int:
    _fill_standard_descriptors()
    return program.run("bridge-wrap", main)


if __name__ == "__main__":
    sys.exit(bridge_wrap())
