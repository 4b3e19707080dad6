"""`bascule top`: who is there, what is under way, what waits for the person, what just happened; as it changes.

Quiet: the daemon tells when something happens, nothing is asked on a clock but presence, and only rows that changed
are written again, so that it is pleasant over a slow connection.
"""

import argparse
import asyncio
import os
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from bascule.cli.talk import add_json, add_state_dir, ask, state_of
from bascule.cli.words import last_seen
from bascule.client.client import Client
from bascule.foundation.errors import BasculeError
from bascule.foundation.text import one_line, short_id
from bascule.programs.helpers.terminal import show, show_json

# Events come in bursts; a person reads no faster.
REDRAW_SECONDS = 0.5
# Agents that fall silent make no event at once.
LOOK_SECONDS = 10.0
# What is asked for; the screen shows as many as it has rows.
MAX_TICKETS = 200
MAX_EVENTS = 200
_IN_FLIGHT = ("pending", "delivered")

# One cell of a row; the screen cuts the row.
_CELL_CHARS = 120
_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"


class Snapshot(NamedTuple):
    """Plain JSON values, as the daemon answers them."""

    status: dict[str, Any]
    agents: list[dict[str, Any]]
    tickets: list[dict[str, Any]]
    # None where this daemon knows no approvals.
    approvals: list[dict[str, Any]] | None
    events: list[dict[str, Any]]
    # Of agents' clients, as their hooks say.
    sessions: list[dict[str, Any]] = []


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("top", help="watch agents, messages, approvals and events as they change")
    parser.add_argument("--once", action="store_true", help="print what there is and end")
    add_json(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def state_words(session: dict[str, Any]) -> str:
    """`waits for permission`, `probably idle`."""
    return ("probably " if session.get("probably") else "") + str(session["state"]).replace("_", " ")


def ago(ms: int) -> str:
    seconds = ms // 1000
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def run(args: argparse.Namespace) -> int:
    if args.once or args.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        snapshot = _ask_all(args)
        if args.json:
            show_json(snapshot._asdict())
        else:
            show("\n".join(line.rstrip() for line in render(snapshot, 160, None)))
        return 0
    return asyncio.run(_live(state_of(args)))


# -- what is shown --------------------------------------------------------------------------------


def render(snapshot: Snapshot, width: int, height: int | None) -> list[str]:
    """The rows of the screen. Where they do not fit, events give way first, then agents that are offline."""
    status = snapshot.status
    waiting = [each for each in snapshot.approvals or () if each.get("state", "pending") == "pending"]
    flight = [ticket for ticket in snapshot.tickets if ticket["status"] in _IN_FLIGHT]
    asked = [ticket for ticket in flight if ticket["targetAgent"] == "person"]
    questions = f"   questions {len(asked)}" if asked else ""
    head = (
        f"bascule {status['version']}   agents {status['agentsOnline']}/{status['agents']} online   "
        f"messages {status['ticketsOpen']} open   approvals {len(waiting)} waiting{questions}   q quits"
    )
    if stopped := status.get("stopped"):
        head = f"STOPPED since {_clock(stopped['at'])} by {stopped['by']} (bascule resume)   {head}"
    agents = sorted(snapshot.agents, key=lambda agent: (agent["status"] != "online", agent["agentId"]))
    live = [each for each in snapshot.sessions if each["state"] != "ended"]
    parts = [
        ("WAITING FOR YOU", [*map(_approval, waiting), *map(_question, asked)]),
        (_columns("AGENT", "TYPE", "STATUS", "UNREAD", "WHERE"), [_agent(each) for each in agents]),
        (_columns("SESSION", "STATE", "AGENT", "PANE", "WHERE, AND WHAT SAYS SO"), [_session(each) for each in live]),
        (_columns("MESSAGE", "FROM", "TO", "IS", "SINCE"), [_ticket(each) for each in flight]),
        ("EVENTS", [_event(each) for each in reversed(snapshot.events)]),
    ]
    shown = [(title, rows) for title, rows in parts if rows or not title.startswith(("WAITING FOR YOU", "SESSION"))]
    return [_fit(line, width) for line in _fitted(head, shown, height)]


def _fitted(head: str, parts: list[tuple[str, list[str]]], height: int | None) -> list[str]:
    if height is None:
        room = [len(rows) for _, rows in parts]
    else:
        # Head, and a title and an empty row for each part.
        left = max(0, height - 1 - 2 * len(parts))
        room = []
        for number, (_, rows) in enumerate(parts):
            # The last part, the events, gets what is left; the others at most half of it.
            share = left if number == len(parts) - 1 else left // 2
            room.append(min(len(rows), max(share, 0)))
            left -= room[-1]
    lines = [head]
    for (title, rows), most in zip(parts, room, strict=True):
        hidden = len(rows) - most
        lines += ["", f"{title}   (+{hidden})" if hidden and title != "EVENTS" else title, *rows[:most]]
    return lines


def _columns(*cells: object) -> str:
    widths = (28, 14, 14, 10, 0)
    return "  ".join(one_line(str(cell))[:_CELL_CHARS].ljust(width) for cell, width in zip(cells, widths, strict=True))


def _agent(agent: dict[str, Any]) -> str:
    where = agent.get("metadata", {})
    place = where.get("cwd") or ", ".join(map(str, where.get("members", ()))) or last_seen(agent)
    return _columns(agent["agentId"], agent["type"], agent["status"], agent.get("unread", 0) or "", place)


def _session(session: dict[str, Any]) -> str:
    says = f"{session['evidence']}, {ago(session['ageMs'])} ago"
    place = f"{session.get('directory', '-')}   ({says}{'; ' + session['notice'] if session.get('notice') else ''})"
    name = f"{session['client']} {short_id(session['session'])}"
    return _columns(name, state_words(session), session.get("agent", ""), session.get("pane", ""), place)


def _ticket(ticket: dict[str, Any]) -> str:
    delivery = ticket.get("delivery", {}).get("state", ticket["status"])
    to = ticket["targetAgent"] if not ticket.get("group") else f"{ticket['targetAgent']} ({ticket['group']})"
    since = f"{_clock(ticket['createdAt'])}, reply by {_clock(ticket['replyBy'])}"
    return _columns(ticket["ticketId"][-28:], ticket["from"], to, delivery, since)


def _approval(approval: dict[str, Any]) -> str:
    what = approval.get("summary") or approval.get("method", "")
    id_ = approval.get("approvalId", "")
    # The daemon drew the summary.
    return one_line(
        f"{id_}  {approval.get('principal', '')}: {what}   (bascule approvals approve {id_})", already_visible=True
    )


def _question(ticket: dict[str, Any]) -> str:
    id_ = ticket["ticketId"]
    return one_line(f"{id_}  {ticket['from']} asks you in words   (bascule approvals answer {id_})")


def _event(event: dict[str, Any]) -> str:
    who = " ".join(str(event[name]) for name in ("agentId", "from", "ticketId", "detail") if event.get(name))
    return one_line(f"{_clock(event['at'])}  {event['event'].ljust(22)} {who}")


def _clock(at: str) -> str:
    return at[11:19]


def _fit(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


class Painter:
    """Writes the rows that are not on the screen yet."""

    def __init__(self) -> None:
        self._shown: list[str] = []

    def forget(self) -> None:
        self._shown = []

    def changes(self, rows: Sequence[str], height: int) -> str:
        out = []
        rows = list(rows[:height])
        for number in range(max(len(rows), len(self._shown))):
            row = rows[number] if number < len(rows) else ""
            if number >= len(self._shown) or self._shown[number] != row:
                is_title = row.isupper() or row.startswith(("AGENT ", "SESSION ", "MESSAGE ", "EVENTS", "WAITING"))
                out.append(f"\x1b[{number + 1};1H\x1b[{'1' if number == 0 or is_title else '0'}m{row}\x1b[0m\x1b[K")
        self._shown = rows
        return "".join(out)


# -- how it is asked ------------------------------------------------------------------------------


def _ask_all(args: argparse.Namespace) -> Snapshot:
    try:
        approvals = ask(args, "approvals.list")
    except BasculeError:
        approvals = None
    return Snapshot(
        status=ask(args, "daemon.status"),
        agents=ask(args, "agents.list"),
        tickets=ask(args, "tickets.list", {"limit": MAX_TICKETS}),
        approvals=approvals,
        events=ask(args, "events.recent", {"limit": 20}),
        sessions=ask(args, "sessions.list"),
    )


class _Screen:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._painter = Painter()
        self._events: deque[dict[str, Any]] = deque(maxlen=MAX_EVENTS)
        self._news = asyncio.Event()
        self._over = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._resized)
        loop.add_reader(0, self._key)
        for event in await self._client.call("events.recent", {"limit": MAX_EVENTS}):
            self._events.append(event)
        last = self._events[-1]["id"] if self._events else 0
        tasks = [asyncio.ensure_future(each) for each in (self._follow(last), self._redraw(), self._over.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            loop.remove_reader(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _follow(self, after: int) -> None:
        async for event in self._client.events(after=after):
            at = {"at": event.at, "event": event.event, "agentId": event.agent_id, "from": event.from_}
            self._events.append({**at, "ticketId": event.ticket_id, "detail": event.detail})
            self._news.set()

    async def _redraw(self) -> None:
        while True:
            self._news.clear()
            begun = time.monotonic()
            try:
                snapshot = await self._snapshot()
            except BasculeError as fault:
                self._write(self._painter.changes([f"bascule: {fault.message}; waiting for it to come back"], 1))
            else:
                columns, rows = os.get_terminal_size(1)
                self._write(self._painter.changes(render(snapshot, columns, rows), rows))
            await asyncio.sleep(max(0.0, begun + REDRAW_SECONDS - time.monotonic()))
            try:
                # Not wait_for: it swallows a cancellation that comes together with the news.
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _snapshot(self) -> Snapshot:
        call = self._client.call
        try:
            approvals = await call("approvals.list", {})
        except BasculeError:
            approvals = None
        return Snapshot(
            status=await call("daemon.status", {}),
            agents=await call("agents.list", {}),
            tickets=await call("tickets.list", {"limit": MAX_TICKETS}),
            approvals=approvals,
            events=list(self._events),
            sessions=await call("sessions.list", {}),
        )

    def _key(self) -> None:
        if set(os.read(0, 64)) & set(b"qQ\x03\x04"):
            self._over.set()

    def _resized(self) -> None:
        self._painter.forget()
        self._write("\x1b[2J")
        self._news.set()

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()


async def _live(state: str) -> int:
    async with Client.connect(state) as client:
        before = termios.tcgetattr(0)
        tty.setcbreak(0)
        sys.stdout.write(_ENTER)
        try:
            await _Screen(client).run()
        finally:
            sys.stdout.write(_LEAVE)
            sys.stdout.flush()
            termios.tcsetattr(0, termios.TCSADRAIN, before)
    return 0
