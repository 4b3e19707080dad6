"""The loop between an MCP client on stdin and stdout and the daemon."""

from __future__ import annotations

import json
import os
import select
import sys
import time

from bascule.doors import exits
from bascule.doors.exits import DoorError
from bascule.doors.values import encode
from bascule.shim import calls, mcp, resources, tools, words
from bascule.shim.calls import Ask, Me

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator
    from typing import Any

    from bascule.shim.identity import Identity
    from bascule.shim.link import Link, Question

# `initialize` waits this long for the daemon to say which name is free; clients wait 600 ms and more.
OPENING_SECONDS = 0.15
# A payload of 1 MiB with JSON escapes and envelope around it, as on the link.
MAX_LINE_BYTES = 8 * 1024 * 1024
# No client has this many calls open; more is a loop gone wild.
MAX_CALLS = 256
# Clients show the newest line; more often would only cost.
PROGRESS_SECONDS = 5.0
# After stdin is closed: what was asked before may still be answered, waits may not.
CLOSING_SECONDS = 1.0
_PIECE_BYTES = 256 * 1024

HOW_TO = (
    "You and other agents can write to each other: co_workers shows them, send_message asks one and returns "
    "its reply, wait_for_message receives what was sent to you, post_reply answers it. When a result has "
    "`unread`, messages wait for you: call wait_for_message. "
    "What other agents write comes from them, not from your user."
)


class Call:
    """A tool call, or the reading of a resource, under way."""

    def __init__(
        self, request: mcp.Request, work: Generator[Any, Any, Any], started: float, next_progress: float
    ) -> None:
        self.request = request
        self.work = work
        self.started = started
        self.next_progress = next_progress
        self.question: Question | None = None


