"""The SDK's streamable HTTP behind our gate.

Answers are SSE where they take their time and JSON where they do not, as the SDK decides for each era: a waiting
tool call sends progress and keep-alive comments on its own stream, which plain JSON could not, and clients drop a
connection that says nothing. A client of 2026-07-28 whose answer is there at once gets plain JSON all the same.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from bascule.foundation.errors import Forbidden, UnsupportedMediaType
from bascule.kernel.call import Principal, agent_of
from bascule.kernel.identity.tokens import hash_token
from bascule.surfaces.mcp.delivery import Delivery, Message, Receive, Scope, Send
from bascule.surfaces.mcp.sessions import Session, Sessions
from gabp import codec

# The App has read and measured the body; the SDK's own limit must only not be lower.
MAX_BODY_BYTES = 8 * 1024 * 1024
# All agents together; each has far fewer, so this bounds a house with very many agents.
MAX_SESSIONS = 10_000
# As long as an agent without a sign of life counts as online.
SESSION_IDLE_SECONDS = 30 * 60.0
# Calls whose waits were just ended need a moment to write their answers.
FAREWELL_SECONDS = 1.0
# Keys of ours in the ASGI scope, for the handlers behind the SDK.
PRINCIPAL = "bascule.principal"
DELIVERY = "bascule.delivery"
SESSION = "bascule.session"

_SESSION_HEADER = b"mcp-session-id"
_PARSE_ERROR = -32700
_any = codec.decoder(Any, max_values=codec.MAX_VALUES)


class McpDoor:
    def __init__(
        self, server: Server[Any], sessions: Sessions, policy_changed: Callable[[], None] = lambda: None
    ) -> None:
        self.policy_changed = policy_changed
        self._sessions = sessions
        self._manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=SESSION_IDLE_SECONDS,
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=MAX_SESSIONS,
        )
        self._stop = asyncio.Event()
        self._calls = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def run(self, running: Callable[[], None]) -> None:
        async with asyncio.TaskGroup() as group:
            self._sessions.group = group
            async with self._manager.run():
                running()
                await self._stop.wait()
            self._sessions.group = None

    async def stop(self) -> None:
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._quiet.wait()
        except TimeoutError:
            pass
        self._stop.set()

    async def __call__(self, principal: Principal, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        handle = agent_of(principal)
        if handle is None:
            raise Forbidden(
                "/mcp serves agents, and this request has no agentToken",
                hint="register first (`bridge-register --agent Jerry`) and send the agentToken that it stores in "
                "tokens/+jerry.token of the state directory as `Authorization: Bearer ...`, from the client's user "
                "settings or an environment variable, never from a project file; or let the client start "
                "`bascule mcp`, which needs no token",
            )
        if scope["method"] == "POST" and not _is_json(scope["headers"]):
            # The SDK would say so in words without a type.
            raise UnsupportedMediaType("the body must be JSON", hint="send the header `Content-Type: application/json`")
        if body and (fault := _fault_in(body)):
            await _refuse_body(send, fault)
            return
        user = _user(handle, scope)
        session = self._sessions.find(principal, _session_id(scope["headers"]))
        delivery = Delivery(body, receive, self._watched(send, scope["method"], principal, user, session))
        inner = {
            **scope,
            "headers": _headers(scope),
            "user": user,
            PRINCIPAL: principal,
            DELIVERY: delivery,
            SESSION: session,
        }
        self._begin(scope["method"], session)
        try:
            await delivery.serve(self._manager.handle_request, inner)
        finally:
            self._end(scope["method"], session)

    def _begin(self, verb: str, session: Session | None) -> None:
        if session is not None:
            session.requests += 1
        if verb == "POST":
            self._calls += 1
            self._quiet.clear()

    def _end(self, verb: str, session: Session | None) -> None:
        if session is not None:
            session.requests -= 1
            if verb == "GET":
                self._sessions.set_listening(session, on=False)
        if verb == "POST":
            self._calls -= 1
            if not self._calls:
                self._quiet.set()

    def _watched(
        self, send: Send, verb: str, principal: Principal, user: AuthenticatedUser, session: Session | None
    ) -> Send:
        """Learn from the SDK's answers which sessions begin, end and listen."""

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 300:
                opened = _session_id(message["headers"])
                if session is None:
                    if verb == "POST" and opened is not None:
                        self._opened(Session(opened, principal, user))
                elif verb == "GET":
                    self._sessions.set_listening(session, on=True)
                elif verb == "DELETE":
                    self._sessions.forget(session)
            await send(message)

        return watched

    def _opened(self, session: Session) -> None:
        surplus = self._sessions.opened(session)
        if surplus is not None and self._sessions.group is not None:
            self._sessions.forget(surplus)
            self._sessions.group.create_task(self._end_session(surplus))

    async def _end_session(self, session: Session) -> None:
        """What its client would have done had it said goodbye."""
        scope: Scope = {
            "type": "http",
            "method": "DELETE",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(_SESSION_HEADER, session.session_id.encode())],
            "user": session.user,
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_message: Message) -> None:
            return

        await self._manager.handle_request(scope, receive, send)


def _session_id(headers: list[tuple[bytes, bytes]]) -> str | None:
    return next((value.decode("latin-1") for name, value in headers if name.lower() == _SESSION_HEADER), None)


def _is_json(headers: list[tuple[bytes, bytes]]) -> bool:
    kind = next((value for name, value in headers if name == b"content-type"), b"")
    return kind.partition(b";")[0].strip().lower() == b"application/json"


def _headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """For the SDK, which compares some of them with the body: without the space around a value (RFC 9110, 5.5),
    and without the token, since a session keeps what opened it.
    """
    return [(name, value.strip(b" \t")) for name, value in scope["headers"] if name != b"authorization"]


def _user(handle: str, scope: Scope) -> AuthenticatedUser:
    """To whom the SDK binds a session: this handle under this token. It gets the token's hash, never the token."""
    bearer = next(value for name, value in scope["headers"] if name == b"authorization")
    # The gate has found it well formed.
    hashed = hash_token(bearer.decode("latin-1").strip(" \t").partition(" ")[2].strip(" \t"))
    return AuthenticatedUser(AccessToken(token=hashed, client_id=handle, scopes=[], subject=hashed))


def _fault_in(body: bytes) -> str | None:
    """The SDK's parsers take half a surrogate pair, NaN and any depth; what we cannot write is refused here."""
    try:
        _any.decode(body)
    except codec.BadJson as error:
        return error.message
    return None


async def _refuse_body(send: Send, fault: str) -> None:
    error = {"code": _PARSE_ERROR, "message": f"Parse error: {fault}"}
    body = codec.encode({"jsonrpc": "2.0", "id": None, "error": error})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
