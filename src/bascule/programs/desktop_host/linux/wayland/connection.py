"""A connection to a Wayland compositor, on the event loop. Requests are kept until `flush`, which is one write.

wlroots and KWin carry out what came in one write before they serve anybody else. That is Wayland's form of a server
grab, and everything that must happen together (this window to the front, this key) relies on it.
"""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from bascule.programs.desktop_host.linux.wayland.interfaces import INTERFACES, Interface
from bascule.programs.desktop_host.linux.wayland.wire import BadWire, Decoder, Message, encode
from bascule.programs.desktop_host.ports import NotReachable

# A compositor answers within a millisecond; one that does not in this time hangs.
ANSWER_SECONDS: Final = 5.0
# Ids from here on are the compositor's.
_FIRST_SERVER_ID: Final = 0xFF00_0000
_READ_BYTES: Final = 64 * 1024
# libwayland sends as many with one message at most.
_MAX_DESCRIPTORS: Final = 28


class Object:
    """Something of the compositor's. `handlers`: what is called with the arguments of an event, by its name."""

    def __init__(self, object_id: int, interface: Interface) -> None:
        self.id = object_id
        self.interface = interface
        self.handlers: dict[str, Callable[..., None]] = {}
        self.alive = True


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decoder = Decoder()
        self._objects: dict[int, Object] = {}
        self._free: list[int] = []
        self._next = 1
        self._out = bytearray()
        self._out_descriptors: list[int] = []
        self._waiting: set[asyncio.Future[None]] = set()
        # Why it is over; None while it is not.
        self.lost: str | None = None
        # What the compositor offers: name by interface, and the version.
        self.globals: dict[str, list[tuple[int, int]]] = {}
        self._display = self._new("wl_display")
        self._display.handlers = {"error": self._on_error, "delete_id": self._on_delete}
        self._registry = self.create(self._display, "get_registry", "wl_registry")
        self._registry.handlers = {"global": self._on_global, "global_remove": self._on_global_remove}
        asyncio.get_running_loop().add_reader(sock.fileno(), self._on_readable)

    @classmethod
    async def open(cls, environment: Mapping[str, str]) -> "Connection":
        path = socket_path(environment)
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            sock.connect(path)
        except OSError as error:
            sock.close()
            raise NotReachable(f"no Wayland compositor at {path}: {error.strerror}") from error
        return await cls.over(sock)

    @classmethod
    async def over(cls, sock: socket.socket) -> "Connection":
        """A socket that is connected already."""
        self = cls(sock)
        try:
            await self.roundtrip()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        self._end("it was closed")

    # -- requests --

    def bind(self, interface: str) -> Object | None:
        """The first object of this kind that is offered; None: there is none."""
        offered = self.globals.get(interface)
        return self.bind_name(interface, *offered[0]) if offered else None

    def bind_name(self, interface: str, name: int, version: int) -> Object:
        made = self._new(interface)
        version = min(version, made.interface.version)
        self.request(self._registry, "bind", name, interface, version, made.id)
        return made

    def create(self, of: Object, request: str, interface: str, *arguments: Any) -> Object:
        """A request that makes an object. Where its id stands among the arguments is in the interface."""
        made = self._new(interface)
        signature = next(each.signature for each in of.interface.requests if each.name == request)
        at = signature.index("n")
        self.request(of, request, *arguments[:at], made.id, *arguments[at:])
        return made

    def request(self, of: Object, name: str, *arguments: Any) -> None:
        """Kept until `flush`. Descriptors stay the caller's, who closes them after it."""
        for opcode, each in enumerate(of.interface.requests):
            if each.name == name:
                values = [value.id if isinstance(value, Object) else value for value in arguments]
                data, descriptors = encode(of.id, opcode, each.signature, values)
                self._out += data
                self._out_descriptors += descriptors
                break
        else:
            raise BadWire(f"{of.interface.name} has no request {name}")
        if name == of.interface.destructor:
            of.alive = False
            of.handlers = {}

    def flush(self) -> None:
        """Everything since the last time, in one write."""
        if self.lost is not None:
            raise NotReachable(f"the connection to the Wayland compositor is over: {self.lost}")
        if not self._out:
            return
        data, descriptors = bytes(self._out), self._out_descriptors
        self._out, self._out_descriptors = bytearray(), []
        beside = []
        if descriptors:
            packed = struct.pack(f"{len(descriptors)}i", *descriptors)
            beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)]
        try:
            sent = self._socket.sendmsg([data], beside)
        except OSError as error:
            self._end(str(error))
            raise NotReachable(f"the Wayland compositor is gone: {error}") from error
        if sent != len(data):
            # What must happen together would not: better none of it.
            self._end("it does not read what is sent")
            raise NotReachable("the Wayland compositor does not read what is sent")

    def known(self, object_id: int) -> Object | None:
        return self._objects.get(object_id)

    async def roundtrip(self) -> None:
        """Until everything so far was carried out, and the events of it were handled."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        callback = self.create(self._display, "sync", "wl_callback")
        callback.handlers["done"] = lambda _: settle(done)
        self.flush()
        await self.wait(done)

    async def wait(self, future: asyncio.Future[None], seconds: float = ANSWER_SECONDS) -> None:
        """For an event; no longer than the connection lasts."""
        if self.lost is None:
            self._waiting.add(future)
            future.add_done_callback(self._waiting.discard)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            raise NotReachable(f"the Wayland compositor does not answer within {seconds:.0f} s") from None

    def _new(self, interface: str, object_id: int | None = None) -> Object:
        if object_id is None:
            object_id = self._free.pop() if self._free else self._next
            if object_id == self._next:
                self._next += 1
        made = self._objects[object_id] = Object(object_id, INTERFACES[interface])
        return made

    # -- events --

    def _on_readable(self) -> None:
        try:
            data, descriptors, flags, _ = socket.recv_fds(self._socket, _READ_BYTES, _MAX_DESCRIPTORS)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error))
            return
        if not data or flags & socket.MSG_CTRUNC:
            self._end("the compositor closed it")
            return
        for each in descriptors:
            os.set_inheritable(each, False)
        self._decoder.feed(data, descriptors)
        try:
            while self.lost is None and (message := self._decoder.next(self._signature)) is not None:
                self._dispatch(message)
        except BadWire as error:
            self._end(str(error))

    def _signature(self, object_id: int, opcode: int) -> str | None:
        found = self._objects.get(object_id)
        if found is None:
            return None
        if opcode >= len(found.interface.events):
            raise BadWire(f"{found.interface.name} has no event {opcode}")
        return found.interface.events[opcode].signature

    def _dispatch(self, message: Message) -> None:
        found = self._objects.get(message.object_id)
        if found is None:
            return
        event = found.interface.events[message.opcode]
        arguments: list[Any] = list(message.arguments)
        if event.creates is not None:
            at = event.signature.index("n")
            if arguments[at] < _FIRST_SERVER_ID:
                raise BadWire("the compositor made an object with an id of ours")
            arguments[at] = self._new(event.creates, arguments[at])
        handler = found.handlers.get(event.name)
        if handler is not None:
            handler(*arguments)
            return
        for kind, value in zip(event.signature, message.arguments, strict=True):
            if kind == "h":
                # Nobody wants it, and it is ours all the same.
                os.close(value)

    def _on_error(self, object_id: int, code: int, words: str) -> None:
        found = self._objects.get(object_id)
        self._end(f"{found.interface.name if found else object_id} error {code}: {words}")

    def _on_delete(self, object_id: int) -> None:
        if self._objects.pop(object_id, None) is not None and object_id < _FIRST_SERVER_ID:
            self._free.append(object_id)

    def _on_global(self, name: int, interface: str, version: int) -> None:
        self.globals.setdefault(interface, []).append((name, version))

    def _on_global_remove(self, name: int) -> None:
        for offered in self.globals.values():
            offered[:] = [each for each in offered if each[0] != name]

    def _end(self, why: str) -> None:
        if self.lost is not None:
            return
        self.lost = why
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        for each in self._decoder.left_over():
            with contextlib.suppress(OSError):
                os.close(each)
        for future in tuple(self._waiting):
            if not future.done():
                future.set_exception(NotReachable(f"the Wayland compositor is gone: {why}"))


def socket_path(environment: Mapping[str, str]) -> str:
    name = environment.get("WAYLAND_DISPLAY")
    if not name:
        raise NotReachable("WAYLAND_DISPLAY is not set")
    return name if os.path.isabs(name) else os.path.join(environment.get("XDG_RUNTIME_DIR", ""), name)


def settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