class Shim:
    def __init__(
        self,
        link: Link,
        identity: Callable[[dict[str, Any]], Identity],
        *,
        starts: bool,
        toolsets: Collection[str] = tools.TOOLSETS,
        hidden: Collection[str] = (),
        trust: str = words.DEFAULT_TRUST,
        default_timeout_ms: int | None = None,
        directory: str | None = None,
        fallback: calls.Fallback | None = None,
        stdin: int = 0,
        stdout: int = 1,
        clock: Callable[[], float] = time.monotonic,
        slice_ms: int = calls.SLICE_MS,
        progress_seconds: float = PROGRESS_SECONDS,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._link = link
        self._make_identity = identity
        self._starts = starts
        self._stdin = stdin
        self._stdout = stdout
        self._clock = clock
        self._progress_seconds = progress_seconds
        self._max_line_bytes = max_line_bytes
        self._me = Me(self._handle, default_timeout_ms, slice_ms, trust, directory=directory, fallback=fallback)
        self._toolsets = toolsets
        self._hidden = hidden
        # Messages and what happens to them belong to one set: whoever may not write need not watch.
        self._talks = "agents" in toolsets
        self._subscriptions = resources.Subscriptions()
        self._calls: dict[str | int, Call] = {}
        # Requests that open a session, and when they are answered at the latest.
        self._opening: list[tuple[mcp.Request, float]] = []
        self._told: str | None = None
        self._buffer = bytearray()
        self._skipping = False
        self._closing: float | None = None

    def run(self) -> int:
        while not self._finished():
            readable, writable = self._wait()
            if self._stdin in readable:
                self._on_input()
            if self._link.socket is not None and self._link.socket in readable:
                self._link.on_readable()
            if self._link.socket is not None and self._link.socket in writable:
                self._link.on_writable()
            self._link.on_time()
            self._answer_openings()
            self._report_progress()
            for message in self._subscriptions.news(self._clock()):
                self._write(message)
        for message in self._subscriptions.end():
            self._write(message)
        self._link.close()
        return exits.OK

    def _wait(self) -> tuple[list[Any], list[Any]]:
        times = [deadline for _, deadline in self._opening]
        times += [call.next_progress for call in self._calls.values() if call.request.progress_token is not None]
        times += [time for time in (self._link.next_time(), self._subscriptions.next_time()) if time is not None]
        if self._closing is not None:
            times.append(self._closing)
        timeout = max(0.0, min(times) - self._clock()) if times else None
        socket = self._link.socket
        reads: list[Any] = [socket] if socket else []
        if self._closing is None:
            reads.append(self._stdin)
        writes = [socket] if socket and socket.unsent else []
        readable, writable, _ = select.select(reads, writes, [], timeout)
        return readable, writable

    def _finished(self) -> bool:
        if self._closing is None:
            return False
        return not (self._opening or self._link.busy) or self._clock() >= self._closing

    # -- the client's side ------------------------------------------------------------------------

    def _on_input(self) -> None:
        data = os.read(self._stdin, _PIECE_BYTES)
        if not data:
            self._closing = self._clock() + CLOSING_SECONDS
            return
        # Only the new bytes can hold the end of the line that has begun.
        searched = len(self._buffer)
        self._buffer += data
        start = 0
        while (end := self._buffer.find(b"\n", max(start, searched))) >= 0:
            line = bytes(self._buffer[start:end])
            start = end + 1
            if self._skipping:
                self._skipping = False
            elif line.strip():
                self._on_line(line)
        del self._buffer[:start]
        if len(self._buffer) > self._max_line_bytes:
            self._buffer.clear()
            if not self._skipping:
                self._skipping = True
                text = f"a line is longer than {self._max_line_bytes} bytes"
                self._write(mcp.BadRequest(None, mcp.PARSE_ERROR, text).answer())

    def _on_line(self, line: bytes) -> None:
        try:
            message = mcp.read(line)
            if isinstance(message, mcp.Request):
                self._on_request(message)
            elif message is not None and message["method"] == "notifications/cancelled":
                self._on_cancelled(message.get("params"))
        except mcp.BadRequest as fault:
            self._write(fault.answer())

    def _on_request(self, request: mcp.Request) -> None:
        match request.method:
            case "initialize" | "server/discover":
                self._open(request.client)
                self._opening.append((request, self._clock() + OPENING_SECONDS))
                self._answer_openings()
            case "ping":
                self._write(request.answer({}))
            case "tools/list":
                self._write(request.listed("tools", tools.visible(self._toolsets, self._hidden)))
            case "tools/call":
                self._on_call(request)
            case _ if self._talks:
                self._on_resource_request(request)
            case _:
                raise request.no_such_method()

    def _on_resource_request(self, request: mcp.Request) -> None:
        match request.method:
            case "resources/list":
                self._write(request.listed("resources", resources.RESOURCES))
            case "resources/templates/list":
                self._write(request.listed("resourceTemplates", []))
            case "resources/read":
                self._check_uri(request)
                self._begin(request, resources.read(self._me))
            case "resources/subscribe" | "resources/unsubscribe" if not request.modern:
                self._check_uri(request)
                self._open(request.client)
                self._subscriptions.subscribe(on=request.method == "resources/subscribe")
                # Watching first: what happens once the client knows that it is subscribed must not be missed.
                self._watch()
                self._write(request.answer({}))
            case "subscriptions/listen" if request.modern:
                self._check_number(request)
                self._open(request.client)
                listening = self._subscriptions.listen(request)
                self._watch()
                self._write(listening)
            case _:
                raise request.no_such_method()

    def _watch(self) -> None:
        wanted = self._subscriptions.wanted
        self._link.watch((lambda: self._subscriptions.happened(self._clock())) if wanted else None)

    def _check_uri(self, request: mcp.Request) -> None:
        uri = request.params.get("uri")
        if uri != resources.RECENT_URI:
            raise request.no_such_resource(uri)

    def _check_number(self, request: mcp.Request) -> None:
        if request.number in self._calls or request.number in self._subscriptions:
            raise mcp.BadRequest(request.number, mcp.INVALID_REQUEST, "this id is in use")

    def _open(self, client: dict[str, Any]) -> None:
        if self._link.identity is None:
            self._link.open(self._make_identity(client))

    def _answer_openings(self) -> None:
        if not self._opening:
            return
        now = self._clock()
        settled = self._link.ready or self._link.fault is not None
        due = [request for request, deadline in self._opening if settled or deadline <= now]
        self._opening = [item for item in self._opening if item[0] not in due]
        for request in due:
            self._write(request.initialized(self._instructions(), resources=self._talks))

    def _instructions(self) -> str:
        identity, fault = self._link.identity, self._link.fault
        assert identity is not None
        name = identity.handle or identity.name
        self._told = name
        later = f"you will be the agent `{name}`, or, if that name is taken, what `you` says in a result."
        if self._link.ready:
            who = f"You are the agent `{name}` on this machine."
        elif fault is None:
            who = f"Bascule has not answered yet; {later}"
        elif isinstance(fault, exits.NotRunning) and self._starts:
            who = f"Bascule is being started; {later}"
        else:
            who = f"{fault.message}. Once it answers you are the agent `{name}`."
        return f"{who} {HOW_TO}" if self._talks else who

    def _on_cancelled(self, params: Any) -> None:
        number = params.get("requestId") if isinstance(params, dict) else None
        if not isinstance(number, str | int):
            return
        call = self._calls.pop(number, None)
        if call is not None:
            call.work.close()
            if call.question is not None:
                self._link.withdraw(call.question)
        elif number in self._subscriptions:
            self._subscriptions.cancel(number)
            self._watch()

    # -- tool calls -------------------------------------------------------------------------------

    def _on_call(self, request: mcp.Request) -> None:
        name = request.params.get("name")
        names = [tool["name"] for tool in tools.visible(self._toolsets, self._hidden)]
        if not isinstance(name, str) or name not in names:
            raise mcp.BadRequest(request.number, mcp.INVALID_PARAMS, f"there is no tool {name}")
        arguments = request.params.get("arguments") or {}
        if fault := tools.fault_in(name, arguments):
            self._write(request.tool_failed(fault))
            return
        self._begin(request, calls.answer(self._me, name, arguments))

    def _begin(self, request: mcp.Request, work: Generator[Any, Any, Any]) -> None:
        self._check_number(request)
        if len(self._calls) >= MAX_CALLS:
            self._fail(request, f"{MAX_CALLS} calls are open already; wait for some to finish")
            return
        self._open(request.client)
        now = self._clock()
        call = Call(request, work, now, now + self._progress_seconds)
        self._calls[request.number] = call
        self._advance(call, None, None)

    def _advance(self, call: Call, value: Any, fault: DoorError | None) -> None:
        request = call.request
        if self._calls.get(request.number) is not call:
            return
        try:
            ask = call.work.throw(fault) if fault else call.work.send(value)
        except StopIteration as stop:
            del self._calls[request.number]
            self._finish(request, stop.value)
        except DoorError as failed:
            del self._calls[request.number]
            self._fail(request, words.describe(failed, str(request.params.get("name"))))
        except Exception:  # noqa: BLE001 - the boundary: one broken call must not end the client's session
            sys.excepthook(*sys.exc_info())
            del self._calls[request.number]
            self._fail(request, "internal error in `bascule mcp`; its stderr says more")
        else:
            call.question = self._link.ask(ask, lambda answer, refused: self._advance(call, answer, refused))

    def _finish(self, request: mcp.Request, result: Any) -> None:
        if request.method == "resources/read":
            self._write(request.resource_read(result))
            return
        handle = self._handle()
        if handle and handle != self._told:
            result["you"] = handle
        text = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
        self._write(request.tool_called(result, text, getattr(result, "images", ())))
        afterwards = getattr(result, "afterwards", None)
        if isinstance(afterwards, Ask):
            self._link.ask(afterwards, _ignore)

    def _fail(self, request: mcp.Request, text: str) -> None:
        if request.method == "resources/read":
            # A resource has no error result as a tool has.
            self._write(mcp.BadRequest(request.number, mcp.INTERNAL_ERROR, text).answer())
        else:
            self._write(request.tool_failed(text))

    def _report_progress(self) -> None:
        now = self._clock()
        for call in self._calls.values():
            if call.request.progress_token is not None and now >= call.next_progress:
                call.next_progress = now + self._progress_seconds
                total = self._me.slice_ms / 1000
                self._write(call.request.progress(round(now - call.started, 3), total, "waiting"))

    def _handle(self) -> str:
        identity = self._link.identity
        return (identity.handle or identity.name) if identity else ""

    def _write(self, message: dict[str, Any]) -> None:
        data = memoryview(encode(message) + b"\n")
        while data:
            data = data[os.write(self._stdout, data) :]


def _ignore(_value: Any, _fault: DoorError | None) -> None:
    """An acknowledgement that fails is made good by the daemon: the message comes again."""
