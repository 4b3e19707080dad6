"""`bascule stop` on a socket of its own, served by threads: it works while the event loop is held up.

    -> {"reason": "..."}                                   one line, or none of it
    <- {}                                                  it is taken: from here on the gate lets nothing begin
    <- {"result": ...}, {"refused": ...} or {"held": ...}  as `admin.stop` answers; or the loop did not take it in time

The stop itself is the call `admin.stop` on the loop: decided, recorded, answered as at every door. When the loop does
not take it within a moment, this thread ends what was started (`EmergencyStop`) and says so; the call follows when the
loop is free. Until it is stored, a file keeps the stop for the next life of the daemon.
"""

import asyncio
import contextlib
import os
import queue
import socket
import threading
from functools import partial
from typing import Any

import msgspec

from bascule.admin.stop_protocol import ADMIN_STOP, StopParams
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.deferred import Deferred
from bascule.foundation.emergency import EmergencyStop
from bascule.foundation.errors import BasculeError
from bascule.kernel.call import LOCAL, Call
from bascule.kernel.faults import internal
from bascule.kernel.gate import Gate
from bascule.kernel.halt import Halt
from bascule.kernel.journal_ports import Log
from bascule.transports.peercred import peer_of
from gabp import codec

# A reason of 200 characters, each escaped.
MAX_REQUEST_BYTES = 4_096
# Our own command writes its line at once. A peer that does not would hold one of the threads.
REQUEST_SECONDS = 1.0
# Of one user, who stops once.
MAX_CONNECTIONS = 8
BACKLOG = 8
# The loop is never held for so long by what it should do; a person who stops something should not wait for longer.
LOOP_SECONDS = 0.3


class StopDoor:
    def __init__(
        self,
        sock: socket.socket,
        gate: Gate,
        emergency: EmergencyStop,
        note: "HaltNote",
        *,
        clock: Clock,
        log: Log,
        loop_seconds: float = LOOP_SECONDS,
    ) -> None:
        self._sock = sock
        self._gate = gate
        self._emergency = emergency
        self._clock = clock
        self._log = log
        self._note = note
        self._loop_seconds = loop_seconds
        self._loop = asyncio.get_running_loop()
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        sock.listen(BACKLOG)
        threading.Thread(target=self._listen, name="bascule-stop", daemon=True).start()

    def close(self) -> None:
        # Wakes the thread that accepts.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    # -- threads --

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._sock.accept()
            except OSError:
                return
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection,), name="bascule-stop", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._answer(connection)
        except OSError:
            # It left. What it asked for is done.
            return
        finally:
            self._room.release()

    def _answer(self, connection: socket.socket) -> None:
        peer = peer_of(connection)
        # As at the link: the directory's mode keeps others out, and root walks through modes.
        if peer.uid != os.getuid():
            self._log("refused", level="warning", door="stop", uid=peer.uid)
            return
        try:
            params = codec.decode(_line(connection), StopParams)
        except codec.BadJson as error:
            _send(connection, {"refused": {"code": "invalid_request", "message": error.message}})
            return
        asked = _Asked(
            params, f"pid {peer.pid} uid {peer.uid}", Halt(by=LOCAL, at=self._clock.wall_ms(), reason=params.reason)
        )
        asked.before = self._gate.halt
        # The gate reads this before each call, on the loop, also of the calls that hold it up now.
        self._gate.halt = asked.before or asked.halt
        _send(connection, {})
        self._loop.call_soon_threadsafe(self._stop, asked)
        while asked.taken.wait(self._loop_seconds):
            with contextlib.suppress(queue.Empty):
                _send(connection, asked.answers.get(timeout=self._loop_seconds))
                return
            # It works on the answer, or something holds it again.
            asked.taken = threading.Event()
            self._loop.call_soon_threadsafe(asked.taken.set)
        ended = self._emergency.end_all()
        self._log("stopped_without_loop", level="error", ended=ended, peer=asked.peer)
        try:
            self._note.keep(asked)
        except OSError as error:
            self._log("stop_not_kept", level="error", error=error)
        _send(connection, {"held": {"at": rfc3339(asked.halt.at), "by": asked.halt.by, "ended": ended}})

    # -- the loop --

    def _stop(self, asked: "_Asked") -> None:
        try:
            answer = self._gate.call(Call(LOCAL, ADMIN_STOP.name, asked.params, door="stop", connection=asked))
        except BasculeError as error:
            self._refused(asked, error)
        else:
            if isinstance(answer, Deferred):
                answer.add_done_callback(partial(self._answered, asked))
        asked.taken.set()

    def _answered(self, asked: "_Asked", answer: Deferred[Any]) -> None:
        if answer.cancelled():
            return
        if (error := answer.exception()) is not None:
            refusal = error if isinstance(error, BasculeError) else internal(self._log, error)
            # Stopped all the same, so the file stays.
            asked.answers.put({"refused": refusal.body()})
            return
        self._note.drop(asked)
        asked.answers.put({"result": answer.result()})

    def _refused(self, asked: "_Asked", error: BasculeError) -> None:
        """The policy says no: nothing was stopped, so what this thread set goes again."""
        if self._gate.halt is asked.halt:
            self._gate.halt = None
        self._note.drop(asked)
        asked.answers.put({"refused": error.body()})


class _Asked:
    """One stop; also the connection whose `peer` its record names."""

    def __init__(self, params: StopParams, peer: str, halt: Halt) -> None:
        self.params = params
        self.peer = peer
        self.halt = halt
        self.before: Halt | None = None
        # The store has it, so the file is not needed.
        self.stored = False
        self.taken = threading.Event()
        self.answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()


class HaltNote:
    """The file that tells the next life of a stop which the store does not know of."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Of the loop and the thread either may come first.
        self._lock = threading.Lock()

    def read(self) -> Halt | None:
        try:
            with open(self._path, "rb") as file:
                text, at = file.read(), os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return None
        try:
            return codec.decode(text, Halt)
        except codec.BadJson:
            # The daemon was killed while it wrote. Somebody stopped everything: that much is known.
            return Halt(by=LOCAL, at=int(at * 1000))

    def keep(self, asked: _Asked) -> None:
        with self._lock:
            if asked.stored:
                return
            # Not synced: it outlives the daemon, and a stop must not wait for a disk.
            with open(self._path, "wb") as file:
                file.write(codec.encode(asked.halt))

    def drop(self, asked: _Asked | None = None) -> None:
        with self._lock:
            if asked is not None:
                asked.stored = True
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


def _line(connection: socket.socket) -> bytes:
    connection.settimeout(REQUEST_SECONDS)
    data = b""
    while b"\n" not in data and len(data) <= MAX_REQUEST_BYTES:
        piece = connection.recv(MAX_REQUEST_BYTES)
        if not piece:
            break
        data += piece
    return data.partition(b"\n")[0]


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    connection.sendall(msgspec.json.encode(message) + b"\n")
