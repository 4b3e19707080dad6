"""`bridgectl tail`: the daemon's log, and its events, as they come."""

from __future__ import annotations

import time

from bascule.foundation import paths
from bascule.foundation.backoff import Backoff
from bascule.foundation.text import one_line, visible
from bascule.local_client import choice, exits
from bascule.local_client.exits import ConnectionLost, NotRunning
from bascule.local_client.http import EventStream, call
from bascule.local_client.values import decode
from bascule.programs.helpers import terminal
from bascule.programs.helpers.logtail import LogTail

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

# What the daemon lists in one answer; its ring holds no more.
_MOST_PAST = 1_000
# How often the log is looked at: quick enough to watch, slow enough to cost nothing.
_LOG_POLL_SECONDS = 0.2
# Only bounds one read; the stream itself may be quiet for hours.
_EVENT_SECONDS = 3600.0


def events(options: argparse.Namespace, state: str) -> int:
    door = choice.find_door(state)
    # The past by its own question, not by waiting for a pause that a busy broker never makes.
    past = call(door, "GET", f"/events/recent?limit={max(1, min(options.lines, _MOST_PAST))}") or []
    for event in past[len(past) - min(options.lines, len(past)) :]:
        _show(event, as_json=options.json)
    if not options.follow:
        return exits.OK
    last = past[-1]["id"] if past else 0
    pauses = Backoff()
    while True:
        try:
            with EventStream(door, f"/events?after={last}") as stream:
                pauses.reset()
                last = _show_until_lost(stream, last, as_json=options.json)
            terminal.say("the daemon closed the event stream; waiting for it to come back")
        except (ConnectionLost, NotRunning):
            time.sleep(next(pauses))


def _show_until_lost(stream: EventStream, last: int, *, as_json: bool) -> int:
    try:
        while True:
            if event := stream.next_event(_EVENT_SECONDS):
                _show_event(event, as_json=as_json)
                last = _number(event) or last
    except ConnectionLost:
        return last


def _number(event: dict[str, str]) -> int:
    text = event.get("id", "")
    return int(text) if text.isdigit() else 0


def _show_event(event: dict[str, str], *, as_json: bool) -> None:
    try:
        value = decode(event.get("data", ""))
    except ValueError:
        value = {"event": event.get("event"), "data": event.get("data")}
    _show(value, as_json=as_json)


def _show(value: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        terminal.show_json(value)
    else:
        terminal.show(describe(value, ("event",)))


def logs(options: argparse.Namespace, state: str) -> int:
    with LogTail(paths.log_file(state)) as log:
        for line in log.last(options.lines):
            _show_log(line, as_json=options.json)
        while options.follow:
            lines = log.new_lines()
            for line in lines:
                _show_log(line, as_json=options.json)
            if not lines:
                time.sleep(_LOG_POLL_SECONDS)
    return exits.OK


def _show_log(line: str, *, as_json: bool) -> None:
    if as_json:
        terminal.show(visible(line))
        return
    try:
        value = decode(line)
    except ValueError:
        value = None
    terminal.show(describe(value, ("level", "event")) if isinstance(value, dict) else visible(line))


def describe(value: dict[str, Any], first: Sequence[str]) -> str:
    """`2025-10-20 08:00:00 info ticket.sent ticketId=...`: time, the words that matter, the rest by name."""
    rest = {name: item for name, item in value.items() if name not in first and name not in ("at", "id")}
    words = [moment(str(value.get("at", ""))), *(str(value.get(name, "")).ljust(7) for name in first)]
    words += [f"{name}={item if isinstance(item, str) else terminal.payload_text(item)}" for name, item in rest.items()]
    return one_line(" ".join(words).rstrip())


def moment(text: str) -> str:
    """`2025-10-20T08:00:00.123Z` to the second, as people read it."""
    return text[:19].replace("T", " ")
