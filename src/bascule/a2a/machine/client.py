"""The a2a-sdk's client towards agents elsewhere. Everything that comes back is a stranger's.

No redirect is followed, no proxy of the environment is used, an answer has a size and a time; what cannot be read is an
unknown end, never a guess.
"""

import asyncio
import logging
import re
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.client.client import Client, ClientCallContext, ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError

from bascule.a2a.cards import MAX_CARD_BYTES
from bascule.a2a.machine.parts import parts_of, shown_of
from bascule.a2a.ports import MAX_VALUES, EndUnknown, NotSent, PeerAnswer, PeerState, Refused
from bascule.a2a.records import Letter, Peer
from gabp import codec

# An answer with a reply of 1 MiB, its escapes and its envelope.
MAX_ANSWER_BYTES = 4 * 1024 * 1024
# Pieces that an answer comes in: servers write some KiB at a time. Each costs as much as a few KiB do, so that 24 MB of
# one byte each kept a processor for half a minute.
MAX_PIECES = 16_384
CONNECT_SECONDS = 10.0
# From the first byte of a request to the last of its answer. An agent that works longer says so, and is asked again.
REQUEST_SECONDS = 60.0
# All agents together.
MAX_CONNECTIONS = 32
MAX_ID_CHARS = 1_024

_HTTP_TOO_MANY = 429
_STATES = {
    TaskState.TASK_STATE_SUBMITTED: PeerState.WORKING,
    TaskState.TASK_STATE_WORKING: PeerState.WORKING,
    TaskState.TASK_STATE_COMPLETED: PeerState.COMPLETED,
    TaskState.TASK_STATE_INPUT_REQUIRED: PeerState.INPUT_REQUIRED,
    TaskState.TASK_STATE_AUTH_REQUIRED: PeerState.AUTH_REQUIRED,
    TaskState.TASK_STATE_FAILED: PeerState.FAILED,
    TaskState.TASK_STATE_REJECTED: PeerState.REJECTED,
    TaskState.TASK_STATE_CANCELED: PeerState.CANCELED,
}
# Beside letters and digits, what one segment of a path may have as it is.
_IN_A_SEGMENT = "-._~!$&'()*+,;=:@"
_CODE = re.compile(r"JSON-RPC Error (-?[0-9]{1,9}):")
T = TypeVar("T")


class TooMuch(httpx.RequestError):
    """An answer that is larger than anything we asked for, or hides how large it is."""


