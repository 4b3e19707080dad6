"""A script of ours in KWin, by D-Bus: it sees and activates windows, and needs no permission."""

import asyncio
import contextlib
import secrets
import tempfile
from typing import Final

from dbus_fast import Message, MessageType

from bascule.foundation.paths import program_file
from bascule.programs.desktop_host.linux.bus import DBUS, Bus, BusError
from bascule.programs.desktop_host.linux.wayland import kwin_look
from bascule.programs.desktop_host.linux.wayland.kwin_look import Seen, seen_in
from bascule.programs.desktop_host.ports import NotReachable

KWIN: Final = "org.kde.KWin"
_SCRIPTING: Final = ("/Scripting", "org.kde.kwin.Scripting")
_SCRIPT: Final = "org.kde.kwin.Script"
# A look takes a millisecond or two, the first one of KWin's life 200.
ANSWER_SECONDS: Final = 5.0
# A script that was loaded asks at once; one that does not was taken for another.
LOAD_SECONDS: Final = 1.0
LOAD_TRIES: Final = 3
# Qt gives up on an answer after 25 s, and the script would wait no more.
KEEP_SECONDS: Final = 10.0
# Where a script is: in Plasma 5 and in 6.
_PLACES: Final = ("/{}", "/Scripting/Script{}")
_PATH: Final = "/bascule/kwin"
_INTERFACE: Final = "io.bascule.Kwin"


class Scripting:
    def __init__(self, bus: Bus, directory: str | None) -> None:
        """`directory`: where nobody else reads what KWin is given to run."""
        self._bus = bus
        self._directory = directory
        # KWin's own name on the bus: nobody else's words are taken for its.
        self._owner = ""
        self._script = ""
        # The script's call that waits for a question.
        self._waiting: Message | None = None
        self._keeping: asyncio.TimerHandle | None = None
        self._asked = asyncio.Event()
        self._answer = ""
        self._turn = asyncio.Lock()
        bus.listen(self._on_message)

    def _on_message(self, message: Message) -> bool:
        """Whether it was for us. The answer to it is sent later."""
        if (
            message.message_type is not MessageType.METHOD_CALL
            or message.interface != _INTERFACE
            or message.sender != self._owner
            # What an older script of ours asks stays unanswered.
            or message.path != f"{_PATH}/{self._script}"
        ):
            return False
        answer = message.body[0] if message.body and isinstance(message.body[0], str) else ""
        self._waiting, self._answer = message, answer[: kwin_look.MAX_ANSWER_CHARS]
        self._keeping = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._ask, "")
        self._asked.set()
        return True

    def _ask(self, question: str) -> None:
        """The waiting call is answered with a question, or with none, so that it does not wait for too long."""
        if self._keeping is not None:
            self._keeping.cancel()
        waiting, self._waiting = self._waiting, None
        self._asked.clear()
        if waiting is not None:
            with contextlib.suppress(BusError):
                self._bus.send(Message.new_method_return(waiting, "s", [question]))

    async def look(self, activated: str | None = None) -> Seen:
        """What there is, after the window of this id was activated."""
        turn = secrets.token_hex(8)
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    if self._waiting is None or not self._bus.connected:
                        await self._load()
                    self._ask(kwin_look.question(turn, activated))
                    await self._asked.wait()
                    while kwin_look.turn_of(self._answer) != turn:
                        self._asked.clear()
                        await self._asked.wait()
            except TimeoutError:
                self._ask("")
                raise NotReachable(f"KWin does not run our script within {ANSWER_SECONDS:.0f} s") from None
            except BusError as error:
                raise NotReachable(f"KWin does not run our script: {error}") from error
            return seen_in(self._answer, program_file)

    async def _load(self) -> None:
        with contextlib.suppress(TimeoutError):
            # It may be between two calls.
            async with asyncio.timeout(LOAD_SECONDS if self._script else 0):
                await self._asked.wait()
                return
        self._owner = await self._bus.call(DBUS, "/org/freedesktop/DBus", DBUS, "GetNameOwner", "s", (KWIN,))
        for _ in range(LOAD_TRIES):
            await self.unload()
            self._script = f"bascule_{secrets.token_hex(8)}"
            words = kwin_look.script(self._bus.unique_name, f"{_PATH}/{self._script}", _INTERFACE, self._script)
            with tempfile.NamedTemporaryFile("w", prefix="bascule-", suffix=".js", dir=self._directory) as file:
                file.write(words)
                file.flush()
                number = await self._bus.call(KWIN, *_SCRIPTING, "loadScript", "ss", (file.name, self._script))
                for place in _PLACES:
                    # The one that is there.
                    await self._bus.maybe(KWIN, place.format(number), _SCRIPT, "run")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOAD_SECONDS):
                        await self._asked.wait()
                        return
        raise BusError("it was loaded, and does nothing")

    async def unload(self) -> None:
        if self._script:
            self._ask("")
            await self._bus.maybe(KWIN, *_SCRIPTING, "unloadScript", "s", (self._script,))
            self._script = ""
