"""The clipboard as a way in: we own it for the moment of a paste, and then give back what was there.

On X11 a clipboard is a conversation: its owner answers each request for it. So this is a thread of its own with
a connection of its own, which answers while the rest of the host waits for the paste to be taken.
"""

import asyncio
import contextlib
import os
import queue
import select
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import msgspec
import Xlib.error
from Xlib import X, Xatom, display
from Xlib.protocol import event as xevent
from Xlib.protocol import request as xrequest

from bascule.programs.desktop_host.linux.x11 import client_pid
from bascule.programs.desktop_host.ports import Clipboard as Outcome
from bascule.programs.desktop_host.ports import Halt, IsShown, NotReachable

# Below the 256 KiB that every server takes in one request; longer texts are pasted in pieces, so that we need not
# speak INCR, and an abort is heard between two of them.
MAX_PIECE_BYTES: Final = 32 * 1024
# How long a program may take to fetch what it was told to paste.
TAKE_SECONDS: Final = 3.0
# The text stays on the clipboard until nobody has fetched it for so long. Chromium fetches it twice, 11 to 27 ms apart,
# and inserts the second one: given back after the first, the person's own clipboard would be pasted.
QUIET_SECONDS: Final = 0.15
# And not longer than this, whoever goes on fetching it.
MAX_QUIET_SECONDS: Final = 1.0
# How long a field may take to show what its program has fetched; one that leaves the text out takes as long.
SHOW_SECONDS: Final = 3.0
# How often it is looked whether somebody stopped us.
HALT_SECONDS: Final = 0.02
# How long the present owner may take to hand over what is there.
SAVE_SECONDS: Final = 1.0
# Before what a keeper is given: its length.
KEEPER_SIZE_BYTES: Final = 8
# A clipboard with more in it is not kept; the answer says "lost".
MAX_SAVED_BYTES: Final = 16 * 1024 * 1024
MAX_SAVED_TARGETS: Final = 16

_TEXT_TARGETS: Final = ("UTF8_STRING", "text/plain;charset=utf-8", "STRING", "TEXT", "text/plain")
# Not contents, but questions about them.
NOT_DATA: Final = frozenset({"TARGETS", "MULTIPLE", "TIMESTAMP", "SAVE_TARGETS", "DELETE", "INSERT_SELECTION"})
# Clipboard managers that keep a history leave out what says this.
_SECRET_HINT: Final = "x-kde-passwordManagerHint"  # noqa: S105 - the name of a target


class Saved(msgspec.Struct):
    """What was on the clipboard, by target: type and bytes. `lost`: there was something we could not take."""

    contents: dict[str, tuple[int, bytes]]
    lost: bool = False


class Keeper:
    """A process that has the person's clipboard ready in case this one ends: `clipboard_keeper`."""

    def __init__(self, name: str, window: int, saved: Saved) -> None:
        module = "bascule.programs.desktop_host.linux.clipboard_keeper"
        command = [sys.executable, "-P", "-m", module, name, str(window)]
        quiet = subprocess.DEVNULL
        # In a session of its own: what ends the host's must not end it.
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter and a module of ours
            command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        data = msgspec.msgpack.encode(saved)
        with contextlib.suppress(BrokenPipeError):
            self._input.write(len(data).to_bytes(KEEPER_SIZE_BYTES) + data)
            self._input.flush()

    def hand_over(self) -> None:
        """From here on it acts by itself."""
        with contextlib.suppress(BrokenPipeError):
            self._input.close()

    def end(self) -> None:
        """What it has is not wanted any more."""
        self._process.kill()
        self._process.wait()
        self.hand_over()


class Fetches:
    """Whether a text that was put on the clipboard has been pasted, by when it was fetched."""

    def __init__(self) -> None:
        self._offered = time.monotonic()
        self._first = self._last = 0.0

    def note(self) -> None:
        self._last = time.monotonic()
        self._first = self._first or self._last

    def over(self, seconds: float = TAKE_SECONDS) -> bool | None:
        """True: it was fetched, and nobody fetches it any more. False: it was not, in that time. None: wait."""
        now = time.monotonic()
        if self._first:
            return now - self._last > QUIET_SECONDS or now - self._first > MAX_QUIET_SECONDS or None
        return False if now - self._offered > seconds else None


