"""Person and program, each at one end: bytes both ways, and a place between for what is typed for the program."""

import asyncio
import contextlib
import os
import select
import signal
import termios

from bascule.programs.wrap.child import ENDED, KILLED, STOPPED, Child
from bascule.programs.wrap.host_terminal import HostTerminal
from bascule.programs.wrap.keyboard import Keyboard
from bascule.programs.wrap.output import Output
from bascule.programs.wrap.profiles import Profile
from bascule.programs.wrap.readiness import Seen
from bascule.programs.wrap.recording import Recording
from bascule.programs.wrap.screen import Transcript
from bascule.terminals import text

# A terminal's own buffer is 4 KiB; a pipe's 64.
PIECE_BYTES = 64 * 1024
# Read in one go before others get their turn: megabytes of output must not keep a key from the program.
PIECES_PER_TURN = 16
# Not taken by the person's terminal yet: past this the program waits, as it would for a slow terminal.
MAX_SCREEN_BYTES = 256 * 1024
# Not taken by the program yet: past this the person's keys wait in their terminal.
MAX_KEYS_BYTES = 64 * 1024
# Between typed text and its Enter we look this often for the program's echo, and take this much quiet for its end.
ECHO_LOOK_SECONDS = 0.01
ECHO_QUIET_SECONDS = 0.03
MAX_ECHO_SECONDS = 1.0
# For a program that was told to end, to do so.
GRACE_SECONDS = 5.0
_END_OF_INPUT = b"\x04"


