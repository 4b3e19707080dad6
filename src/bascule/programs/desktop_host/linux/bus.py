"""A D-Bus connection that a frozen or hostile program cannot take down with it.

dbus-fast gives calls no time limit, and a connection that has thousands of calls under way breaks for good when the
socket is full. So calls to one program are counted, and the caller sets a limit around what it does.
"""

import asyncio
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

# Near the best speed (8 to 256 measured alike), and far from the thousands that break the connection.
MAX_IN_FLIGHT: Final = 64

DBUS: Final = "org.freedesktop.DBus"
PROPERTIES: Final = "org.freedesktop.DBus.Properties"

# The object is no more, or its program is not: what was known of it is stale.
_GONE: Final = frozenset(
    f"{DBUS}.Error.{name}"
    for name in ("UnknownObject", "ServiceUnknown", "NoReply", "Disconnected", "NameHasNoOwner", "NoServer")
)


def session_address(environment: Mapping[str, str]) -> str | None:
    """Of the session bus. systemd's user bus is where a session's programs are, though only login shells are told."""
    runtime = environment.get("XDG_RUNTIME_DIR")
    known = f"unix:path={runtime}/bus" if runtime and os.path.exists(os.path.join(runtime, "bus")) else None
    return environment.get("DBUS_SESSION_BUS_ADDRESS") or known


class BusError(Exception):
    """A call was answered with an error: the program does not do this, or refuses it."""


class Gone(BusError):
    """The object, or the whole program, is not there any more."""


class BusLost(Gone):
    """The connection itself is gone; the next use opens another."""


class _Connected(socket.socket):
    """What is connected already is not connected again."""

    def connect(self, _address: Any, /) -> None:
        return


class _Given(MessageBus):
    """dbus-fast opens its sockets itself, in this one place."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(bus_address="unix:path=/given", negotiate_unix_fd=True)
        self._given = sock

    def _create_socket_for_transport(  # type: ignore[override]  # there it needs no `self`
        self, _transport: str, _options: dict[str, str]
    ) -> tuple[socket.socket, Any, str]:
        sock = _Connected(fileno=self._given.detach())
        return sock, sock.makefile("rwb"), "given"


class Bus:
    """One connection. Errors are BusError, whatever dbus-fast raises."""

    def __init__(self, connection: MessageBus) -> None:
        self._connection = connection
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_IN_FLIGHT))

    @classmethod
    async def open(cls, address: str, *, descriptors: bool = False) -> "Bus":
        """`descriptors`: they may go with its calls."""
        try:
            return cls(await MessageBus(bus_address=address, negotiate_unix_fd=descriptors).connect())
        except Exception as error:
            # dbus-fast lets out whatever the socket, the handshake or a malformed address raised.
            raise BusLost(f"cannot connect to the bus: {error}") from error

    @classmethod
    async def over(cls, sock: socket.socket) -> "Bus":
        """A socket that is connected already. Descriptors may go with its calls."""
        try:
            return cls(await _Given(sock).connect())
        except Exception as error:
            # As above.
            sock.close()
            raise BusLost(f"cannot connect to the bus: {error}") from error

    @property
    def unique_name(self) -> str:
        return str(self._connection.unique_name)

    @property
    def connected(self) -> bool:
        return bool(self._connection.connected)

    def close(self) -> None:
        self._connection.disconnect()

    def forget(self, destination: str) -> None:
        self._turns.pop(destination, None)

    async def call(  # noqa: PLR0917 - the order D-Bus has them in
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str = "",
        body: Sequence[Any] = (),
        descriptors: Sequence[int] = (),
    ) -> Any:
        """The first value of the answer; None when it has none."""
        reply = await self._asked(destination, path, interface, member, signature, body, descriptors)
        return reply.body[0] if reply.body else None

    async def descriptor(  # noqa: PLR0917 - the order D-Bus has them in
        self, destination: str, path: str, interface: str, member: str, signature: str, body: Sequence[Any]
    ) -> int:
        """The one that is answered with: the caller closes it."""
        reply = await self._asked(destination, path, interface, member, signature, body, ())
        if not reply.unix_fds:
            raise BusError(f"{member} on {path}: no descriptor came")
        return int(reply.unix_fds[0])

    async def _asked(  # noqa: PLR0917 - as above
        self,
        destination: str,
        path: str,
        interface: str,
        member: str,
        signature: str,
        body: Sequence[Any],
        descriptors: Sequence[int],
    ) -> Message:
        message = Message(
            destination=destination,
            path=path,
            interface=interface,
            member=member,
            signature=signature,
            body=list(body),
            unix_fds=list(descriptors),
        )
        async with self._turns[destination]:
            try:
                reply = await self._connection.call(message)
            except (OSError, EOFError) as error:
                raise BusLost(f"the accessibility bus is gone: {error}") from error
            except AttributeError as error:
                # A connection that was finalized has no writer left to schedule on.
                raise BusLost("the accessibility bus is gone") from error
        if reply is None:
            raise BusLost("the accessibility bus is gone")
        if reply.message_type is MessageType.ERROR:
            name = reply.error_name or ""
            raise (Gone if name in _GONE else BusError)(f"{member} on {path}: {name}")
        return reply

    async def maybe(self, *arguments: Any) -> Any:
        """`call`, with None for whatever the program does not do or no longer has."""
        try:
            return await self.call(*arguments)
        except BusError:
            if not self.connected:
                raise BusLost("the accessibility bus is gone") from None
            return None

    async def prop(self, destination: str, path: str, interface: str, name: str) -> Any:
        variant = await self.maybe(destination, path, PROPERTIES, "Get", "ss", (interface, name))
        return getattr(variant, "value", None)

    async def match(self, rule: str, *, on: bool) -> None:
        await self.maybe(DBUS, "/org/freedesktop/DBus", DBUS, "AddMatch" if on else "RemoveMatch", "s", (rule,))

    def send(self, message: Message) -> None:
        """An answer to a call of somebody's."""
        if not self.connected:
            raise BusLost("the bus is gone")
        self._connection.send(message)

    def listen(self, handler: Callable[[Message], bool | None]) -> None:
        """True: it was a call to us, and is answered by us."""
        self._connection.add_message_handler(handler)
