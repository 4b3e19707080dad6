"""The program's connection to the daemon: one socket for all calls, made again when the daemon restarts.

While it is open the agent counts as online, so no heartbeat is sent. A call whose connection broke is made again
under its id where its tool allows that; else the answer says that it is unknown whether it acted.

Never blocks. The loop asks when to come back (`next_time`) and calls `on_time`, `on_readable`, `on_writable`.
"""

from __future__ import annotations

from bascule.foundation.agreement import MAX_LINK_FRAME_BYTES
from bascule.foundation.backoff import Backoff
from bascule.foundation.paths import UnsafePlace
from bascule.local_client.exits import ConnectionLost, DoorError, NotRunning, Refusal, daemon_stopped, status_of
from bascule.local_client.peers import STOPPED_SECONDS
from bascule.local_client.values import encode, new_ticket_id
from bascule.programs.mcp_stdio.mcp import SLICE_MS

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any, Protocol

    from bascule.programs.mcp_stdio import mcp
    from bascule.programs.mcp_stdio.identity import Identity
    from bascule.programs.mcp_stdio.starter import Starter

    # An answer, or why there is none.
    Answered = Callable[[Any, DoorError | None], None]

    class Client(Protocol):
        """Where answers and notifications go."""

        def on_answer(self, call: Call, message: dict[str, Any]) -> None:
            """Returns when the client has the bytes."""

        def on_failure(self, call: Call, fault: DoorError) -> None: ...

        def on_notification(self, message: dict[str, Any]) -> None: ...

    class Socket(Protocol):
        unsent: bytearray

        def fileno(self) -> int: ...
        def stopped_peer(self) -> int: ...
        def close(self) -> None: ...
        def send(self, message: dict[str, Any]) -> None: ...
        def send_body(self, body: bytes) -> None: ...
        def flush(self) -> None: ...
        def receive(self) -> list[dict[str, Any]]: ...


# How long a call waits for a daemon that is being started or restarted.
CONTACT_SECONDS = 10.0
# A daemon that is silent for so long is asked whether it is there; silent for as long again, it hangs.
ANSWER_SECONDS = 15.0
# Nobody waits: look for the daemon now and then, so that the agent is online again when it is back.
IDLE_SECONDS = 5.0


class Call:
    """A request of the client that the daemon answers."""

    __slots__ = ("again", "give_up", "id", "line", "named", "number", "request", "retry", "silent", "started")

    def __init__(
        self, request: mcp.Request, line: bytes, retry: str, now: float, named: str | None, *, silent: bool = False
    ) -> None:
        self.request = request
        # As the client wrote it: it is passed on without being written anew.
        self.line = line
        # As in tools.json: `read` and `keyed` may be sent again, `never` may not.
        self.retry = retry
        self.id = new_ticket_id()
        self.named = named
        self.started = now
        self.again = silent
        # Nobody waits for its answer.
        self.silent = silent
        # Under which it was sent.
        self.number: int | None = None
        self.give_up = float("inf") if self.stays else now + CONTACT_SECONDS

    @property
    def stays(self) -> bool:
        """A subscription: it has no answer until it ends."""
        return self.request.method == "subscriptions/listen"

    def body(self, number: int, now: float) -> bytes:
        left = max(0, SLICE_MS - round((now - self.started) * 1000))
        params = b'"call":"%b","leftMs":%d,"again":%b' % (self.id.encode(), left, b"true" if self.again else b"false")
        if self.named is not None:
            params += b',"named":' + encode(self.named)
        head = b'{"jsonrpc":"2.0","id":%d,"method":"mcp.request","params":{' % number
        return head + params + b',"message":' + self.line + b"}}"


