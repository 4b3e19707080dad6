"""Another broker at `BRIDGE_BROKER_URL`: another Bascule at its `/mcp`, any other by section 5 of the broker spec.

Which of the two it is shows when it has registered us: only a Bascule serves `/mcp`. Each call has a thread with a
blocking connection of its own, and the loop is woken through a pipe; only this way pays for threads.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from functools import partial

from bascule.foundation.backoff import Backoff
from bascule.local_client import http
from bascule.local_client.exits import ConnectionLost, DoorError, Refusal
from bascule.local_client.retry import pause_after
from bascule.local_client.values import encode
from bascule.programs.mcp_stdio.held_names import HeldNames
from bascule.programs.mcp_stdio.identity import MAX_NAMESAKES, namesakes
from bascule.programs.mcp_stdio.link import CONTACT_SECONDS
from bascule.programs.mcp_stdio.mcp import SLICE_MS
from bascule.programs.mcp_stdio.remote_mcp import RemoteMcp
from bascule.programs.mcp_stdio.section_five import Broker, use

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from bascule.local_client.http import Door
    from bascule.programs.mcp_stdio.identity import Identity
    from bascule.programs.mcp_stdio.link import Call, Client

# An agent that misses two of these is offline: at a broker without `/mcp` that is how it ends when we end.
HEARTBEAT_SECONDS = 30.0


class Foreign:
    """Stands where `link.Link` stands."""

    def __init__(self, door: Door, state: str, session: dict[str, Any]) -> None:
        self._door = door
        self._session = session
        self._names = HeldNames(state)
        self.client: Client | None = None
        self.identity: Identity | None = None
        # Another broker asks no person of ours.
        self.opens_pages = False
        self.fills_forms = False
        self.is_daemon = False
        self.ready = False
        self.fault: DoorError | None = None
        # Kept by `remote_mcp`.
        self.standing: Call | None = None
        self.handle: str | None = None
        self._token: str | None = None
        self._remote: RemoteMcp | None = None
        # One thread at a time says who we are.
        self._entering = threading.Lock()
        self._beating = False
        # Calls under way, and how to end what each waits for.
        self._open: dict[Call, list[Callable[[], None]]] = {}
        self._closed = threading.Event()
        reading, self._writing = os.pipe()
        self.socket = Bell(reading)
        self._results: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    # -- what the loop uses -----------------------------------------------------------------------

    def open(self, identity: Identity) -> None:
        if self.identity is None:
            self.identity = identity
            self.handle = identity.name
            self._start(self._enter_first)

    @property
    def busy(self) -> bool:
        return any(not call.stays for call in self._open)

    def request(self, call: Call) -> None:
        self._open[call] = []
        self._start(lambda: self._serve(call))

    def pass_answer(self, message: dict[str, Any]) -> None:
        """Another broker asks the client for nothing."""

    def withdraw(self, call: Call) -> None:
        for end in self._open.pop(call, ()):
            # The broker sees that nobody waits any more.
            end()

    def next_time(self) -> float | None:
        return None

    def on_time(self) -> None:
        """Threads have clocks of their own."""

    def on_readable(self) -> None:
        self.socket.drain()
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                return
            result()

    def on_writable(self) -> None:
        """Nothing is written here."""

    def close(self) -> None:
        self._closed.set()
        for call in list(self._open):
            self.withdraw(call)
        if self._remote is not None:
            self._remote.close()
        self._names.release()

    # -- in threads -------------------------------------------------------------------------------

    def _start(self, work: Callable[[], None]) -> None:
        # Daemonic: a wait that nobody wants any more must not keep the program.
        threading.Thread(target=work, daemon=True).start()

    def _in_loop(self, result: Callable[[], None]) -> None:
        self._results.put(result)
        os.write(self._writing, b".")

    def _enter_first(self) -> None:
        try:
            self._enter()
        except DoorError as fault:
            self.fault = fault
        self._in_loop(lambda: None)

    def _enter(self) -> None:
        """Register once, and find out what the other end is."""
        with self._entering:
            if self.ready:
                return
            assert self.identity is not None
            # Nothing is held for a broker that is not there.
            http.connect(self._door).close()
            for name in namesakes(self.identity.name):
                if not self._names.take(name):
                    continue
                try:
                    self._register({"agentId": name})
                except Refusal as refused:
                    self._names.keep(name, granted=False)
                    if refused.status != 409:
                        raise
                    continue
                self.ready = True
                self.fault = None
                return
            raise Refusal(
                409,
                {
                    "code": "conflict",
                    "message": f"{self.identity.name} and {MAX_NAMESAKES - 1} names made from it are taken",
                    "hint": "choose another name with `bascule mcp --agent NAME`",
                },
            )

    def _register(self, wanted: dict[str, Any]) -> dict[str, Any]:
        assert self.identity is not None
        name = wanted["agentId"]
        params = {
            "heartbeatIntervalMs": round(HEARTBEAT_SECONDS * 1000),
            **wanted,
            "type": wanted.get("type") or self.identity.kind,
            "metadata": self.identity.metadata | wanted.get("metadata", {}),
        }
        token = self._token if self.ready and name == self.handle else None
        try:
            # Ours: a handle that another session holds is refused.
            answer = http.call(self._door, "POST", "/agents/register", {**params, "exclusive": True}, token=token)
        except Refusal as refused:
            if refused.status != 400:
                raise
            answer = http.call(self._door, "POST", "/agents/register", params, token=token)
        registered = dict(answer) if isinstance(answer, dict) else {}
        fresh = registered.pop("agentToken", None)
        token = fresh if isinstance(fresh, str) else token or self._door.bearer
        remote = RemoteMcp.found_at(self._door, token, self._notified)
        if self._remote is not None:
            self._remote.close()
        self._names.keep(name, granted=True)
        self.handle, self._token, self._remote = name, token, remote
        if not self._beating:
            self._beating = True
            self._start(self._beat)
        return registered

    def _rename(self, wanted: dict[str, Any]) -> dict[str, Any]:
        with self._entering:
            if not self._names.take(wanted["agentId"]):
                raise Refusal(
                    409, {"code": "conflict", "message": f"{wanted['agentId']} is another session of this user"}
                )
            return self._register(wanted)

    def _beat(self) -> None:
        while not self._closed.wait(HEARTBEAT_SECONDS):
            try:
                self._broker().heartbeat()
            except DoorError:
                continue

    def _broker(self) -> Broker:
        return Broker(self._door, self._token, self.handle or "", self._session, self._rename)

    def _serve(self, call: Call) -> None:
        pauses = Backoff()
        deadline = time.monotonic() + (SLICE_MS / 1000 if self.ready else CONTACT_SECONDS)
        while True:
            try:
                message = self._answer(call)
                break
            except DoorError as fault:
                pause = self._pause_after(call, fault, pauses)
                if pause is None or time.monotonic() + pause > deadline or call not in self._open:
                    self._in_loop(partial(self._fail, call, fault))
                    return
            except Exception:  # noqa: BLE001 - the boundary: a broker that answers oddly must not leave a call open
                sys.excepthook(*sys.exc_info())
                broken = DoorError("internal error in `bascule mcp`; its stderr says more")
                self._in_loop(partial(self._fail, call, broken))
                return
            call.again = True
            time.sleep(pause)
        self._in_loop(partial(self._finish, call, message))

    def _pause_after(self, call: Call, fault: DoorError, pauses: Backoff) -> float | None:
        """How long to wait before the call is made again; None: never."""
        if isinstance(fault, ConnectionLost) and call.retry == "never":
            return None
        if isinstance(fault, Refusal) and fault.status == 404 and self._remote is not None:
            # It has restarted: our session is forgotten, our name is not.
            try:
                self._remote.open()
            except DoorError:
                return next(pauses)
            return 0.0
        return pause_after(fault, pauses)

    def _answer(self, call: Call) -> dict[str, Any]:
        self._enter()
        request = call.request
        name = str(request.params.get("name"))
        # At `/mcp` a token is one agent: another name is registered as at any broker.
        if self._remote is not None and name != "register_agent":
            return self._named(call, self._remote.request(call, lambda end: self._learn(call, end)))
        if request.method != "tools/call":
            raise DoorError(f"{self._door.where} has messages only: it has no resources")
        result = use(self._broker(), name, request.params.get("arguments") or {}, call.id)
        return self._named(call, request.tool_called(result, encode(result).decode()))

    def _named(self, call: Call, message: dict[str, Any]) -> dict[str, Any]:
        """With our handle in it, where the client knows another one."""
        result = message.get("result")
        structured = result.get("structuredContent") if isinstance(result, dict) else None
        if self.handle != call.named and isinstance(result, dict) and isinstance(structured, dict):
            structured["you"] = self.handle
            text = {"type": "text", "text": encode(structured).decode()}
            result["content"] = [text, *result.get("content", ())[1:]]
        return message

    def _learn(self, call: Call, end: Callable[[], None]) -> None:
        """How to end the connection that a call waits on."""
        enders = self._open.get(call)
        if enders is None:
            end()
        else:
            enders.append(end)

    def _notified(self, message: dict[str, Any]) -> None:
        if self.client is not None:
            self._in_loop(partial(self.client.on_notification, message))

    # -- in the loop ------------------------------------------------------------------------------

    def _finish(self, call: Call, message: dict[str, Any]) -> None:
        if self._open.pop(call, None) is not None and self.client is not None:
            self.client.on_answer(call, message)

    def _fail(self, call: Call, fault: DoorError) -> None:
        if self._open.pop(call, None) is not None and self.client is not None:
            self.client.on_failure(call, fault)


class Bell:
    """The loop's end of the pipe that threads wake it through."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self.unsent = bytearray()

    def fileno(self) -> int:
        return self._reading

    def drain(self) -> None:
        os.read(self._reading, 65536)
