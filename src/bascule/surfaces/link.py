"""The link door: framed JSON-RPC on `link.sock`, one object per connection."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from bascule import __version__
from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES, PROTOCOL_VERSION
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import BasculeError, InvalidRequest, TooLarge, Unauthenticated, VersionMismatch
from bascule.foundation.stream import Stream
from bascule.kernel.call import LOCAL, PERSON, Call, Principal, agent_of
from bascule.kernel.gate import Gate
from bascule.kernel.journal_ports import Log
from bascule.kernel.link_protocol import (
    HOUSE_ERROR,
    HelloParams,
    HelloResult,
    McpAnswered,
    McpBecame,
    McpDone,
    McpNotified,
    McpOpen,
    McpRequest,
    StreamItem,
    mismatch_sentence,
)
from bascule.kernel.ports import Presences
from bascule.surfaces.fair_share import FairShare
from bascule.surfaces.mcp.link_sessions import LinkSession, LinkSessions
from bascule.transports.framed import FramedConnection
from bascule.transports.peercred import Peer
from bascule.wire import jsonrpc
from gabp import codec
from gabp.content_length import FrameError

# A peer that connects and says nothing holds a descriptor for nothing.
HELLO_SECONDS = 10.0
# Requests one connection may have open; a stdio program has one per tool call of its model.
MAX_IN_FLIGHT = 4_096

_NOTIFICATION = b'{"jsonrpc":"2.0","method":'
_hello = codec.decoder(HelloParams, max_values=codec.MAX_VALUES)
_cancel = codec.decoder(dict[str, Any], max_values=codec.MAX_VALUES)
# The arguments of a tool may be as deep as the params of a row; they lie three levels further in.
_MCP_DEPTH = codec.MAX_DEPTH + 3
_mcp_open = codec.decoder(McpOpen, max_values=codec.MAX_VALUES)
_mcp_request = codec.decoder(McpRequest, max_depth=_MCP_DEPTH, max_values=codec.MAX_VALUES)
_mcp_notified = codec.decoder(McpNotified, max_values=codec.MAX_VALUES)
_mcp_done = codec.decoder(McpDone, max_values=codec.MAX_VALUES)
_mcp_became = codec.decoder(McpBecame, max_values=codec.MAX_VALUES)
_mcp_answered = codec.decoder(McpAnswered, max_values=codec.MAX_VALUES)


class LinkConnections:
    """All live link connections, and which agents they act as."""

    def __init__(self) -> None:
        self.all: set[LinkConnection] = set()
        self._by_agent: dict[str, set[LinkConnection]] = {}
        self._reserved: dict[str, object] = {}
        self.presences: Presences | None = None

    def others(self, agent_id: str, connection: object | None) -> int:
        holder = self._reserved.get(agent_id)
        held = holder is not None and holder is not connection
        return held + sum(1 for each in self._by_agent.get(agent_id, ()) if each is not connection)

    def reserve(self, agent_id: str, connection: object | None) -> None:
        # Between registering and saying hello with the new token a namesake could read the token file.
        if connection in self.all:
            self._reserved[agent_id] = connection

    def drop(self, agent_id: str) -> None:
        for connection in list(self._by_agent.get(agent_id, ())):
            connection.disown()

    def identified(self, connection: "LinkConnection", old: Principal | None, new: Principal | None) -> None:
        self._release(connection)
        before, after = (agent_of(each) if each else None for each in (old, new))
        if before == after:
            return
        if before is not None:
            members = self._by_agent[before]
            members.discard(connection)
            if not members:
                del self._by_agent[before]
            if self.presences is not None:
                self.presences.disconnected(before)
        if after is not None:
            self._by_agent.setdefault(after, set()).add(connection)
            if self.presences is not None:
                self.presences.connected(after)

    def _release(self, connection: "LinkConnection") -> None:
        for agent_id in [each for each, holder in self._reserved.items() if holder is connection]:
            del self._reserved[agent_id]


class LinkConnection(FramedConnection):
    """One peer: says hello, then calls."""

    def __init__(
        self,
        gate: Gate,
        identify: Callable[[str | None], Principal],
        connections: LinkConnections,
        clock: Clock,
        *,
        log: Log,
        requests: jsonrpc.Requests,
        turns: FairShare,
        mcp_sessions: LinkSessions,
    ) -> None:
        super().__init__(max_body_bytes=MAX_LINK_FRAME_BYTES)
        self._gate = gate
        self._identify = identify
        self._connections = connections
        self._clock = clock
        self._log = log
        self._requests = requests
        self._turns = turns
        self._mcp_sessions = mcp_sessions
        # The MCP session of this connection.
        self._mcp: LinkSession | None = None
        self._principal: Principal | None = None
        self._unlocked_until = 0.0
        self._open_calls: dict[int | str, Deferred[Any] | Stream] = {}
        self._deadline: asyncio.TimerHandle | None = None
        # Recorded in the ledger with each use of the passphrase.
        self.peer: str | None = None
        self._pid = 0

    # -- what the house asks of a connection --

    def unlock(self, seconds: float) -> None:
        self._unlocked_until = self._clock.monotonic() + seconds

    def disown(self) -> None:
        """Its token is no longer good: from now on it is nobody, and soon it is closed."""
        self._connections.identified(self, self._principal, None)
        self._principal = None
        # Not only when the connection is lost: a peer that does not read keeps it from closing.
        self._end_mcp()
        self.close()

    def _end_mcp(self) -> None:
        session, self._mcp = self._mcp, None
        if session is not None:
            session.close()

    def unlocked_for(self) -> float | None:
        left = self._unlocked_until - self._clock.monotonic()
        return left if left > 0 else None

    # -- the connection --

    def on_open(self, peer: Peer | None) -> None:
        # The directory's mode keeps other users out; root walks through modes, so ask the kernel too.
        if peer is None or peer.uid != os.getuid():
            self._log("refused", level="warning", door="link", uid=peer.uid if peer else None)
            self.close()
            return
        self.peer = f"pid {peer.pid} uid {peer.uid}"
        self._pid = peer.pid
        self._connections.all.add(self)
        self._deadline = asyncio.get_running_loop().call_later(HELLO_SECONDS, self.close)

    def on_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - why it ended changes nothing here
        if self._deadline is not None:
            self._deadline.cancel()
        self._connections.all.discard(self)
        open_calls, self._open_calls = self._open_calls, {}
        for waiting in open_calls.values():
            if isinstance(waiting, Stream):
                waiting.close()
            else:
                waiting.cancel()
        self._end_mcp()
        self._connections.identified(self, self._principal, None)
        self._principal = None

    def on_relieved(self) -> None:
        for waiting in list(self._open_calls.values()):
            if isinstance(waiting, Stream) and waiting.on_ready is not None:
                waiting.on_ready()

    def on_bad_frame(self, error: FrameError) -> None:
        self.send(jsonrpc.error_response(None, jsonrpc.PARSE_ERROR, str(error)))

    def must_wait(self, body: bytes) -> bool:
        who = self._principal or self
        if self._turns.take(who, len(body)):
            return False
        self._turns.wait(who, len(body), self.go_on)
        return True

    def on_frame(self, body: bytes) -> None:
        # As our programs write notifications; a try to read one as a request costs more than all the rest of it.
        request = None if body.startswith(_NOTIFICATION) else self._requests.read(body)
        if request is not None:
            self._request(*request)
            return
        try:
            message = jsonrpc.parse(body)
        except jsonrpc.BadEnvelope as error:
            self.send(jsonrpc.error_response(error.id, error.code, error.message))
            return
        if type(message) is jsonrpc.Request:
            if message.method == "hello":
                self._answer_hello(message)
            else:
                self._request(message.id, message.method, message.params)
        elif type(message) is jsonrpc.Notification:
            try:
                self._notified(message.method, message.params)
            except codec.BadJson:
                # A notification has no answer, so its error is dropped.
                return

    def _notified(self, method: str, params: Any) -> None:
        session = self._mcp
        if method == "$/cancel":
            self._cancel(params)
        elif session is None:
            return
        elif method == "mcp.done":
            session.done(_mcp_done.decode(params).call)
        elif method == "mcp.became":
            session.became(_mcp_became.decode(params))
        elif method == "mcp.answer":
            filled = _mcp_answered.decode(params).message
            session.filled(filled.id, filled.result)
        elif method == "mcp.message":
            message = _mcp_notified.decode(params).message
            if message.method == "notifications/cancelled":
                session.cancelled(message.params)

    def _request(self, id_: int | str, method: str, params: Any) -> None:
        try:
            principal = self._principal
            if principal is None:
                raise Unauthenticated("say hello first", hint="the first frame is the request `hello`")
            if method in ("mcp.request", "mcp.open"):
                self._mcp_request(id_, method, params)
                return
            if id_ in self._open_calls:
                raise InvalidRequest(f"request id {id_!r} is in use on this connection")
            if len(self._open_calls) >= MAX_IN_FLIGHT:
                raise InvalidRequest(f"{MAX_IN_FLIGHT} requests are open on this connection")
            if self._unlocked_until and principal == LOCAL and self.unlocked_for() is not None:
                principal = PERSON
            call = Call(principal, method, params, door="link", connection=self, pid=self._pid)
            answer = self._gate.call(call)
        except BasculeError as error:
            self._refuse(id_, error)
            return
        if isinstance(answer, Deferred):
            self._open_calls[id_] = answer
            answer.add_done_callback(partial(self._answer_later, id_, call))
        elif isinstance(answer, Stream):
            self._open_stream(id_, method, answer)
        else:
            self._answer(id_, answer)

    def _mcp_request(self, id_: int | str, method: str, params: Any) -> None:
        try:
            if method == "mcp.request":
                asked: McpRequest = params if type(params) is McpRequest else _mcp_request.decode(params)
                if self._mcp is None:
                    raise InvalidRequest("no MCP session is open on this connection", hint="mcp.open opens one")
                self._mcp.request(id_, asked)
                return
            opening = _mcp_open.decode(params)
        except codec.BadJson as error:
            raise InvalidRequest(error.message, details={"method": method}) from error
        if self._mcp is not None:
            raise InvalidRequest("an MCP session is open on this connection already")
        self._mcp = self._mcp_sessions.begin(opening, self)
        self.reply(id_, b"{}")

    # -- what an MCP session uses --

    @property
    def principal(self) -> Principal | None:
        return self._principal

    def notify(self, method: str, params: bytes) -> None:
        self.send(jsonrpc.notification(method, params))

    def _answer(self, id_: int | str, answer: Any) -> None:
        body = codec.encode(jsonrpc.Answer("2.0", id_, answer))
        if len(body) > MAX_LINK_FRAME_BYTES:
            self._refuse(id_, _too_large(len(body)))
        else:
            self.send(body)

    def reply(self, id_: int | str, body: bytes) -> None:
        if len(body) > MAX_LINK_FRAME_BYTES:
            self._refuse(id_, _too_large(len(body)))
        else:
            self.send(jsonrpc.response(id_, body))

    def _answer_later(self, id_: int | str, call: Call, later: Deferred[Any]) -> None:
        known = self._open_calls.pop(id_, None) is not None
        if later.cancelled():
            if known:
                self._refuse(id_, InvalidRequest("cancelled", hint="the request was withdrawn with $/cancel"))
            return
        error = later.exception()
        if error is not None:
            self._refuse(id_, self._gate.call_log.translate(call, error))
        elif known and self.open:
            self._answer(id_, later.result())
        else:
            self._gate.abandoned(call, later.result())

    def _open_stream(self, id_: int | str, method: str, stream: Stream) -> None:
        """Answer at once, then send each item as a notification named after the stream."""
        self._open_calls[id_] = stream
        self.send(jsonrpc.response(id_, b"{}"))
        name = method.partition(".")[0]
        item_name = f"{name}.item"

        def ready() -> None:
            if self.congested and not stream.ended:
                # The peer does not keep up: items wait in the stream's own bounded buffer, not in ours.
                return
            items, dropped = stream.drain()
            for item in items:
                self.send(codec.encode(jsonrpc.Message("2.0", item_name, StreamItem(stream=id_, item=item))))
            if dropped:
                lost = codec.encode({"stream": id_, "dropped": dropped})
                self.send(jsonrpc.notification(f"{name}.overflow", lost))
            if stream.ended and self._open_calls.pop(id_, None) is not None:
                self.send(jsonrpc.notification(f"{name}.end", codec.encode({"stream": id_})))
                stream.close()

        stream.on_ready = ready
        ready()

    def _cancel(self, params: Any) -> None:
        id_ = _cancel.decode(params).get("id")
        waiting = self._open_calls.get(id_) if isinstance(id_, int | str) else None
        if isinstance(waiting, Stream):
            del self._open_calls[id_]  # type: ignore[arg-type] # found under it just now
            waiting.close()
        elif waiting is not None:
            waiting.cancel()

    def _answer_hello(self, message: jsonrpc.Request) -> None:
        try:
            try:
                params = _hello.decode(message.params)
            except codec.BadJson as error:
                raise InvalidRequest(error.message) from error
            if params.protocol != PROTOCOL_VERSION:
                raise VersionMismatch(mismatch_sentence(params.version, __version__))
            principal = self._identify(params.token)
        except BasculeError as error:
            self._refuse(message.id, error)
            if self._principal is None:
                self.close()
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._connections.identified(self, self._principal, principal)
        self._principal = principal
        result = HelloResult(protocol=PROTOCOL_VERSION, version=__version__, principal=principal)
        self.send(jsonrpc.response(message.id, codec.encode(result)))

    def _refuse(self, id_: int | str, error: BasculeError) -> None:
        data = error.body()
        if error.retry_after is not None:
            data["retryAfterMs"] = round(error.retry_after * 1000)
        self.send(jsonrpc.error_response(id_, HOUSE_ERROR, error.message, data))


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"the answer is {size} bytes; a link frame holds {MAX_LINK_FRAME_BYTES}",
        hint="ask for less at a time, or over HTTP",
    )