class Link:
    def __init__(
        self,
        connect: Callable[[], Socket],
        where: str,
        starter: Starter,
        clock: Callable[[], float],
        session: dict[str, Any],
    ) -> None:
        self._open_socket = connect
        self._where = where
        self._starter = starter
        self._clock = clock
        # The params of `mcp.open`.
        self._session = session
        self.client: Client | None = None
        self.identity: Identity | None = None
        # The client opens pages for its user; known before the first connection.
        self.opens_pages = False
        # So do forms, by a request in the middle of a call.
        self.fills_forms = False
        self.is_daemon = True
        self.ready = False
        # Why there is no connection, once one was tried.
        self.fault: DoorError | None = None
        # `resources/subscribe` as it was answered: made again on every new connection.
        self.standing: Call | None = None
        self._socket: Socket | None = None
        self._waiting: list[Call] = []
        self._sent: dict[int, Call] = {}
        # Our own requests.
        self._asked: dict[int, Answered] = {}
        self._numbers = 0
        self._introduction: Generator[tuple[str, dict[str, Any]], Any, None] | None = None
        # The daemon's number for a change of name under way.
        self._becoming: int | None = None
        self._last_received = 0.0
        self._pinged = False
        # When to look whether the daemon's process is stopped, and which process was, at the last look.
        self._look_at = 0.0
        self._stopped = 0
        self._retry_at = 0.0
        self._start_wanted = False
        self._pauses = Backoff()

    # -- what the loop asks for -------------------------------------------------------------------

    def open(self, identity: Identity) -> None:
        """From now on be this agent, and start the daemon if none runs."""
        if self.identity is None:
            self.identity = identity
            self._start_wanted = True
            self._connect()

    @property
    def handle(self) -> str | None:
        return self.identity.handle or self.identity.name if self.identity else None

    def request(self, call: Call) -> None:
        self._waiting.append(call)
        if self._socket is None:
            self._start_wanted = True
            self._retry_at = min(self._retry_at, self._clock())
        self._pump()

    def withdraw(self, call: Call) -> None:
        """The client does not want the answer any more."""
        if call in self._waiting:
            self._waiting.remove(call)
        elif call.number is not None and self._sent.pop(call.number, None) is not None:
            params = {"method": "notifications/cancelled", "params": {"requestId": call.request.number}}
            self._notify("mcp.message", {"message": params})

    def pass_answer(self, message: dict[str, Any]) -> None:
        """The client's answer to a request of the daemon's."""
        result = message.get("result")
        answer = {"id": message["id"], "result": result if isinstance(result, dict) else {}}
        self._notify("mcp.answer", {"message": answer})

    @property
    def busy(self) -> bool:
        """Something is under way that will have an answer."""
        return any(not call.stays and not call.silent for call in (*self._waiting, *self._sent.values()))

    # -- what the loop calls ----------------------------------------------------------------------

    @property
    def socket(self) -> Socket | None:
        return self._socket

    def next_time(self) -> float | None:
        times = [call.give_up for call in self._waiting]
        if self.identity and self._socket is None:
            times.append(self._retry_at)
        if self._sent or self._asked:
            times += (self._last_received + ANSWER_SECONDS, self._look_at)
        return min(times, default=None)

    def on_time(self) -> None:
        now = self._clock()
        if self.identity and self._socket is None and now >= self._retry_at:
            self._connect()
        for call in [each for each in self._waiting if each.give_up <= now]:
            self._waiting.remove(call)
            self._fail(call, self.fault or NotRunning(self._where))
        self._look_for_stopped(now)
        if self._socket is not None and (self._sent or self._asked) and now >= self._last_received + ANSWER_SECONDS:
            if self._pinged or not self.ready or self.identity is None:
                # A daemon that does not answer is as good as none; a new connection may find it better.
                self._lost(ConnectionLost("the daemon does not answer", "see `bridgectl tail logs`"))
            else:
                self._pinged = True
                self._last_received = now
                self._ask(*self.identity.hello(), _ignore)
        self._pump()

    def _look_for_stopped(self, now: float) -> None:
        """A hook of the client must not wait for a daemon that cannot answer; what may be sent again waits for it."""
        if self._socket is None or not (self._sent or self._asked) or now < self._look_at:
            return
        self._look_at = now + STOPPED_SECONDS
        pid = self._socket.stopped_peer()
        if pid and pid == self._stopped:
            fault = daemon_stopped(pid)
            self._lost(fault)
            for call in [each for each in self._waiting if each.retry == "never"]:
                self._waiting.remove(call)
                self._fail(call, fault)
        self._stopped = pid

    def on_readable(self) -> None:
        if self._socket is None:
            return
        try:
            messages = self._socket.receive()
            self._last_received = self._clock()
            for message in messages:
                self._pinged = False
                self._on_message(message)
        except DoorError as fault:
            self._lost(fault)

    def on_writable(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.flush()
        except DoorError as fault:
            self._lost(fault)

    def close(self) -> None:
        self._starter.finish()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- connecting -------------------------------------------------------------------------------

    def _connect(self) -> None:
        assert self.identity is not None
        try:
            self._socket = self._open_socket()
        except DoorError as fault:
            self._not_connected(fault)
            return
        self.fault = None
        self._start_wanted = False
        self._last_received = self._clock()
        self._pinged = False
        self._introduce(self._opening(self.identity))

    def _opening(self, identity: Identity) -> Generator[tuple[str, dict[str, Any]], Any, None]:
        yield from identity.introduce()
        able = {name: True for name, can in self._abilities().items() if can}
        try:
            try:
                yield "mcp.open", {**self._session, **able}
            except Refusal as refused:
                # A daemon from before there were pages to open, or forms.
                if not able or refused.code != "invalid_request":
                    raise
                yield "mcp.open", self._session
        except Refusal as refused:
            if refused.code != "not_found":
                raise
            raise DoorError(
                "the running daemon is older than this program and does not know mcp.open",
                "restart it with `bascule down && bascule up -d`",
            ) from None

    def _abilities(self) -> dict[str, bool]:
        return {"opensPages": self.opens_pages, "fillsForms": self.fills_forms}

    def _not_connected(self, fault: DoorError) -> None:
        tried_before = isinstance(self.fault, NotRunning)
        self.fault = fault
        hurry = self._waiting or (self._start_wanted and self._starter.enabled)
        pause = next(self._pauses) if hurry else IDLE_SECONDS
        self._retry_at = self._clock() + pause
        if not isinstance(fault, NotRunning | ConnectionLost):
            self._fail_waiting(fault)
        elif failure := self._starter.failure():
            self._start_wanted = False
            self.fault = failure
            self._fail_waiting(failure)
        elif self._start_wanted and tried_before and isinstance(fault, NotRunning):
            # Not at the first try: the answer to `initialize` goes out before we pay for a new process.
            try:
                self._starter.begin()
            except (OSError, UnsafePlace) as cause:
                self._start_wanted = False
                self.fault = DoorError(f"Bascule could not be started: {cause}", "start it with `bascule up -d`")
                self._fail_waiting(self.fault)

    def _introduce(self, introduction: Generator[tuple[str, dict[str, Any]], Any, None]) -> None:
        """Calls wait until it is clear who we are."""
        self.ready = False
        self._introduction = introduction
        self._step(None, None)

    def _step(self, value: Any, fault: DoorError | None) -> None:
        introduction = self._introduction
        assert introduction is not None
        try:
            method, params = introduction.throw(fault) if fault else introduction.send(value)
        except StopIteration:
            self._introduced(None)
        except DoorError as refused:
            self._introduced(refused)
        else:
            self._ask(method, params, self._step)

    def _introduced(self, fault: DoorError | None) -> None:
        becoming, self._becoming, self._introduction = self._becoming, None, None
        if fault and becoming is None:
            # A version that does not match, a policy that says no: it will not change by trying at once.
            self._drop_socket()
            self.fault = fault
            self._retry_at = self._clock() + IDLE_SECONDS
            self._fail_waiting(fault)
            return
        self.ready = True
        self._pauses.reset()
        self._starter.finish()
        if becoming is not None:
            self._send_became(becoming, fault)
        elif self.standing is not None:
            old = self.standing
            self._put(Call(old.request, old.line, "read", self._clock(), None, silent=True))
        self._pump()

    def _send_became(self, number: int, fault: DoorError | None) -> None:
        assert self.identity is not None
        answer: dict[str, Any] = {"number": number}
        if fault is None:
            answer["result"] = self.identity.registered
        else:
            answer["error"] = {"code": getattr(fault, "code", "internal"), "message": fault.message, "hint": fault.hint}
        self._notify("mcp.became", answer)

    def _lost(self, fault: DoorError) -> None:
        self._drop_socket()
        self.fault = fault
        now = self._clock()
        self._retry_at = now + next(self._pauses)
        sent, self._sent = self._sent, {}
        again = []
        for call in sent.values():
            call.number = None
            if call.silent:
                continue
            if call.retry == "never":
                self._fail(
                    call,
                    ConnectionLost(
                        "the connection to the daemon broke; whether it acted is unknown", "look first, then call again"
                    ),
                )
                continue
            call.again = True
            if not call.stays:
                call.give_up = max(now + CONTACT_SECONDS, call.started + SLICE_MS / 1000)
            again.append(call)
        self._waiting = again + self._waiting

    def _drop_socket(self) -> None:
        self.ready = False
        self._introduction = None
        self._becoming = None
        self._asked.clear()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # -- requests and answers ---------------------------------------------------------------------

    def _pump(self) -> None:
        while self.ready and self._waiting:
            self._put(self._waiting.pop(0))

    def _put(self, call: Call) -> None:
        now = self._clock()
        self._start_silence(now)
        self._numbers += 1
        body = call.body(self._numbers, now)
        if len(body) > MAX_LINK_FRAME_BYTES:
            self._fail(call, _too_large(len(body)))
            return
        call.number = self._numbers
        self._sent[self._numbers] = call
        if self._socket is not None:
            try:
                self._socket.send_body(body)
            except DoorError as fault:
                self._lost(fault)

    def _ask(self, method: str, params: dict[str, Any], answered: Answered) -> None:
        self._start_silence(self._clock())
        self._numbers += 1
        self._asked[self._numbers] = answered
        self._send({"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": params})

    def _start_silence(self, now: float) -> None:
        """Silence counts from the first question that is open."""
        if not self._sent and not self._asked:
            self._last_received = now
            self._look_at = now + STOPPED_SECONDS

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(message)
        except DoorError as fault:
            self._lost(fault)

    def _on_message(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self._on_notification(message["method"], message.get("params"))
            return
        number, error, result = message.get("id"), message.get("error"), message.get("result")
        refusal = _refusal(error) if isinstance(error, dict) else None
        if number is None and refusal is not None:
            # The daemon could not even read whose frame it was: nobody who asked would ever hear of it.
            sent, self._sent = self._sent, {}
            for call in sent.values():
                self._fail(call, refusal)
            return
        if not isinstance(number, int):
            return
        if number in self._asked:
            self._asked.pop(number)(result, refusal)
        elif number in self._sent:
            call = self._sent.pop(number)
            result = result if isinstance(result, dict) else {}
            answer = result.get("message")
            if refusal is not None or not isinstance(answer, dict):
                self._fail(call, refusal or DoorError("the daemon's answer holds no MCP message"))
            elif not call.silent and self.client is not None:
                self.client.on_answer(call, answer)
                if result.get("confirm"):
                    self._notify("mcp.done", {"call": call.id})

    def _on_notification(self, method: object, params: Any) -> None:
        if not isinstance(params, dict):
            return
        if method == "mcp.message" and isinstance(params.get("message"), dict) and self.client is not None:
            self.client.on_notification(params["message"])
        elif method == "mcp.become" and self.ready and self.identity is not None:
            number, wanted = params.get("number"), params.get("wanted")
            if isinstance(number, int) and isinstance(wanted, dict) and isinstance(wanted.get("agentId"), str):
                self._becoming = number
                self._introduce(self.identity.become(wanted))

    def _fail(self, call: Call, fault: DoorError) -> None:
        if self.client is not None and not call.silent:
            self.client.on_failure(call, fault)

    def _fail_waiting(self, fault: DoorError) -> None:
        # A subscription is not a question: it waits for the daemon for as long as its client listens.
        waiting, self._waiting = self._waiting, [call for call in self._waiting if call.stays]
        for call in waiting:
            if not call.stays:
                self._fail(call, fault)


def _ignore(_value: Any, _fault: DoorError | None) -> None:
    """Any answer shows that the daemon is there."""


def _too_large(size: int) -> Refusal:
    return Refusal(
        413,
        {
            "code": "too_large",
            "message": f"the request is {size} bytes; the daemon takes {MAX_LINK_FRAME_BYTES} at once",
        },
    )


def _refusal(error: dict[str, Any]) -> Refusal:
    data = error.get("data")
    body = data if isinstance(data, dict) else {"message": error.get("message")}
    after = body.get("retryAfterMs")
    return Refusal(
        status_of(str(body.get("code"))),
        body,
        after / 1000 if isinstance(after, int | float) else None,
    )
