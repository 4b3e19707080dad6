"""Another Bascule's `/mcp`: requests are passed on in the era in which they came.

A session of 2025-11-25 is open for as long as this program runs, whatever the client speaks: it shows that the agent
is there, and its end shows that the agent has left.
"""

from __future__ import annotations

import threading

from bascule import __version__
from bascule.foundation.backoff import Backoff
from bascule.local_client.exits import BadAnswer, ConnectionLost, DoorError, Refusal
from bascule.local_client.http import ANSWER_SECONDS, MAX_EVENT_BYTES, ask, refusal_in
from bascule.local_client.values import decode_answer
from bascule.programs.mcp_stdio.mcp import CALL_ID_KEY, HANDSHAKE_VERSIONS, MODERN_VERSIONS, SLICE_MS

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from bascule.local_client.http import Conversation, Door
    from bascule.programs.mcp_stdio.link import Call

    Notified = Callable[[dict[str, Any]], None]
    Learn = Callable[[Callable[[], None]], None]

# The slice, and the time that a person may take to answer.
_CALL_SECONDS = 2 * SLICE_MS / 1000 + ANSWER_SECONDS
# The other end may be gone; nobody waits for our goodbye.
_GOODBYE_SECONDS = 1.0
_FOR_EVER = 10.0**9
_ACCEPT = "application/json, text/event-stream"
_VERSION = HANDSHAKE_VERSIONS[-1]


class RemoteMcp:
    def __init__(self, door: Door, token: str | None, notified: Notified) -> None:
        self._door = door
        self._token = token
        self._notified = notified
        self._session = ""
        self._closed = threading.Event()
        self._listening: Conversation | None = None
        self._subscribed = False

    @classmethod
    def found_at(cls, door: Door, token: str | None, notified: Notified) -> RemoteMcp | None:
        """None where nobody serves MCP, or not to us: there is no token, and the broker wants none elsewhere."""
        remote = cls(door, token, notified)
        try:
            remote.open()
        except BadAnswer:
            return None
        except Refusal as refused:
            if refused.status in (429, 503):
                raise
            return None
        return remote

    def open(self) -> None:
        client = {"name": "bascule mcp", "version": __version__}
        params = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": client}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        with self._ask("POST", message, ()) as conversation:
            headers, messages = _opened(conversation)
            next(messages, None)
        self._session = headers.get("mcp-session-id", "")
        if not self._session:
            raise BadAnswer("the broker's /mcp opens no session")
        self._ask("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"}, self._headers()).close()
        if self._subscribed:
            self._subscribe()

    def request(self, call: Call, learn: Learn) -> dict[str, Any]:
        """The answer; notifications that come before it go to the client. Refusal 404: our session is forgotten."""
        request = call.request
        params = dict(request.params)
        headers = self._headers()
        if request.method == "tools/call":
            meta = params.get("_meta")
            params["_meta"] = {**(meta if isinstance(meta, dict) else {}), CALL_ID_KEY: call.id}
        if request.modern:
            headers = (f"MCP-Protocol-Version: {MODERN_VERSIONS[0]}", f"Mcp-Method: {request.method}")
            name = params.get("name") or params.get("uri")
            headers += (f"Mcp-Name: {name}",) if isinstance(name, str) and name.isascii() and name.isprintable() else ()
        message = {"jsonrpc": "2.0", "id": request.number, "method": request.method, "params": params}
        seconds = _FOR_EVER if call.stays else _CALL_SECONDS
        with self._ask("POST", message, headers, seconds) as conversation:
            learn(conversation.abort)
            for answer in _opened(conversation)[1]:
                if "id" in answer and "method" not in answer:
                    self._note_subscription(request.method, answer)
                    return answer
                if not (call.again and answer.get("method") == "notifications/subscriptions/acknowledged"):
                    self._notified(answer)
        raise ConnectionLost("the broker ended the stream before it answered")

    def close(self) -> None:
        """Say goodbye: the agent has left."""
        self._closed.set()
        if self._listening is not None:
            self._listening.abort()
        try:
            self._ask("DELETE", None, self._headers(), _GOODBYE_SECONDS).whole_answer()
        except DoorError:
            return

    def _note_subscription(self, method: str, answer: dict[str, Any]) -> None:
        if method == "resources/subscribe" and "result" in answer and not self._subscribed:
            self._subscribed = True
            self._subscribe()
        elif method == "resources/unsubscribe":
            self._subscribed = False

    def _subscribe(self) -> None:
        threading.Thread(target=self._listen, args=(self._session,), daemon=True).start()

    def _listen(self, session: str) -> None:
        """What the other end says by itself, for as long as this session lives."""
        pauses = Backoff()
        while self._session == session and not self._closed.is_set():
            try:
                with self._ask("GET", None, self._headers(), _FOR_EVER) as conversation:
                    self._listening = conversation
                    for message in _opened(conversation)[1]:
                        pauses.reset()
                        self._notified(message)
            except Refusal as refused:
                if refused.status == 404:
                    return
            except DoorError:
                pass
            self._closed.wait(next(pauses))

    def _headers(self) -> tuple[str, ...]:
        return (f"Mcp-Session-Id: {self._session}", f"MCP-Protocol-Version: {_VERSION}")

    def _ask(
        self, verb: str, message: dict[str, Any] | None, headers: tuple[str, ...], seconds: float = ANSWER_SECONDS
    ) -> Conversation:
        return ask(
            self._door,
            verb,
            "/mcp",
            message,
            token=self._token,
            seconds=seconds,
            accept=_ACCEPT if verb == "POST" else "text/event-stream",
            headers=headers,
        )


def _opened(conversation: Conversation) -> tuple[dict[str, str], Iterator[dict[str, Any]]]:
    """The headers of an answer, and the messages in it, whichever form it has."""
    try:
        status, headers = conversation.read_head()
        if status >= 300:
            raise refusal_in(conversation.rest_of_answer(status, headers))
    except TimeoutError:
        raise ConnectionLost("the broker did not answer in time; whether it acted is unknown") from None
    if headers.get("content-type", "").startswith("text/event-stream"):
        return headers, _events(conversation)
    return headers, _one(conversation.rest_of_answer(status, headers).body)


def _one(body: bytes) -> Iterator[dict[str, Any]]:
    message = decode_answer(body) if body else None
    if isinstance(message, dict):
        yield message


def _events(conversation: Conversation) -> Iterator[dict[str, Any]]:
    text = b""
    while True:
        try:
            piece = conversation.piece()
        except TimeoutError:
            raise ConnectionLost("the broker did not answer in time; whether it acted is unknown") from None
        if not piece:
            return
        text += piece.replace(b"\r", b"")
        *blocks, text = text.split(b"\n\n")
        if len(text) > MAX_EVENT_BYTES:
            raise BadAnswer(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        for block in blocks:
            data = b"\n".join(line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:"))
            message = decode_answer(data) if data else None
            if isinstance(message, dict):
                yield message
