"""Pictures through wlr-screencopy: a part of each output, copied by the compositor into memory that we share."""

import asyncio
import mmap
import os
from typing import Final

import msgspec
from PIL import Image

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.wayland.connection import Connection, Object, settle
from bascule.programs.desktop_host.ports import NotReachable, Shot

# Of wl_shm.format, by how Pillow names the order of their bytes.
_RAW: Final = {0: "BGRX", 1: "BGRX", 0x34324241: "RGBX", 0x34324258: "RGBX"}
_Y_INVERT: Final = 1
# Sixteen thousand by sixteen thousand: no output is larger, and a wrong number costs memory.
MAX_BYTES: Final = 1 << 30


class Output(msgspec.Struct, frozen=True):
    """Where an output is among the others, in the numbers that windows have."""

    name: str
    rect: Rect


class _Buffer(msgspec.Struct):
    format: int
    width: int
    height: int
    stride: int


class _Copy(msgspec.Struct, frozen=True):
    buffer: _Buffer
    data: bytes
    inverted: bool

    def is_plain(self, rect: Rect) -> bool:
        """These are the very bytes that a shot has."""
        buffer = self.buffer
        size = (buffer.width, buffer.height, buffer.stride)
        return not self.inverted and size == (rect.width, rect.height, 4 * rect.width) and _RAW[buffer.format] == "BGRX"

    def image(self) -> Image.Image:
        size = (self.buffer.width, self.buffer.height)
        upright = -1 if self.inverted else 1
        return Image.frombytes("RGB", size, self.data, "raw", _RAW[self.buffer.format], self.buffer.stride, upright)


class Screencopy:
    def __init__(self, connection: Connection, manager: Object, shm: Object) -> None:
        self._connection = connection
        self._manager = manager
        self._shm = shm
        # By name, as the compositor calls them.
        self._outputs: dict[str, Object] = {}
        self._bound: set[int] = set()
        self._turn = asyncio.Lock()

    async def _bind_outputs(self) -> None:
        offered = self._connection.globals.get("wl_output", ())
        for name, version in offered:
            if name not in self._bound:
                self._bound.add(name)
                output = self._connection.bind_name("wl_output", name, version)
                output.handlers["name"] = lambda title, output=output: self._outputs.__setitem__(title, output)
        await self._connection.roundtrip()

    async def grab(self, rect: Rect, outputs: list[Output]) -> Shot:
        async with self._turn:
            if not all(each.name in self._outputs for each in outputs):
                await self._bind_outputs()
            canvas = Image.new("RGB", (rect.width, rect.height))
            for output in outputs:
                part = rect.within(output.rect)
                if part.empty:
                    continue
                if output.name not in self._outputs:
                    raise NotReachable(f"the screen cannot be captured: {output.name} is not known to the compositor")
                inside = part.moved(-output.rect.x, -output.rect.y)
                copy = await self._copy(self._outputs[output.name], inside)
                if part == rect and copy.is_plain(rect):
                    return Shot(rect=rect, pixels=copy.data)
                image = copy.image()
                if image.size != (part.width, part.height):
                    # A screen with a scale has more pixels than the numbers of its windows say.
                    image = image.resize((part.width, part.height), Image.Resampling.BILINEAR)
                canvas.paste(image, (part.x - rect.x, part.y - rect.y))
        return Shot(rect=rect, pixels=canvas.tobytes("raw", "BGRX"))

    async def _copy(self, output: Object, inside: Rect) -> _Copy:
        connection = self._connection
        frame = connection.create(
            self._manager, "capture_output_region", "zwlr_screencopy_frame_v1", 0, output, *inside
        )
        described: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        buffers: list[_Buffer] = []
        flags = 0
        failed = False

        def on_flags(value: int) -> None:
            nonlocal flags
            flags = value

        def on_buffer(*values: int) -> None:
            buffers.append(_Buffer(*values))

        def end(*_: int) -> None:
            settle(described)
            settle(done)

        def fail() -> None:
            nonlocal failed
            failed = True
            end()

        frame.handlers = {
            "buffer": on_buffer,
            "buffer_done": lambda: settle(described),
            "flags": on_flags,
            "ready": end,
            "failed": fail,
        }
        connection.flush()
        try:
            await connection.wait(described)
            usable = [each for each in buffers if each.format in _RAW]
            if failed or not usable:
                raise NotReachable("the screen cannot be captured: the compositor gives no picture that we can read")
            data = await self._into_memory(frame, usable[0], done)
            if failed:
                raise NotReachable("the screen cannot be captured: the compositor could not copy it")
            return _Copy(usable[0], data, bool(flags & _Y_INVERT))
        finally:
            connection.request(frame, "destroy")

    async def _into_memory(self, frame: Object, buffer: _Buffer, done: asyncio.Future[None]) -> bytes:
        connection = self._connection
        size = buffer.stride * buffer.height
        if not 0 < size <= MAX_BYTES:
            raise NotReachable(f"the screen cannot be captured: a picture of {size} bytes")
        descriptor = os.memfd_create("bascule-picture", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, size)
            pool = connection.create(self._shm, "create_pool", "wl_shm_pool", descriptor, size)
            shape = (0, buffer.width, buffer.height, buffer.stride, buffer.format)
            made = connection.create(pool, "create_buffer", "wl_buffer", *shape)
            connection.request(frame, "copy", made)
            connection.request(pool, "destroy")
            connection.flush()
            await connection.wait(done)
            connection.request(made, "destroy")
            with mmap.mmap(descriptor, size, prot=mmap.PROT_READ) as memory:
                return bytes(memory)
        finally:
            os.close(descriptor)
