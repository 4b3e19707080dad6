"""The mod's I/O: one thread, one selector, a session per bridge. Nothing here waits for a peer or for the game."""

import contextlib
import logging
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from bascule_mod.endpoint import Endpoint
from bascule_mod.streams import (
    LISTEN_BACKLOG,
    READ_BYTES,
    ByteStream,
    NoRoom,
    SocketStream,
    StdioStream,
    accept,
    listen,
)
from gabp import envelopes, messages
from gabp.envelopes import Mode
from gabp.errors import ErrorCode
from gabp.mod_session import Asked, Greeted, ModSession
from gabp.session import FRAME_SECONDS, Broken, Noted, SessionLimits
from gabp.states import State

log = logging.getLogger("bascule.mod")

HELLO_SECONDS = 10.0
# Connections that have not said hello: their own limit, so that strangers cannot keep bridges out.
MAX_STRANGERS = 16
# Events for a bridge that reads too slowly are dropped from here on; the numbers show the gap.
MAX_EVENT_BUFFER_BYTES = 4 * 1024 * 1024
# Of events held back to be sent together: a good write, far below the buffer from which they are dropped.
EVENT_BATCH_BYTES = 64 * 1024
# What an event takes while it waits for this thread, beside its payload.
EVENT_OVERHEAD_BYTES = 128
# Answers are never dropped: a bridge that does not take them at all is cut off.
MAX_BUFFER_BYTES = 32 * 1024 * 1024
TICK_SECONDS = 0.25
# One turn of the loop reads so much of a connection before the next one gets its turn.
READS_PER_TURN = 16


class Handlers(Protocol):
    """What the server asks the mod; all on the I/O thread."""

    def greeted(self, connection: "Connection", params: messages.HelloParams) -> None: ...

    def asked(self, connection: "Connection", request: Asked) -> None: ...

    def gone(self, connection: "Connection") -> None: ...

    def tick(self) -> None: ...


class Connection:
    def __init__(self, stream: ByteStream, mode: Mode, limits: SessionLimits, now: float) -> None:
        self.stream = stream
        self.session = ModSession(mode, limits)
        self.opened = now
        # When the frame began that is not whole yet, and which one it is.
        self.frame_began: float | None = None
        self.frame = 0
        self.dropped_events = 0
        self.out = bytearray()
        self.watched = False
        # Numbers of what only this connection is sent.
        self.private_seq: dict[str, int] = {}

    @property
    def greeted(self) -> bool:
        return self.session.state is State.OPEN


