"""A client of the desktop host: one connection, any number of requests at once."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.extensions import Stopped
from bascule.desktop.host_methods import METHODS, STOPPED
from bascule.desktop.protocol import DEFAULT_TIMEOUT_MS, SCHEMA_VERSION
from bascule.transports.framed import FramedConnection
from bascule.wire import jsonrpc
from gabp import codec

# What a host may answer: a snapshot and refs, and one picture made small; the others stay on disk.
MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
# Beyond the request's own limit, before we stop believing in the host.
GRACE_SECONDS: Final = 10.0
STOP_SECONDS: Final = 5.0


# msgspec knows no union with Raw.
_ABSENT: Final = codec.Raw(b"")


class _Error(msgspec.Struct):
    code: str
    message: str
    retryable: bool = False
    details: dict[str, Any] = {}


class _Answer(msgspec.Struct):
    id: int | str | None = None
    # Of a notification, which has no id.
    method: str | None = None
    params: codec.Raw = _ABSENT
    result: codec.Raw = _ABSENT
    error: _Error | None = None


_answer = codec.decoder(_Answer, max_depth=codec.MAX_ANSWER_DEPTH)
_stopped = codec.decoder(Stopped)
_results: Final = {name: codec.decoder(row.result, max_depth=codec.MAX_ANSWER_DEPTH) for name, row in METHODS.items()}


class HostLost(Exception):
    """The host is gone, or says what cannot be understood. Whether the last act happened is not known."""


class _Connection(FramedConnection):
    def __init__(self) -> None:
        super().__init__(max_body_bytes=MAX_ANSWER_BYTES)
        self.pending: dict[str, asyncio.Future[_Answer]] = {}
        self.on_stopped: Callable[[int], None] | None = None
        self.on_gone: Callable[[str], None] | None = None

    def on_frame(self, body: bytes) -> None:
        try:
            answer = _answer.decode(body)
        except codec.BadJson:
            self.close()
            return
        if answer.method is not None:
            self._notified(answer)
            return
        waiting = self.pending.pop(str(answer.id), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _notified(self, message: _Answer) -> None:
        """What a later host says besides is not for us."""
        if message.method == STOPPED and message.params is not _ABSENT and self.on_stopped is not None:
            with contextlib.suppress(codec.BadJson):
                self.on_stopped(_stopped.decode(message.params).aborted)

    def on_lost(self, error: Exception | None) -> None:
        pending, self.pending = self.pending, {}
        reason = f"the desktop host closed the connection: {error or 'it ended'}"
        for waiting in pending.values():
            if not waiting.done():
                waiting.set_exception(HostLost(reason))
        if self.on_gone is not None:
            self.on_gone(reason)


class HostClient:
    """`call` gives the method's result, or raises DesktopError with the contract's code.

    `on_stopped` is called with the number of aborted calls when somebody else stops all input: the person by the
    keys, a signal, another process. `on_lost` is called with the reason when the host goes away by itself; what was
    under way then raises HostLost. Both on the event loop, while a message is read: they must not wait.
    """

    def __init__(
        self,
        connection: _Connection,
        workspace: str,
        child: asyncio.subprocess.Process | None = None,
        *,
        on_stopped: Callable[[int], None] | None = None,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        self._connection = connection
        self._workspace = workspace
        self._child = child
        connection.on_stopped = on_stopped
        connection.on_gone = on_lost

    @classmethod
    async def connect(cls, path: str, workspace: str, **callbacks: Any) -> "HostClient":
        try:
            _, connection = await asyncio.get_running_loop().create_unix_connection(_Connection, path)
        except OSError as error:
            raise HostLost(f"no desktop host listens on {path}: {error.strerror}") from error
        return cls(connection, workspace, **callbacks)

    @classmethod
    async def spawn(
        cls,
        root: str,
        workspace: str,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        **callbacks: Any,
    ) -> "HostClient":
        """A host of our own, on a socketpair: nobody else can reach it, and it ends with us."""
        ours, theirs = socket.socketpair()
        with theirs:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "bascule.cli.start", "desktop-host", "--no-phrase"),
                *("--fd", str(theirs.fileno()), "--workspace-root", root, *options),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=None if environment is None else dict(environment),
            )
        ours.setblocking(False)
        _, connection = await asyncio.get_running_loop().connect_accepted_socket(_Connection, ours)
        return cls(connection, workspace, child, **callbacks)

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        workspace: str | None = None,
        client: str | None = None,
    ) -> Any:
        """`client`: on whose behalf; what the host keeps for one of them is nothing to another."""
        id_ = str(uuid.uuid4())
        meta = {
            "schemaVersion": SCHEMA_VERSION,
            "requestId": request_id or id_,
            "workspacePath": workspace or self._workspace,
            "timeoutMs": timeout_ms,
            **({} if client is None else {"client": client}),
        }
        if not self._connection.open:
            raise HostLost("the desktop host is gone")
        waiting: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._connection.pending[id_] = waiting
        self._connection.send(jsonrpc.request(id_, method, codec.encode({"meta": meta, **(params or {})})))
        try:
            async with asyncio.timeout(timeout_ms / 1000 + GRACE_SECONDS):
                answer = await waiting
        except TimeoutError:
            raise HostLost(f"the desktop host did not answer {method} in time") from None
        except asyncio.CancelledError:
            self._abandon(method, meta)
            raise
        finally:
            self._connection.pending.pop(id_, None)
        if answer.error is not None:
            try:
                code = Code(answer.error.code)
            except ValueError:
                code = Code.INTERNAL_ERROR
            raise DesktopError(code, answer.error.message, **answer.error.details)
        if answer.result is _ABSENT:
            raise HostLost("the desktop host answered neither result nor error")
        try:
            return _results[method].decode(answer.result)
        except codec.BadJson as error:
            raise HostLost(f"the desktop host's answer to {method} is not understood: {error.message}") from error

    def _abandon(self, method: str, meta: dict[str, Any]) -> None:
        """Nobody waits for it any more, so nobody wants it done: on a shared connection only we can say so."""
        if self._connection.open and not METHODS[method].at_once:
            params = {"meta": {**meta, "requestId": str(uuid.uuid4())}, "executionId": meta["requestId"]}
            self._connection.send(jsonrpc.request(str(uuid.uuid4()), "desktop.abort", codec.encode(params)))

    async def confirmed(self, method: str, params: Mapping[str, Any], **more: Any) -> Any:
        """Issue a token for exactly this, and use it. The caller has asked the person where that is needed."""
        bound = {name: more[name] for name in ("workspace", "client") if name in more}
        intent = {"method": method, "params": dict(params)}
        issued = await self.call("desktop.confirm.issue", {"intent": intent}, **bound)
        return await self.call(method, {**params, "confirm": {"token": issued.token}}, **more)

    def stop_input(self) -> None:
        """As the person's keys do: the host aborts what it does and takes no more. From any thread."""
        if self._child is not None:
            self._child.send_signal(signal.SIGUSR1)

    async def close(self) -> None:
        # What we end ourselves is not lost.
        self._connection.on_gone = None
        self._connection.close()
        if self._child is None:
            return
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, 9)
            await self._child.wait()