async def wait_shown(is_shown: IsShown | None, halt: Halt) -> None:
    """A busy browser takes longer between its two fetches, and would be given the person's own clipboard."""
    if is_shown is None:
        return
    end = time.monotonic() + SHOW_SECONDS
    while await is_shown() is False and time.monotonic() < end:
        halt.check()
        await asyncio.sleep(HALT_SECONDS)


class ClipboardThread:
    """Runs commands and answers requests, one after the other, on one connection."""

    def __init__(self, name: str | None, *, keeps: bool = False) -> None:
        """`keeps`: what was there comes back even if this process ends before it has given it back."""
        try:
            self._display: Any = display.Display(name)
        except (Xlib.error.DisplayError, OSError) as error:
            raise NotReachable(f"no X display: {error}") from error
        self._display.set_error_handler(lambda *_: None)
        root = self._display.screen().root
        self._window: Any = root.create_window(0, 0, 1, 1, 0, X.CopyFromParent, event_mask=X.PropertyChangeMask)
        self._clipboard = self._atom("CLIPBOARD")
        self._offer: dict[int, tuple[int, bytes]] = {}
        # What we put there last.
        self._offered = b""
        self._owned_at = X.CurrentTime
        # The program that is to paste the text, and what it fetched of it.
        self._taker = 0
        self._fetches = Fetches()
        self._text_atoms = {self._atom(each) for each in _TEXT_TARGETS}
        self._commands: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._keeps = keeps
        # Has what was there ready, for as long as we answer for it.
        self._keeper: Keeper | None = None
        self._replaced = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="bascule-clipboard", daemon=True)
        self._thread.start()

    # -- from other threads --

    def save(self) -> Saved:
        def save() -> Saved:
            saved = self._save()
            self._keep(saved)
            return saved

        saved: Saved = self._ask(save)
        return saved

    def owner(self) -> int:
        """The window that answers for the clipboard; 0 is none."""
        found = self._ask(lambda: self._display.get_selection_owner(self._clipboard))
        return 0 if found == X.NONE else int(found.id)

    def wait_replaced(self) -> None:
        """Until somebody else has put something there, or the server has gone."""
        self._replaced.wait()

    def offer(self, text: str, pid: int = 0) -> None:
        """From now on a paste gives this text. `pid`: who is to paste it; 0 is anybody."""
        self._taker, self._fetches = pid, Fetches()
        self._offered = text.encode()
        self._ask(lambda: self._own(self._text_offer(text)))

    def wait_taken(self, halt: Halt) -> bool:
        """Whether that program fetched the text itself; asking what there is does not count."""
        while (over := self._fetches.over()) is None:
            halt.check()
            time.sleep(HALT_SECONDS)
        return over

    def restore(self, saved: Saved) -> Outcome:
        self._ask(lambda: self._restore(saved))
        if saved.lost:
            return "lost"
        return "restored" if saved.contents else "empty"

    def close(self) -> None:
        self._commands.put(None)
        self._wake()
        self._thread.join()
        if self._keeper is not None:
            self._keeper.hand_over()
        os.close(self._wake_read)
        os.close(self._wake_write)
        with contextlib.suppress(Xlib.error.ConnectionClosedError, OSError):
            self._display.close()

    def _ask(self, command: Callable[[], Any]) -> Any:
        future: Future[Any] = Future()
        self._commands.put((command, future))
        self._wake()
        return future.result(timeout=30.0)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b".")

    # -- on the thread --

    def _run(self) -> None:
        try:
            while True:
                self._pump(None)
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4_096)
                while not self._commands.empty():
                    command = self._commands.get()
                    if command is None:
                        return
                    act, future = command
                    try:
                        future.set_result(act())
                    except Exception as error:  # noqa: BLE001 - it is raised where the command came from
                        future.set_exception(error)
        except (Xlib.error.ConnectionClosedError, OSError):
            # The X server is gone; the next request fails by the time limit of its answer.
            self._replaced.set()

    def _pump(self, until: Callable[[], bool] | None, seconds: float = 0.0) -> bool:
        """Handle events until the condition holds; without one, until there is a command."""
        end = time.monotonic() + seconds
        while True:
            # First: flushing may read, and an event that is already in memory wakes no select.
            self._display.flush()
            while self._display.pending_events():
                self._on_event(self._display.next_event())
            if until is not None and until():
                return True
            left = None if until is None else max(0.0, end - time.monotonic())
            watched = [self._display.fileno()] if until is not None else [self._display.fileno(), self._wake_read]
            readable, _, _ = select.select(watched, [], [], left)
            if self._wake_read in readable:
                return False
            if until is not None and time.monotonic() >= end:
                return until()

    def _on_event(self, event: Any) -> None:
        if event.type == X.SelectionRequest:
            self._answer(event)
        elif event.type == X.SelectionClear and event.atom == self._clipboard:
            self._offer = {}
            self._replaced.set()
            if self._keeper is not None:
                self._keeper.end()
                self._keeper = None
        elif event.type == X.SelectionNotify and event.requestor.id == self._window.id:
            self._notified = event
        elif event.type == X.PropertyNotify and event.window.id == self._window.id:
            self._stamp = event.time

    def _answer(self, request: Any) -> None:
        """ICCCM 2.2: put the data where the requestor wants it, and tell it; property 0 is a refusal."""
        target, where = request.target, request.property or request.target
        try:
            if target == self._atom("TARGETS"):
                targets = [self._atom("TARGETS"), self._atom("TIMESTAMP"), *self._offer]
                request.requestor.change_property(where, Xatom.ATOM, 32, targets)
            elif target == self._atom("TIMESTAMP"):
                request.requestor.change_property(where, Xatom.INTEGER, 32, [self._owned_at])
            elif target in self._offer:
                kind, data = self._offer[target]
                request.requestor.change_property(where, kind, 8, data)
            else:
                where = X.NONE
        except Xlib.error.XError:
            where = X.NONE
        notify = xevent.SelectionNotify(
            time=request.time,
            requestor=request.requestor,
            selection=request.selection,
            target=target,
            property=where,
        )
        request.requestor.send_event(notify)
        self._display.flush()
        if where and target in self._text_atoms and self._is_taker(request.requestor):
            self._fetches.note()

    def _is_taker(self, requestor: Any) -> bool:
        """A clipboard manager fetches every new text, too: that is not a paste."""
        pid = client_pid(self._display, requestor) if self._taker else 0
        return pid in (0, self._taker)

    def _text_offer(self, text: str) -> dict[int, tuple[int, bytes]]:
        data = text.encode()
        offer = {self._atom(each): (self._atom(each), data) for each in _TEXT_TARGETS if each != "TEXT"}
        # STRING is Latin-1 by definition; offered only where nothing would be lost.
        if text.isascii():
            offer[self._atom("TEXT")] = (self._atom("STRING"), data)
        else:
            offer.pop(self._atom("STRING"))
        hint = self._atom(_SECRET_HINT)
        offer[hint] = (hint, b"secret")
        return offer

    def _own(self, offer: dict[int, tuple[int, bytes]]) -> None:
        self._owned_at = self._now()
        self._window.set_selection_owner(self._clipboard, self._owned_at)
        self._offer = offer
        if self._display.get_selection_owner(self._clipboard) != self._window:
            raise NotReachable("the clipboard could not be taken: another program holds on to it")

    def _restore(self, saved: Saved) -> None:
        if self._has_newer():
            self._offer = {}
            return
        if saved.contents:
            self._own({self._atom(name): content for name, content in saved.contents.items()})
            # A clipboard manager may have had it meanwhile.
            self._keep(saved)
            return
        self._offer = {}
        if self._display.get_selection_owner(self._clipboard) == self._window:
            xrequest.SetSelectionOwner(
                display=self._display.display, window=X.NONE, selection=self._clipboard, time=self._now()
            )

    def _keep(self, saved: Saved) -> None:
        if self._keeps and self._keeper is None and saved.contents:
            self._keeper = Keeper(self._display.get_display_name(), self._window.id, saved)

    def _has_newer(self) -> bool:
        """Whether somebody copied something while we had it: that is the person's now, and the old is not wanted back.

        A clipboard manager that took our own text is not somebody: the text must not stay there.
        """
        owner = self._display.get_selection_owner(self._clipboard)
        if owner in (X.NONE, self._window):
            return False
        found = self._fetch("UTF8_STRING", time.monotonic() + SAVE_SECONDS)
        return found is None or _bytes(found[1]) != self._offered

    def _save(self) -> Saved:
        owner = self._display.get_selection_owner(self._clipboard)
        if owner == X.NONE:
            return Saved({})
        if owner == self._window:
            return Saved({self._name(atom): content for atom, content in self._offer.items()})
        end = time.monotonic() + SAVE_SECONDS
        targets = self._fetch("TARGETS", end)
        if targets is None:
            return Saved({}, lost=True)
        saved = Saved({})
        size = 0
        names = [self._name(atom) for atom in targets[1]]
        wanted = [name for name in names if name and name not in NOT_DATA]
        saved.lost = len(wanted) > MAX_SAVED_TARGETS
        for name in wanted[:MAX_SAVED_TARGETS]:
            found = self._fetch(name, end)
            if found is None or size + len(found[1]) > MAX_SAVED_BYTES:
                # Some targets are promises nobody can keep; the text is what people miss.
                saved.lost = saved.lost or name in _TEXT_TARGETS
                continue
            data = _bytes(found[1])
            if data is None:
                continue
            saved.contents[name] = (found[0], data)
            size += len(data)
        if not saved.contents:
            saved.lost = True
        return saved

    def _fetch(self, target: str, end: float) -> tuple[int, Any] | None:
        where = self._atom("BASCULE_CLIPBOARD")
        self._notified = None
        self._window.convert_selection(self._clipboard, self._atom(target), where, X.CurrentTime)
        if not self._pump(lambda: self._notified is not None, max(0.0, end - time.monotonic())):
            return None
        if not self._notified.property:
            return None
        found = self._window.get_full_property(where, X.AnyPropertyType)
        self._window.delete_property(where)
        if found is None or found.property_type == self._atom("INCR"):
            return None
        return int(found.property_type), found.value

    def _now(self) -> int:
        """The server's time, which ICCCM 2.1 asks for: CurrentTime would race with another owner."""
        self._stamp = None
        self._window.change_property(self._atom("BASCULE_STAMP"), Xatom.STRING, 8, b"", X.PropModeAppend)
        self._pump(lambda: self._stamp is not None, SAVE_SECONDS)
        return int(self._stamp or X.CurrentTime)

    def _atom(self, name: str) -> int:
        return int(self._display.intern_atom(name))

    def _name(self, atom: int) -> str:
        try:
            return str(self._display.get_atom_name(atom))
        except Xlib.error.XError:
            return ""


def _bytes(value: Any) -> bytes | None:
    """What python-xlib makes of a property of eight bits; None of any other."""
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None


def pieces(text: str, max_bytes: int = MAX_PIECE_BYTES) -> list[str]:
    """The text in parts that one request can carry, never cut inside a character of several code points."""
    out: list[str] = []
    start = 0
    while start < len(text):
        end = _fits(text, start, max_bytes)
        while end < len(text) and end - start > 1 and _joins(text[end - 1], text[end]):
            end -= 1
        out.append(text[start:end])
        start = end
    return out


def _fits(text: str, start: int, max_bytes: int) -> int:
    end = min(len(text), start + max_bytes)
    while len(text[start:end].encode()) > max_bytes:
        end = start + (end - start) * 3 // 4
    return end


def _joins(before: str, after: str) -> bool:
    """Whether a cut between them would break a character as people see it: marks, joiners, skin tones, CR LF."""
    joiner, first_tone, last_tone = "\u200d", "\U0001f3fb", "\U0001f3ff"
    if joiner in (before, after) or (before, after) == ("\r", "\n"):
        return True
    return unicodedata.combining(after) != 0 or first_tone <= after <= last_tone or "\ufe00" <= after <= "\ufe0f"
