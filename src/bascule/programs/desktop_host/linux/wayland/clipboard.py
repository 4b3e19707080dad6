"""The clipboard through data control: we own it for the moment of a paste, and then give back what was there."""

import asyncio
import contextlib
import fcntl
import os
import sys
import termios
from typing import Final

import msgspec

from bascule.foundation.tasks import Tasks
from bascule.programs.desktop_host.linux.clipboard import (
    HALT_SECONDS,
    MAX_SAVED_BYTES,
    MAX_SAVED_TARGETS,
    NOT_DATA,
    SAVE_SECONDS,
    TAKE_SECONDS,
    Fetches,
)
from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object
from bascule.programs.desktop_host.ports import Clipboard as Outcome
from bascule.programs.desktop_host.ports import Halt

TEXT_TYPES: Final = ("text/plain;charset=utf-8", "UTF8_STRING", "text/plain", "TEXT", "STRING")
# Clipboard managers that keep a history leave out what says this.
SECRET_HINT: Final = "x-kde-passwordManagerHint"  # noqa: S105 - the name of a type
_READ_BYTES: Final = 64 * 1024
# How soon a full pipe is looked at again.
_PIPE_SECONDS: Final = 0.001


class Saved(msgspec.Struct):
    """What was there, by type. `lost`: there was something we could not take."""

    contents: dict[str, bytes]
    lost: bool = False


class WaylandClipboard:
    def __init__(self, connection: Connection, manager: Object, seat: Object) -> None:
        self._connection = connection
        self._manager = manager
        self._device = connection.create(manager, "get_data_device", "zwlr_data_control_device_v1", seat)
        self._device.handlers = {"data_offer": self._on_offer, "selection": self._on_selection}
        self._types: dict[int, list[str]] = {}
        # What somebody else has put there.
        self._offer: Object | None = None
        # What we have put there, as long as nobody else did.
        self._source: Object | None = None
        self._content: dict[str, bytes] = {}
        self._fetches = Fetches()
        # Who asked and did not get it asks again, or shows nothing.
        self._sending = Tasks(lambda _name, _error: None)

    async def close(self) -> None:
        await self._sending.close()

    # -- what is there --

    def _on_offer(self, offer: Object) -> None:
        types = self._types[offer.id] = []
        offer.handlers["offer"] = lambda kind: types.append(kind) if len(types) < MAX_SAVED_TARGETS else None

    def _on_selection(self, offer_id: int) -> None:
        if self._offer is not None and self._offer.id != offer_id:
            self._types.pop(self._offer.id, None)
            if self._offer.alive:
                self._connection.request(self._offer, "destroy")
        self._offer = self._connection.known(offer_id) if offer_id else None

    async def save(self) -> Saved:
        if self._source is not None:
            return Saved(dict(self._content))
        offer = self._offer
        if offer is None:
            return Saved({})
        saved = Saved({})
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                # Some name a type twice, and GTK 3 names what it never answers.
                for kind in dict.fromkeys(self._types.get(offer.id, ())):
                    if kind in NOT_DATA:
                        continue
                    data = await self._receive(offer, kind, MAX_SAVED_BYTES - sum(map(len, saved.contents.values())))
                    if data is None:
                        saved.lost = saved.lost or kind in TEXT_TYPES
                    else:
                        saved.contents[kind] = data
        except TimeoutError:
            saved.lost = True
        saved.lost = saved.lost or not saved.contents
        return saved

    async def _receive(self, offer: Object, kind: str, most: int) -> bytes | None:
        """None: more than `most`, or nothing came."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._connection.request(offer, "receive", kind, write)
            self._connection.flush()
        finally:
            os.close(write)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0)
        )
        data = bytearray()
        try:
            while chunk := await reader.read(_READ_BYTES):
                data += chunk
                if len(data) > most:
                    return None
        finally:
            transport.close()
        return bytes(data)

    # -- what we put there --

    def offer(self, text: str) -> None:
        """From the next write on a paste gives this text. Kept until `flush`, so that a key can go with it."""
        data = text.encode()
        self._fetches = Fetches()
        self._own({**dict.fromkeys(TEXT_TYPES, data), SECRET_HINT: b"secret"})

    def _own(self, content: dict[str, bytes]) -> None:
        before = self._source
        source = self._connection.create(self._manager, "create_data_source", "zwlr_data_control_source_v1")
        for kind in content:
            self._connection.request(source, "offer", kind)
        source.handlers = {"send": self._on_send, "cancelled": lambda: self._on_cancelled(source)}
        self._source, self._content = source, content
        self._connection.request(self._device, "set_selection", source)
        if before is not None:
            self._connection.request(before, "destroy")

    def _on_send(self, kind: str, descriptor: int) -> None:
        data = self._content.get(kind, b"")
        self._sending.start(self._send(descriptor, data, text=kind in TEXT_TYPES), "clipboard")

    async def _send(self, descriptor: int, data: bytes, *, text: bool) -> None:
        fetches = self._fetches
        os.set_blocking(descriptor, False)
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                await write_all(descriptor, data)
        except (OSError, TimeoutError):
            # Whoever asked has gone, or does not read.
            return
        finally:
            os.close(descriptor)
        if text:
            # Read to the end; GTK 3 would drop what is still in the pipe when the clipboard changes hands.
            fetches.note()

    def _on_cancelled(self, source: Object) -> None:
        if self._source is source:
            self._source, self._content = None, {}
        if source.alive:
            self._connection.request(source, "destroy")

    async def wait_taken(self, halt: Halt) -> bool:
        """Whether somebody fetched the text since it was offered."""
        while (over := self._fetches.over()) is None:
            halt.check()
            await asyncio.sleep(HALT_SECONDS)
        return over

    async def restore(self, saved: Saved) -> Outcome:
        if self._source is not None:
            # Else somebody copied something meanwhile: that is the person's now, and the old is not wanted back.
            if saved.contents:
                self._own(saved.contents)
            else:
                before, self._source, self._content = self._source, None, {}
                self._connection.request(self._device, "set_selection", None)
                self._connection.request(before, "destroy")
            await self._connection.roundtrip()
        if saved.lost:
            return "lost"
        return "restored" if saved.contents else "empty"


async def write_all(descriptor: int, data: bytes) -> None:
    """All of it, and until the reader has taken it out of the pipe."""
    left = memoryview(data)
    while left or _unread(descriptor):
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(descriptor, left) :]
        if left or _unread(descriptor):
            await asyncio.sleep(_PIPE_SECONDS)


def _unread(descriptor: int) -> int:
    count = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)
