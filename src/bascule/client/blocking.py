"""One link connection on a plain blocking socket.

A command that asks one question must not pay for an event loop: importing asyncio alone takes longer than
the whole conversation.
"""

import socket
import time
from itertools import count
from typing import Any, TypeVar

from bascule.client.answers import decoder_of, read_result
from bascule.client.door import check_peer, unreachable
from bascule.client.faults import BadAnswer, ConnectionLost
from bascule.client.feeds import Opened, pass_note
from bascule.client.steps import FirstOf, Params, Program, Request
from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES
from bascule.foundation.errors import BasculeError
from bascule.transports.peercred import peer_of
from bascule.wire import jsonrpc
from gabp import codec
from gabp.content_length import FrameError, FrameReader, frame

T = TypeVar("T")

# A local socket answers connect() at once or is overloaded.
CONNECT_SECONDS = 5.0
_PIECE_BYTES = 256 * 1024


class BlockingConnection:
    """A connected peer of the daemon, for one thread."""

    def __init__(self, path: str) -> None:
        self._sock = _connected(path)
        self._reader = FrameReader(max_body_bytes=MAX_LINK_FRAME_BYTES)
        self._ids = count(1)
        self._decoders: dict[int, codec.Decoder[Any]] = {}
        self._answers: dict[int, Any] = {}
        self._streams: dict[int, Opened[Any]] = {}
        self.open = True

    def request(self, method: str, params: Params, result_type: Any, *, within: float | None = None) -> Any:
        return self.execute(Request(method, params, result_type, within))

    def execute(self, step: Request | FirstOf) -> Any:
        requests = (step,) if isinstance(step, Request) else step.requests
        started: list[int] = []
        try:
            for request in requests:
                started.append(self._start(request))  # noqa: PERF401 - what was started is withdrawn even if the next fails
            limits = [request.within for request in requests if request.within is not None]
            first, answer = self._first_answer(started, time.monotonic() + min(limits) if limits else None)
        finally:
            for id_ in started:
                self._finish(id_)
        return answer if isinstance(step, Request) else (first, answer)

    def open_stream(self, request: Request, stream: Opened[Any]) -> int:
        """Open a stream whose notifications go to `stream` until it is over; its id, to close it."""
        id_ = self._start(request)
        # Before the answer is read: items may come with the same bytes.
        self._streams[id_] = stream
        try:
            self._first_answer([id_], None)
        except BaseException:
            self._streams.pop(id_, None)
            raise
        finally:
            self._finish(id_)
        return id_

    def _first_answer(self, ids: list[int], deadline: float | None) -> tuple[int, Any]:
        while not any(id_ in self._answers for id_ in ids):
            self.receive(deadline)
        done = [index for index, id_ in enumerate(ids) if id_ in self._answers]
        # Several may be done at once: an answer counts more than the end of a wait.
        first = next((each for each in done if self._answers[ids[each]] is not None), done[0])
        answer = self._answers[ids[first]]
        if isinstance(answer, BasculeError):
            raise answer
        return first, answer

    def receive(self, deadline: float | None) -> None:
        """Wait for the next bytes, until `deadline`; answers are kept for their callers."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ConnectionLost("the daemon did not answer in time", sent=True)
        try:
            self._sock.settimeout(left)
            data = self._sock.recv(_PIECE_BYTES)
        except TimeoutError:
            raise ConnectionLost("the daemon did not answer in time", sent=True) from None
        except OSError as error:
            raise self._lost(f"the connection to the daemon broke: {error.strerror}") from error
        except BaseException:
            # Ctrl-C: bytes may be lost with it, and the daemon need not go on with what nobody waits for.
            self.close()
            raise
        if not data:
            raise self._lost("the daemon closed the connection")
        try:
            for body in self._reader.feed(data):
                self._take(body)
        except (FrameError, jsonrpc.BadEnvelope, BadAnswer) as error:
            raise self._lost(f"the daemon sent what this client cannot read: {error}") from error

    def close_stream(self, id_: int) -> None:
        if self._streams.pop(id_, None) is not None:
            self._withdraw(id_)

    def close(self) -> None:
        self.open = False
        self._sock.close()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.lost()

    def _start(self, request: Request) -> int:
        if not self.open:
            raise ConnectionLost("the connection is closed", sent=False)
        body = codec.encode(request.params)
        id_ = next(self._ids)
        self._decoders[id_] = decoder_of(request.result)
        self._send(jsonrpc.request(id_, request.method, body))
        return id_

    def _finish(self, id_: int) -> None:
        if self._decoders.pop(id_, None) is not None:
            self._withdraw(id_)
        self._answers.pop(id_, None)

    def _withdraw(self, id_: int) -> None:
        if self.open:
            self._send(jsonrpc.notification("$/cancel", codec.encode({"id": id_})))

    def _send(self, body: bytes) -> None:
        try:
            self._sock.settimeout(None)
            self._sock.sendall(frame(body))
        except OSError as error:
            raise self._lost(f"the connection to the daemon broke: {error.strerror}") from error
        except BaseException:
            # Ctrl-C in the middle of a frame: nothing readable can follow it.
            self.close()
            raise

    def _take(self, body: bytes) -> None:
        message = jsonrpc.parse(body)
        if isinstance(message, jsonrpc.Response):
            decoder = self._decoders.pop(message.id, None) if isinstance(message.id, int) else None
            # An id we do not wait for any more is the answer to something withdrawn.
            if decoder is not None and isinstance(message.id, int):
                try:
                    self._answers[message.id] = read_result(decoder, message)
                except BasculeError as error:
                    self._answers[message.id] = error
        elif isinstance(message, jsonrpc.Notification):
            pass_note(message, self._streams)

    def _lost(self, why: str) -> ConnectionLost:
        self.close()
        return ConnectionLost(why, sent=True)


def run(program: Program[T], execute: Any) -> T:
    """Carry out a program's steps one after the other."""
    try:
        step = next(program)
        while True:
            try:
                answer = execute(step)
            except BasculeError as error:
                step = program.throw(error)
            else:
                step = program.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


def _connected(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_SECONDS)
        sock.connect(path)
        check_peer(path, peer_of(sock))
    except OSError as error:
        sock.close()
        raise unreachable(path, error) from error
    except BaseException:
        sock.close()
        raise
    return sock
