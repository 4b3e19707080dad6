"""Our extension in GNOME Shell, by D-Bus: found, proved to be the shell's, and asked."""

import asyncio
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Final

from bascule.desktop.gnome import BUS_NAME, BUS_PATH, proof, token_file
from bascule.foundation import paths
from bascule.programs.desktop_host.linux.bus import DBUS, Bus, BusError, session_address
from bascule.programs.desktop_host.ports import NotReachable

_SHELL: Final = "org.gnome.Shell"
# A look takes 2 ms, a picture of the whole screen 200; a shell that draws on the processor is slower by far.
ANSWER_SECONDS: Final = 10.0
_NONCE_BYTES: Final = 32
# It has forgotten us, or is not where it was: what was asked was not done.
_NOT_DONE: Final = (f"{BUS_NAME}.Refused", *(f"{DBUS}.Error.{name}" for name in ("UnknownObject", "UnknownMethod")))
_NO_OWNER: Final = f"{DBUS}.Error.NameHasNoOwner"

WHY: Final = "GNOME gives pictures, keys and clicks to Bascule's extension alone"
REMEDY: Final = (
    "let a person run `bascule desktop gnome install`, which shows what it does first; then log out and in again. "
    "Where it is installed: unlock the screen, or switch it on in the Extensions program"
)


class NotThere(NotReachable):
    """The extension is not installed, or does not run."""


class GnomeLink:
    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._bus: Bus | None = None
        # The unique bus name of a shell that has proved itself, and to which we did.
        self._shell: str | None = None
        self._opening = asyncio.Lock()

    async def bus(self) -> Bus:
        if self._bus is None or not self._bus.connected:
            address = session_address(self._environment)
            if address is None:
                raise NotReachable("DBUS_SESSION_BUS_ADDRESS is not set")
            self._shell = None
            self._bus = await Bus.open(address, descriptors=True)
        return self._bus

    async def open(self) -> None:
        """Raises NotThere where it does not run; NotReachable where what runs cannot be trusted or does not answer."""
        try:
            async with self._opening, asyncio.timeout(ANSWER_SECONDS):
                bus = await self.bus()
                if self._shell is None:
                    self._shell = await self._prove(bus)
        except BusError as error:
            raise NotReachable(f"GNOME's shell does not answer: {error}") from error
        except TimeoutError:
            # The next call tries again.
            raise _late() from None

    async def _prove(self, bus: Bus) -> str:
        token = _token()
        found = await owner_of(bus, BUS_NAME)
        if found is None:
            raise NotThere(f"{WHY}, which does not run")
        if found != await owner_of(bus, _SHELL):
            raise NotReachable(f"another program than GNOME's shell has the bus name {BUS_NAME}: end it")
        ours = secrets.token_hex(_NONCE_BYTES)
        theirs, _, proved = str(await bus.call(found, BUS_PATH, BUS_NAME, "Hello", "s", (ours,))).partition(" ")
        about = (found, bus.unique_name, ours, theirs)
        if not hmac.compare_digest(proved.encode(), proof(token, "shell", *about).encode()):
            raise NotReachable("the extension in GNOME's shell has another token: install it again, and log in again")
        await bus.call(found, BUS_PATH, BUS_NAME, "Open", "s", (proof(token, "host", *about),))
        return found

    async def ask(self, member: str, signature: str = "", *body: Any) -> Any:
        """What it answers. An extension that was switched off and on meanwhile is asked again."""
        try:
            await self.open()
            try:
                return await self._call(member, signature, body)
            except BusError as error:
                if not str(error).endswith(_NOT_DONE):
                    raise
            self._shell = None
            await self.open()
            return await self._call(member, signature, body)
        except BusError as error:
            self._shell = None
            raise NotReachable(f"the extension in GNOME's shell does not do it: {error}") from error
        except TimeoutError:
            raise _late() from None

    async def _call(self, member: str, signature: str, body: tuple[Any, ...]) -> Any:
        bus = await self.bus()
        if self._shell is None:
            raise NotReachable("the connection to GNOME's shell was lost")
        async with asyncio.timeout(ANSWER_SECONDS):
            return await bus.call(self._shell, BUS_PATH, BUS_NAME, member, signature, body)

    def is_shell(self, sender: str | None) -> bool:
        """Nobody else's words are taken for its."""
        return self._shell is not None and sender == self._shell

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
        self._bus = self._shell = None


def _late() -> NotReachable:
    return NotReachable(f"GNOME's shell does not answer within {ANSWER_SECONDS:.0f} s; try again")


def _token() -> str:
    try:
        return paths.read_private_file(token_file())
    except FileNotFoundError:
        raise NotThere(f"{WHY}, which is not installed") from None
    except (OSError, paths.UnsafePlace) as error:
        raise NotReachable(f"the token of the extension cannot be read: {error}") from error


async def owner_of(bus: Bus, name: str) -> str | None:
    try:
        return str(await bus.call(DBUS, "/org/freedesktop/DBus", DBUS, "GetNameOwner", "s", (name,)))
    except BusError as error:
        if str(error).endswith(_NO_OWNER):
            return None
        raise