class Server:
    def __init__(
        self,
        handlers: Handlers,
        *,
        mode: Mode = Mode.COMPAT,
        limits: SessionLimits | None = None,
        max_connections: int = messages.MAX_CONNECTIONS,
        max_event_buffer: int = MAX_EVENT_BUFFER_BYTES,
        max_buffer: int = MAX_BUFFER_BYTES,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handlers = handlers
        self._mode = mode
        self._limits = limits or SessionLimits()
        self._max_connections = max_connections
        self._max_event_buffer = max_event_buffer
        self._max_buffer = max_buffer
        self._now = now
        # Made by `begin`: a mod that is never started holds no descriptor.
        self._selector: selectors.BaseSelector
        self._wake_read: socket.socket
        self._wake_write: socket.socket | None = None
        self._posted: deque[Callable[[], None]] = deque()
        # The loop waits for its descriptors, or is about to.
        self._asleep = False
        self._listener: socket.socket | None = None
        # Nobody is let in until the next tick.
        self._resting = False
        # And the game's log says why.
        self._starved = False
        # Bytes of events that were posted, and that came out here again; each has one writer at a time.
        self._event_lock = threading.Lock()
        # Those who were told events in this turn: many events are one write.
        self._unflushed: list[Connection] = []
        self._events_posted = 0
        self._events_done = 0
        self._socket_path: str | None = None
        self._ticked = now()
        self._thread: threading.Thread | None = None
        self._ending = False
        self.connections: list[Connection] = []

    # -- life --

    def begin(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._selector.register(self._wake_read, selectors.EVENT_READ, "wake")

    def open(self, endpoint: Endpoint) -> None:
        """Listen there; on stdio the one connection is open at once."""
        if endpoint.transport == "stdio":
            self._add(StdioStream())
            return
        self._listener = listen(endpoint)
        if endpoint.transport == "pipe":
            self._socket_path = endpoint.address
        self._selector.register(self._listener, selectors.EVENT_READ, "listen")

    @property
    def port(self) -> int | None:
        if self._listener is None or self._listener.family != socket.AF_INET:
            return None
        return int(self._listener.getsockname()[1])

    @property
    def listening(self) -> bool:
        return self._listener is not None or bool(self.connections)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="bascule-mod", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """What was answered is sent first, as far as the bridge takes it within a moment."""
        self._ending = True
        self.wake()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2.0)
        else:
            self._close_all()

    def _run(self) -> None:
        while not self._ending:
            try:
                self.run_once(TICK_SECONDS)
            except Exception:
                # A fault of ours must not leave the game without its bridge for good.
                log.exception("the mod's I/O failed; it goes on")
        self.run_once(0)
        self._close_all()

    def post(self, act: Callable[[], None]) -> None:
        """Have it done on the I/O thread, soon; from any thread."""
        self._posted.append(act)
        if self._asleep:
            self.wake()

    def post_event(self, act: Callable[[], None], size: int) -> bool:
        """The same for an event of so many bytes. False when too many wait here already: the numbers show the gap.

        A game that emits without end must not fill its own memory with what nobody can be sent in time.
        """
        size += EVENT_OVERHEAD_BYTES
        with self._event_lock:
            if self._events_posted - self._events_done > self._max_event_buffer:
                return False
            self._events_posted += size
        self.post(partial(self._event, act, size))
        return True

    def _event(self, act: Callable[[], None], size: int) -> None:
        self._events_done += size
        act()

    def wake(self) -> None:
        """A system call, in which the game's thread loses the interpreter: only for one who sleeps, and once."""
        self._asleep = False
        if self._wake_write is not None:
            with contextlib.suppress(BlockingIOError, OSError):
                self._wake_write.send(b"\0")

    # -- one turn --

    def run_once(self, timeout: float) -> None:
        # Before looking at what is posted: the poster does it the other way round, and one of the two sees it.
        self._asleep = True
        ready = self._selector.select(0 if self._posted else timeout)
        self._asleep = False
        for key, events in ready:
            connection = key.data
            if type(connection) is Connection:
                if events & selectors.EVENT_WRITE:
                    self._flush(connection)
                if events & selectors.EVENT_READ:
                    self._read(connection)
            elif connection == "listen":
                self._accept()
            else:
                with contextlib.suppress(BlockingIOError):
                    self._wake_read.recv(4096)
        if self._posted:
            self.run_posted()
        now = self._now()
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            if self._resting and self._listener is not None:
                self._resting = False
                self._selector.register(self._listener, selectors.EVENT_READ, "listen")
            self._check_times(now)
            self._handlers.tick()

    def run_posted(self) -> None:
        try:
            for _ in range(len(self._posted)):
                self._posted.popleft()()
        finally:
            if self._unflushed:
                unflushed, self._unflushed = self._unflushed, []
                for connection in unflushed:
                    self.flush(connection)

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(LISTEN_BACKLOG):
            try:
                sock = accept(self._listener)
            except NoRoom:
                # It would stay readable, and this loop turn as fast as it can, on the game's own time.
                if not self._starved:
                    log.warning("no descriptor is left for a bridge: close files, or raise the limit (ulimit -n)")
                self._starved = True
                self._selector.unregister(self._listener)
                self._resting = True
                return
            if sock is None:
                return
            self._starved = False
            if self._full:
                _turn_away(sock, self._full_message)
                continue
            strangers = [each for each in self.connections if not each.greeted]
            if len(strangers) >= MAX_STRANGERS:
                # The oldest has had the most time to say hello.
                self._close(strangers[0])
            self._add(SocketStream(sock))

    @property
    def _full(self) -> bool:
        return sum(each.greeted for each in self.connections) >= self._max_connections

    @property
    def _full_message(self) -> str:
        return f"{self._max_connections} bridges are connected already; close one of them"

    def _add(self, stream: ByteStream) -> None:
        connection = Connection(stream, self._mode, self._limits, self._now())
        self.connections.append(connection)
        self._selector.register(stream.read_fd, selectors.EVENT_READ, connection)

    def _read(self, connection: Connection) -> None:
        for _ in range(READS_PER_TURN):
            if connection not in self.connections:
                return
            data = connection.stream.read()
            if data is None:
                break
            happened = connection.session.receive(data) if data else connection.session.end_of_stream()
            for happening in happened:
                self._handle(connection, happening)
            if not data:
                # Half-closed: no more questions, and nobody to ask whether answers are still read.
                self._end(connection)
                return
            if len(data) < READ_BYTES:
                # All there was; asking again would only tell so.
                break
        session = connection.session
        if not session.mid_frame:
            connection.frame_began = None
        elif connection.frame_began is None or connection.frame != session.frames_read:
            # Another frame than at the last read: a busy stream may never stop between two.
            connection.frame = session.frames_read
            connection.frame_began = self._now()
        if session.speaks or session.closed:
            self.flush(connection)

    def _handle(self, connection: Connection, happening: object) -> None:
        match happening:
            case Greeted():
                if self._full:
                    # There was room when it connected; others were quicker to say hello.
                    connection.session.refuse(ErrorCode.ACCESS_DENIED, self._full_message)
                else:
                    self._handlers.greeted(connection, happening.params)
            case Asked():
                self._handlers.asked(connection, happening)
            case Noted():
                log.info("a bridge differs from the protocol: %s", happening.text)
            case Broken():
                log.warning("a bridge broke the protocol and was disconnected: %s", happening.message)

    def _check_times(self, now: float) -> None:
        for connection in list(self.connections):
            if connection.frame_began is not None and now - connection.frame_began > FRAME_SECONDS:
                for happening in connection.session.frame_overdue():
                    self._handle(connection, happening)
                self.flush(connection)
            elif (
                connection.session.state in (State.NEW, State.GREETING)
                and isinstance(connection.stream, SocketStream)
                and now - connection.opened > HELLO_SECONDS
            ):
                self._close(connection)

    # -- sending --

    def flush(self, connection: Connection) -> None:
        """Send what the session has to say; close when it is over."""
        if connection not in self.connections:
            return
        data = connection.session.take()
        if connection.out:
            connection.out += data
            self._flush(connection)
        elif data:
            self._send(connection, data)
        if connection.session.closed:
            self._end(connection)
        elif len(connection.out) > self._max_buffer:
            log.warning("a bridge reads nothing: disconnected with %d bytes unsent", len(connection.out))
            self._close(connection)

    def emit(self, connection: Connection, channel: str, seq: int, payload: bytes) -> None:
        """Sent with others of this turn. Dropped when the bridge is too far behind: the next number shows the gap."""
        if len(connection.out) > self._max_event_buffer:
            connection.dropped_events += 1
            return
        connection.session.emit(channel, seq, payload)
        connection.out += connection.session.take()
        if connection.watched:
            # It takes no more now; the selector says when it does.
            return
        if len(connection.out) > EVENT_BATCH_BYTES:
            self._flush(connection)
        elif connection not in self._unflushed:
            self._unflushed.append(connection)

    def _send(self, connection: Connection, data: bytes) -> None:
        """Nothing waits before it: nearly always it goes out whole, and no buffer is touched."""
        try:
            sent = connection.stream.write(data)
        except OSError:
            self._close(connection)
            return
        if sent < len(data):
            connection.out += memoryview(data)[sent:]
            self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        out = connection.out
        try:
            while out:
                with memoryview(out) as view:
                    sent = connection.stream.write(view)
                if sent == 0:
                    break
                del out[:sent]
        except OSError:
            self._close(connection)
            return
        if bool(out) != connection.watched:
            self._watch_writes(connection, bool(out))

    def _watch_writes(self, connection: Connection, wanted: bool) -> None:
        connection.watched = wanted
        stream = connection.stream
        if stream.read_fd == stream.write_fd:
            self._selector.modify(
                stream.read_fd, selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0), connection
            )
        elif wanted:
            self._selector.register(stream.write_fd, selectors.EVENT_WRITE, connection)
        else:
            self._selector.unregister(stream.write_fd)

    # -- ending --

    def _end(self, connection: Connection) -> None:
        """Send what fits, then close."""
        self._flush(connection)
        self._close(connection)

    def _close(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        connection.session.end()
        for descriptor in {connection.stream.read_fd, connection.stream.write_fd}:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(descriptor)
        connection.stream.close()
        self._handlers.gone(connection)

    def _close_all(self) -> None:
        if self._wake_write is None:
            return
        for connection in list(self.connections):
            self._end(connection)
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._socket_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._socket_path)
        self._selector.close()
        self._wake_read.close()
        self._wake_write.close()
        self._wake_write = None


def _turn_away(sock: socket.socket, message: str) -> None:
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.send(envelopes.error_response(envelopes.NIL_ID, ErrorCode.ACCESS_DENIED, message))
    sock.close()