class Session:
    """Runs until the program ends. On the event loop's thread only."""

    def __init__(
        self, child: Child, outer: HostTerminal, profile: Profile, transcript: Transcript | None = None
    ) -> None:
        self.child = child
        self.output = Output()
        self.keyboard = Keyboard(is_terminal=outer.reads_terminal)
        self.ended: asyncio.Event = asyncio.Event()
        self._outer = outer
        self._profile = profile
        self.transcript = transcript
        self.recording: Recording | None = None
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        # To the person, to the program, and what the person typed while something was being typed for the program.
        self._screen = bytearray()
        self._keys = bytearray()
        self._held = bytearray()
        self._typing = asyncio.Lock()
        self._holding = False
        self._reading_program = False
        self._reading_person = False
        self._person_gone = False
        self._end_owed = False
        # A file in place of the keyboard: the next piece of it is due.
        self._file_due = False
        # Why the person's side took no more of what the program wrote.
        self.lost_output: str | None = None

    # -- from start to end --

    def open(self) -> None:
        self._outer.open()
        self._outer.make_raw()
        self._loop.add_reader(self.child.events, self._something_happened)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._on_end_signal, number)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)
        self._typed_ahead()
        self._listen()

    def _typed_ahead(self) -> None:
        """What the person typed while we were starting: their terminal has made newlines of the Enter key."""
        if self._outer.reads_terminal and self._outer.stdin != 0:
            with contextlib.suppress(OSError):
                data = os.read(self._outer.stdin, PIECE_BYTES).replace(b"\n", text.ENTER)
                self.keyboard.feed(data, self._clock())
                self._to_program(data)

    def close(self) -> None:
        """What is still in the program's terminal is shown, what its background jobs write later is not."""
        self._drain_program()
        for descriptor in (self.child.master, self._outer.stdin, self.child.events):
            with contextlib.suppress(ValueError, OSError):
                self._loop.remove_reader(descriptor)
        for descriptor in (self.child.master, self._outer.stdout):
            with contextlib.suppress(ValueError, OSError):
                self._loop.remove_writer(descriptor)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
            self._loop.remove_signal_handler(number)
        if self._outer.writes_terminal:
            self._screen += self.output.leftovers()
        self._outer.restore()
        _write_out(1, bytes(self._screen))
        self._outer.close()
        self.child.close()

    def _something_happened(self) -> None:
        for kind in self.child.read_events():
            if kind == STOPPED:
                self._stopped()
            elif kind == ENDED:
                self._loop.remove_reader(self.child.events)
                self.ended.set()

    def _stopped(self) -> None:
        """The program was stopped with Ctrl-Z: so are we, and with us it goes on.

        Where our shell has no job control, or there is none, the signal does nothing and the program goes on at once.
        """
        self._outer.restore()
        self._loop.remove_signal_handler(signal.SIGWINCH)
        with contextlib.suppress(OSError):
            os.killpg(os.getpgrp(), signal.SIGTSTP)
        self._outer.make_raw()
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)
        self._resized()
        self.child.resume()

    def _on_end_signal(self, number: int) -> None:
        """Pass it on; a program that stays nevertheless (a shell ignores SIGTERM) is hung up on."""
        self.child.send(number)
        self.child.send(signal.SIGCONT)
        self._loop.call_later(GRACE_SECONDS, self._hang_up, number)

    def _hang_up(self, number: int) -> None:
        if self.child.exit_code is None:
            self.child.exit_code = KILLED + number
        self.ended.set()

    def _resized(self) -> None:
        size = self._outer.size()
        self.child.resize(*size)
        if self.transcript is not None:
            self.transcript.resize(*size)

    # -- from the program to the person --

    def _listen(self) -> None:
        """Read what may be read now: neither side is ahead of the other by more than its buffer."""
        program = len(self._screen) < MAX_SCREEN_BYTES
        if program != self._reading_program:
            self._reading_program = program
            if program:
                self._loop.add_reader(self.child.master, self._from_program)
            else:
                self._loop.remove_reader(self.child.master)
        person = len(self._keys) + len(self._held) < MAX_KEYS_BYTES and not self._person_gone
        if person != self._reading_person:
            self._reading_person = person
            if not person:
                self._loop.remove_reader(self._outer.stdin)
                return
            try:
                self._loop.add_reader(self._outer.stdin, self._from_person)
            except PermissionError:
                # A plain file is always ready and cannot be waited for: it is read again after each piece.
                self._reading_person = False
                if not self._file_due:
                    self._file_due = True
                    self._loop.call_soon(self._from_file)

    def _from_file(self) -> None:
        self._file_due = False
        self._from_person()

    def _from_program(self) -> None:
        for _ in range(PIECES_PER_TURN):
            if not self._read_program() or len(self._screen) >= MAX_SCREEN_BYTES:
                break
        self._listen()

    def _read_program(self) -> bool:
        try:
            data = os.read(self.child.master, PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            # EIO: nobody has the program's terminal open any more.
            data = b""
        if not data:
            self._loop.remove_reader(self.child.master)
            return False
        self.output.feed(data, self._clock())
        if self.transcript is not None:
            self.transcript.put_aside(data)
        if self.recording is not None:
            self.recording.note("o", data)
        if self._screen:
            self._screen += data
        else:
            self._show(data)
        return True

    def _show(self, data: bytes) -> None:
        sent = self._write_to_person(data)
        if sent < len(data):
            self._screen += memoryview(data)[sent:]
            self._loop.add_writer(self._outer.stdout, self._person_takes)

    def _person_takes(self) -> None:
        sent = self._write_to_person(bytes(self._screen))
        del self._screen[:sent]
        if not self._screen:
            self._loop.remove_writer(self._outer.stdout)
        self._listen()

    def _write_to_person(self, data: bytes) -> int:
        try:
            return os.write(self._outer.stdout, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except BrokenPipeError:
            if self.lost_output is None and not self.ended.is_set():
                # `| head` has read enough: the program hears what it would hear from the pipe itself.
                self._on_end_signal(signal.SIGPIPE)
            self.lost_output = "nobody reads it any more"
        except OSError as fault:
            # A terminal that is gone is told by its other end; a full disk by nobody but us.
            if not self._outer.writes_terminal:
                self.lost_output = self.lost_output or fault.strerror or str(fault)
        return len(data)

    def _drain_program(self) -> None:
        with contextlib.suppress(ValueError, OSError):
            while self._read_program():
                pass

    # -- from the person to the program --

    def _from_person(self) -> None:
        try:
            data = os.read(self._outer.stdin, PIECE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._no_more_input()
            return
        self.keyboard.feed(data, self._clock())
        if self._holding:
            self._held += data
        else:
            self._to_program(data)
        self._listen()

    def _no_more_input(self) -> None:
        """A pipe has ended: the program hears it as from a terminal, with Ctrl-D, when it reads lines."""
        self._person_gone = True
        self._listen()
        if self._outer.reads_terminal:
            # The person's terminal is gone, and with it the reason to go on.
            self._on_end_signal(signal.SIGHUP)
            return
        self._end_owed = True
        self._pay_end()

    def _pay_end(self) -> None:
        if self._end_owed and not self._keys and not self._holding:
            self._end_owed = False
            self._to_program(self._end_character())

    def _end_character(self) -> bytes:
        try:
            characters = termios.tcgetattr(self.child.master)[6]
            return bytes(characters[termios.VEOF]) or _END_OF_INPUT
        except (OSError, termios.error):
            return _END_OF_INPUT

    def _to_program(self, data: bytes) -> None:
        if self.recording is not None:
            self.recording.note("i", data)
        if not self._keys:
            data = data[self._write(self.child.master, data) :]
        if data:
            self._keys += data
            self._loop.add_writer(self.child.master, self._program_takes)

    def _program_takes(self) -> None:
        sent = self._write(self.child.master, bytes(self._keys))
        del self._keys[:sent]
        if not self._keys:
            self._loop.remove_writer(self.child.master)
            self._pay_end()
        self._listen()

    def _write(self, descriptor: int, data: bytes) -> int:
        """How much was taken; all of it when there is nobody left to take anything."""
        try:
            return os.write(descriptor, data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            return len(data)

    # -- what is typed for the program --

    def seen(self, turn: str | None = None) -> Seen:
        now = self._clock()
        return Seen(
            now=now,
            typing=self.keyboard.is_typing(now) or self._holding or bool(self._keys),
            last_output=self.output.last_output,
            turn=turn,
            cooked=self.child.is_cooked() if self._profile.mode else None,
            foreground=self.child.has_foreground() if self._profile.foreground else None,
            line=self.output.last_line() if self._profile.prompt else "",
            title=self.output.title,
            cursor=self.output.shows_cursor,
            row=self.transcript.row() if self._profile.row and self.transcript is not None else None,
        )

    async def type(self, data: bytes, *, enter: bool = True) -> None:
        """Type text and, when the program has shown it, Enter. What the person types meanwhile comes after that."""
        async with self._typing:
            self._holding = True
            try:
                self._to_program(data)
                if enter:
                    await self._echoed()
                    self._to_program(text.ENTER)
            finally:
                self._holding = False
                held, self._held = bytes(self._held), bytearray()
                if held:
                    self._to_program(held)
                self._pay_end()
                self._listen()

    async def _echoed(self) -> None:
        """The profile's pause, and longer while the program is still drawing what it got.

        Programs that watch for pastes take an Enter that comes with the text for a part of it.
        """
        await asyncio.sleep(self._profile.enter_seconds)
        until = self._clock() + MAX_ECHO_SECONDS
        while self._clock() < until and self._clock() - self.output.last_output < ECHO_QUIET_SECONDS:  # noqa: ASYNC110 - quiet is no event
            await asyncio.sleep(ECHO_LOOK_SECONDS)


def _write_out(descriptor: int, data: bytes) -> None:
    """The last of it, however slow the reader is; for one that has stopped reading not for ever."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            if not select.select([], [descriptor], [], GRACE_SECONDS)[1]:
                return
        except OSError:
            return
