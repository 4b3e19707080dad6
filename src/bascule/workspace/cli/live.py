"""A run as a person follows it: output as it comes, a sign of life when none comes, and what is asked."""

import re
import sys
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from bascule.foundation.text import one_line, visible
from bascule.local_client.exits import REFUSED, UNEXPECTED
from bascule.programs.helpers.terminal import say
from bascule.workspace.protocol import (
    ApprovalRequiredEvent,
    CreateFileEvent,
    DeleteFileEvent,
    EditFileEvent,
    ErrorEvent,
    Event,
    MessageEvent,
    PolicyDeniedEvent,
    ReadFileEvent,
    ShellEvent,
    StreamedOutput,
)

# Longer silence makes people wonder.
QUIET_SECONDS = 5.0
# While a person is waited for, who may be away for long, it is said again this often.
ASKED_SECONDS = 60.0

# Colours are the one thing of a terminal's language that cannot move, hide or answer anything.
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,40}m)")
# An escape sequence that the next piece may complete.
_BEGUN = re.compile(r"\x1b(\[[0-9;]{0,40})?\Z")
# What a command's exit code is when the shell could not even start it.
_NOT_RUN = 126


class Screen:
    """Text of programs that agents wrote, on a person's terminal: colours pass, other controls are shown."""

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw
        self._held = {"stdout": "", "stderr": ""}

    def write(self, stream: str, text: str) -> None:
        out = sys.stdout if stream == "stdout" else sys.stderr
        if out is None:
            return
        if not self._raw:
            text = self._held[stream] + text
            begun = _BEGUN.search(text)
            self._held[stream] = text[begun.start() :] if begun else ""
            text = text[: begun.start()] if begun else text
            # Every second part is a colour; a carriage return is how progress bars are drawn.
            parts = _COLOUR.split(text)
            parts[::2] = ["\r".join(map(visible, part.replace("\r\n", "\n").split("\r"))) for part in parts[::2]]
            text = "".join(parts)
        out.write(text)
        out.flush()

    def end(self) -> None:
        for stream, held in self._held.items():
            if held:
                self._held[stream] = ""
                (sys.stdout if stream == "stdout" else sys.stderr).write(visible(held))


class SignOfLife:
    """Says on a terminal how long it has been quiet, until something comes; or whose answer is waited for."""

    def __init__(self, what: str, *, on: bool) -> None:
        self._what = what
        self._on = on
        self._news = threading.Event()
        self._over = False
        # The question that waits for a person, if one does.
        self.approval_id: str | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        if self._on:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._over = True
        self._news.set()
        if self._on:
            self._thread.join()

    def note_activity(self) -> None:
        self._news.set()

    def _watch(self) -> None:
        quiet = 0.0
        while not self._over:
            pause = ASKED_SECONDS if self.approval_id and quiet else QUIET_SECONDS
            if self._news.wait(pause):
                self._news.clear()
                quiet = 0.0
                continue
            quiet += pause
            asked = self.approval_id
            if asked is None:
                say(f"[{self._what}: quiet for {quiet:.0f} s; Ctrl-C stops it]")
            else:
                say(
                    f"[{self._what} has been waiting for your answer for {quiet:.0f} s: "
                    f"bascule approvals show {one_line(asked)}, in another terminal; Ctrl-C gives it up]"
                )


def follow(items: Iterable[StreamedOutput], screen: Screen, *, what: str, verbose: bool) -> tuple[str, list[Event]]:
    """Show a run until it is over; how it ended, and its events."""
    events: list[Event] = []
    status = "unknown"
    with SignOfLife(what, on=sys.stderr is not None and sys.stderr.isatty()) as life:
        for item in items:
            if item.status != "awaiting_approval":
                life.approval_id = None
            if isinstance(item.event, ApprovalRequiredEvent):
                life.approval_id = str(item.event.details.get("approvalId", ""))
            life.note_activity()
            if item.kind in ("stdout", "stderr"):
                screen.write(item.kind, item.text or "")
            elif item.event is not None:
                events.append(item.event)
                show_event(item.event, verbose=verbose)
            elif item.status is not None:
                status = item.status
                show_steering(item.steering)
            elif item.text:
                say(item.text)
    screen.end()
    return status, events


def show_steering(sentences: Iterable[str]) -> None:
    for each in sentences:
        say(f"[look at it: {one_line(each)}]")


def show_event(event: Event, *, verbose: bool) -> None:
    """One event in one line, on stderr; what a person must act on always, the rest when asked for."""
    match event:
        case ApprovalRequiredEvent():
            id_ = event.details.get("approvalId", "")
            say(f"[asks: {event.reason}]\n  bascule approvals show {id_}\n  bascule approvals approve {id_}")
        case PolicyDeniedEvent():
            more = f"; {event.suggestion}" if event.suggestion else ""
            say(f"[denied: {one_line(event.reason + more)}]")
        case ErrorEvent():
            say(f"[{event.category} error: {one_line(event.message)}]")
        case ShellEvent():
            _show_command(event, verbose=verbose)
        case MessageEvent() if verbose:
            say("[message: taken]")
        case CreateFileEvent() | ReadFileEvent() | EditFileEvent() | DeleteFileEvent():
            if not event.success:
                say(f"[{_kind(event)} {one_line(event.path)}: {visible(str(event.error))}]")
            elif verbose:
                say(f"[{_kind(event)} {one_line(event.path)}: done]")
        case _:
            pass
    for each in event.not_undoable or ():
        say(f"[undo leaves alone {one_line(each.path)}: {one_line(each.reason)}]")


def _show_command(event: ShellEvent, *, verbose: bool) -> None:
    if event.sandbox == "none":
        say("[ran WITHOUT a sandbox: the settings say so]")
    if event.timed_out is True:
        say(f"[timed out after {event.duration_ms} ms; everything it started was ended]")
    elif isinstance(event.ended_by, str):
        say(f"[ended by {event.ended_by}]")
    if isinstance(event.error, str):
        say(f"[{one_line(event.error)}]")
    if verbose and isinstance(event.exit_code, int):
        say(f"[shell {one_line(event.command)}: exit code {event.exit_code}]")


def _kind(event: Event) -> str:
    return str(type(event).__struct_config__.tag)


def exit_code(event: Event | None) -> int:
    """A command's own; what kept it from running has ours."""
    match event:
        case ShellEvent():
            return event.exit_code if isinstance(event.exit_code, int) else _NOT_RUN
        case PolicyDeniedEvent() | ApprovalRequiredEvent():
            return REFUSED
        case _:
            return UNEXPECTED