class _BoundedTransport(httpx.AsyncBaseTransport):
    def __init__(self, max_bytes: int, max_pieces: int, max_values: int) -> None:
        self._max_bytes, self._max_pieces, self._max_values = max_bytes, max_pieces, max_values
        limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=8, keepalive_expiry=15)
        # The system's certificates; SSL_CERT_FILE names others.
        self._inner = httpx.AsyncHTTPTransport(
            verify=ssl.create_default_context(), trust_env=False, limits=limits, retries=0
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            # A few bytes can become gigabytes.
            raise TooMuch("its answer is compressed, and was not asked to be")
        assert isinstance(response.stream, httpx.AsyncByteStream)
        try:
            content = await self._read(response.stream)
        finally:
            await response.stream.aclose()
        if codec.has_too_many_values(content, self._max_values):
            raise TooMuch(f"its answer has more than {self._max_values} values, or is not in UTF-8")
        response.stream = httpx.ByteStream(content)
        return response

    async def _read(self, stream: httpx.AsyncByteStream) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in stream:
            pieces.append(piece)
            size += len(piece)
            if size > self._max_bytes:
                raise TooMuch(f"its answer has more than {self._max_bytes} bytes")
            if len(pieces) > self._max_pieces:
                raise TooMuch(f"its answer comes in more than {self._max_pieces} pieces")
        return b"".join(pieces)

    async def aclose(self) -> None:
        await self._inner.aclose()


class SdkClient:
    """The port's `AgentClient`."""

    def __init__(
        self,
        *,
        max_bytes: int = MAX_ANSWER_BYTES,
        max_pieces: int = MAX_PIECES,
        max_values: int = MAX_VALUES,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        logger = logging.getLogger("a2a")
        # It logs cards and answers as they came.
        logger.handlers = [logging.NullHandler()]
        logger.propagate = False
        self._seconds = seconds
        self._http = httpx.AsyncClient(
            transport=_BoundedTransport(max_bytes, max_pieces, max_values),
            follow_redirects=False,
            trust_env=False,
            timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
            headers={"accept-encoding": "identity", "user-agent": "bascule"},
        )
        self._clients: dict[str, Client] = {}

    async def fetch_card(self, url: str, token: str | None) -> bytes:
        async def fetch() -> bytes:
            response = await self._http.get(url, headers=_bearer(token))
            if response.status_code != 200:
                raise Refused(_status(response))
            if len(response.content) > MAX_CARD_BYTES:
                raise Refused(f"its card has more than {MAX_CARD_BYTES} bytes")
            return response.content

        return await self._within(fetch)

    async def send(self, peer: Peer, token: str | None, letter: Letter, *, task_id: str, context_id: str) -> PeerAnswer:
        message = Message(
            message_id=letter.message_id,
            task_id=task_id,
            context_id=context_id,
            role=Role.ROLE_USER,
            parts=parts_of(codec.decode(bytes(letter.payload), Any)),
        )

        async def send() -> PeerAnswer:
            request = SendMessageRequest(message=message)
            # It answers as soon as it has the message; its task is looked at afterwards.
            request.configuration.return_immediately = True
            async for event in self._client(peer).send_message(request, context=_context(token)):
                if event.HasField("message"):
                    return _answer_of_message(event.message)
                if event.HasField("task"):
                    _require_askable(peer, event.task.id)
                    return _answer_of_task(event.task)
                break
            raise EndUnknown("it answered with neither a message nor a task")

        return await self._within(send)

    async def look(self, peer: Peer, token: str | None, task_id: str) -> PeerAnswer:
        async def look() -> PeerAnswer:
            task = await self._client(peer).get_task(GetTaskRequest(id=task_id), context=_context(token))
            if task.id != task_id:
                raise EndUnknown("it answered about another task")
            return _answer_of_task(task)

        return await self._within(look)

    async def cancel(self, peer: Peer, token: str | None, task_id: str) -> None:
        async def cancel() -> None:
            await self._client(peer).cancel_task(CancelTaskRequest(id=task_id), context=_context(token))

        await self._within(cancel)

    async def close(self) -> None:
        await self._http.aclose()

    def _client(self, peer: Peer) -> Client:
        """By the card that was pinned, and of it only the interface that was chosen."""
        client = self._clients.get(peer.digest)
        if client is None:
            card: AgentCard = parse_agent_card(codec.decode(peer.card.encode(), dict[str, Any]))
            chosen = [
                each
                for each in card.supported_interfaces
                if each.url == peer.endpoint and each.protocol_binding == peer.binding
            ]
            del card.supported_interfaces[:]
            card.supported_interfaces.extend(chosen)
            config = ClientConfig(
                streaming=False, polling=True, httpx_client=self._http, supported_protocol_bindings=[peer.binding]
            )
            client = self._clients[peer.digest] = ClientFactory(config).create(card)
        return client

    async def _within(self, act: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._seconds):
                return await act()
        except (NotSent, EndUnknown, Refused):
            raise
        except TimeoutError:
            raise EndUnknown(f"no answer within {self._seconds:.0f} s") from None
        except Exception as error:  # noqa: BLE001 - the SDK and what a stranger makes it raise; sorted there
            raise _sorted(error) from None


def _sorted(error: BaseException) -> Exception:
    """What an error of the SDK or of HTTP says about the request."""
    cause: BaseException | None = error if isinstance(error, httpx.HTTPError) else error.__cause__
    match cause:
        case httpx.HTTPStatusError(response=response):
            if response.status_code == _HTTP_TOO_MANY:
                return NotSent("it takes no more messages for now (429)")
            if response.status_code < 500:
                return Refused(_status(response))
            return EndUnknown(_status(response))
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.PoolTimeout() | httpx.UnsupportedProtocol():
            return NotSent(f"it cannot be reached: {cause}")
        case TooMuch():
            return EndUnknown(str(cause))
        case httpx.HTTPError():
            # Never its words: a reason is seen by all who watch.
            return EndUnknown(f"the connection ended in the middle ({type(cause).__name__})")
        case _:
            pass
    # An error of the protocol is the agent's own word; what else goes wrong in the SDK is an answer it cannot read.
    if (found := _CODE.match(str(error))) is not None:
        return Refused(f"it refuses with the error {found[1]}")
    if isinstance(error, A2AError) and not isinstance(error, A2AClientError):
        return Refused(f"it refuses with {type(error).__name__}")
    return EndUnknown(f"its answer cannot be read ({type(error).__name__})")


def _status(response: httpx.Response) -> str:
    if response.is_redirect:
        return f"it redirects ({response.status_code}) to another address, which is not followed"
    return f"its server answers {response.status_code}"


def _bearer(token: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token is not None else {}


def _context(token: str | None) -> ClientCallContext:
    return ClientCallContext(service_parameters=_bearer(token))


def _answer_of_message(message: Message) -> PeerAnswer:
    return PeerAnswer(PeerState.COMPLETED, _payload(list(message.parts)), context_id=_id(message.context_id))


def _answer_of_task(task: Task) -> PeerAnswer:
    state = _STATES.get(task.status.state)
    task_id = _id(task.id)
    if state is None or not task_id:
        raise EndUnknown("it answered with a task that has no state or no id")
    parts: list[Part] = [part for artifact in task.artifacts for part in artifact.parts]
    if state is not PeerState.COMPLETED or not parts:
        parts = list(task.status.message.parts)
    payload = None if state is PeerState.WORKING else _payload(parts)
    return PeerAnswer(state, payload, task_id, _id(task.context_id))


def _payload(parts: list[Part]) -> Any:
    payload = shown_of(parts)
    try:
        # As deep as anything that is said here.
        return codec.decode(codec.encode(payload), Any)
    except codec.BadJson as error:
        raise EndUnknown(f"its answer cannot be read: {error.message}") from None


def _require_askable(peer: Peer, task_id: str) -> None:
    """The SDK puts the id into an address as it came: `../../other/tasks/1` would be asked for, or cancelled, with
    the token of this agent."""
    if peer.binding == "HTTP+JSON" and (task_id in (".", "..") or quote(task_id, safe=_IN_A_SEGMENT) != task_id):
        raise EndUnknown("it answered with the id of a task that does not fit into an address")


def _id(text: str) -> str:
    if len(text) > MAX_ID_CHARS:
        raise EndUnknown("it answered with an id that is too long")
    return text
