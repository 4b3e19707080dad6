"""sway's own socket: windows, commands and events. i3's protocol: a magic word, a length, a type, JSON."""

import asyncio
import glob
import os
import struct
from collections.abc import Mapping
from typing import Any, Final

from bascule.programs.desktop_host.ports import BackendError, NotReachable
from gabp import codec

_MAGIC: Final = b"i3-ipc"
_HEADER: Final = struct.Struct("=6sII")
RUN_COMMAND: Final = 0
SUBSCRIBE: Final = 2
GET_OUTPUTS: Final = 3
GET_TREE: Final = 4
GET_VERSION: Final = 7
GET_CONFIG: Final = 9
_EVENT: Final = 1 << 31
_WORKSPACE_EVENT: Final = _EVENT | 0
_BINDING_EVENT: Final = _EVENT | 5
# A tree of five hundred windows has about one.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
ANSWER_SECONDS: Final = 5.0


class Refused(BackendError):
    """sway did not carry out a command."""


def socket_path(environment: Mapping[str, str]) -> str | None:
    """Where sway listens; a daemon that was started elsewhere may not be told, so its usual place is looked at."""
    if found := environment.get("SWAYSOCK"):
        return found
    runtime = environment.get("XDG_RUNTIME_DIR")
    usual = sorted(glob.glob(os.path.join(glob.escape(runtime), f"sway-ipc.{os.getuid()}.*.sock"))) if runtime else []
    # Two of them are two sessions, and which one is meant is not known.
    return usual[0] if len(usual) == 1 else None


class SwayIpc:
    """Questions one after the other, each with its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, path: str) -> "SwayIpc":
        try:
            return cls(*await asyncio.open_unix_connection(path))
        except OSError as error:
            raise NotReachable(f"sway does not listen at {path}: {error.strerror}") from error

    @property
    def connected(self) -> bool:
        return not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def ask(self, kind: int, payload: str = "") -> Any:
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    data = payload.encode()
                    self._writer.write(_HEADER.pack(_MAGIC, len(data), kind) + data)
                    answered, answer = await self._read()
            except (OSError, EOFError, TimeoutError) as error:
                self.close()
                raise NotReachable(f"sway does not answer: {error or type(error).__name__}") from error
            except BaseException:
                # An answer that nobody waits for any more would be taken for the next one.
                self.close()
                raise
        if answered != kind:
            self.close()
            raise NotReachable("sway answered something else than it was asked")
        return answer

    async def command(self, words: str) -> None:
        for each in await self.ask(RUN_COMMAND, words):
            if not each.get("success"):
                raise Refused(f"sway refused {words!r}: {each.get('error')}")

    async def subscribe(self) -> None:
        """From now on this connection is for `next_binding` alone."""
        answer = await self.ask(SUBSCRIBE, '["binding", "workspace"]')
        if not answer.get("success"):
            raise Refused("sway does not tell of key bindings")

    async def next_binding(self) -> str | None:
        """The command of the next key binding that is pressed; None: sway has read its configuration again."""
        while True:
            kind, event = await self._read()
            if kind == _BINDING_EVENT:
                return str(event.get("binding", {}).get("command", ""))
            if kind == _WORKSPACE_EVENT and event.get("change") == "reload":
                return None

    async def _read(self) -> tuple[int, Any]:
        magic, length, kind = _HEADER.unpack(await self._reader.readexactly(_HEADER.size))
        if magic != _MAGIC or length > MAX_ANSWER_BYTES:
            raise EOFError("what listens there is not sway")
        return kind, codec.decode(await self._reader.readexactly(length))
