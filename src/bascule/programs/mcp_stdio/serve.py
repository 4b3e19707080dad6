"""The loop between an MCP client on stdin and stdout and the daemon.

Answered here is what must be there before the daemon is: the opening, the list of tools, ping. Everything else is
passed on, and its answer is passed back.
"""

from __future__ import annotations

import os
import select
import time

from bascule.local_client import exits
from bascule.local_client.values import encode
from bascule.programs.mcp_stdio import mcp, tools, words
from bascule.programs.mcp_stdio.link import Call

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any, Protocol

    from bascule.local_client.exits import DoorError
    from bascule.programs.mcp_stdio.identity import Identity
    from bascule.programs.mcp_stdio.link import Client

    # What some tools can do without a daemon: tool, arguments, our handle.
    Fallback = Callable[[str, dict[str, Any], str], dict[str, Any] | None]

    class Watched(Protocol):
        """What the loop waits for."""

        unsent: bytearray

        def fileno(self) -> int: ...

    class Way(Protocol):
        """To the daemon (`link.Link`), or to another broker (`foreign.Foreign`)."""

        client: Client | None
        ready: bool
        fault: DoorError | None
        identity: Identity | None
        standing: Call | None
        opens_pages: bool
        fills_forms: bool
        # Our own daemon, which has tasks and prompts.
        is_daemon: bool

        @property
        def handle(self) -> str | None: ...
        @property
        def busy(self) -> bool: ...
        @property
        def socket(self) -> Watched | None: ...
        def open(self, identity: Identity) -> None: ...
        def request(self, call: Call) -> None: ...
        def withdraw(self, call: Call) -> None: ...
        def pass_answer(self, message: dict[str, Any]) -> None: ...
        def next_time(self) -> float | None: ...
        def on_time(self) -> None: ...
        def on_readable(self) -> None: ...
        def on_writable(self) -> None: ...
        def close(self) -> None: ...


# `initialize` waits this long for the daemon to say which name is free; clients wait 600 ms and more.
OPENING_SECONDS = 0.15
# A payload of 1 MiB with JSON escapes and envelope around it, as on the link.
MAX_LINE_BYTES = 8 * 1024 * 1024
# A hook's call has what a tool is given, escaped twice. What is too long for the link is refused by the daemon, which
# has to hear of it: to a client, a hook that failed is a call that may go on.
MAX_HOOK_LINE_BYTES = 128 * 1024 * 1024
# The name of the tool stands at the beginning of a line.
_NAME_WITHIN_BYTES = 16 * 1024
# No client has this many calls open; more is a loop gone wild.
MAX_CALLS = 256
# After stdin is closed: what was asked before may still be answered.
CLOSING_SECONDS = 1.0
# Of more, malloc gets fresh pages from the kernel and gives them back, at every read.
_PIECE_BYTES = 64 * 1024


class Program:
    def __init__(
        self,
        way: Way,
        identity: Callable[[dict[str, Any]], Identity],
        *,
        starts: bool,
        toolsets: Collection[str],
        hidden: Collection[str] = (),
        fallback: Fallback | None = None,
        on_hook: Callable[[str], None] | None = None,
        stdin: int = 0,
        stdout: int = 1,
        clock: Callable[[], float] = time.monotonic,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._way = way
        way.client = self
        self._make_identity = identity
        self._starts = starts
        self._stdin = stdin
        self._stdout = stdout
        self._clock = clock
        self._max_line_bytes = max_line_bytes
        self._toolsets = toolsets
        self._hidden = hidden
        # Messages and what happens to them belong to one set: an agent that may not write need not watch.
        self._talks = "agents" in toolsets
        # Off unless the user chose it.
        self._fallback = fallback
        # Called with the event when a hook of the client uses a tool that is for hooks.
        self._on_hook = on_hook
        self._calls: dict[str | int, Call] = {}
        # Requests that open a session, and when they are answered at the latest.
        self._opening: list[tuple[mcp.Request, float]] = []
        # Opened with the revision that lists which tools can be tasks.
        self._lists_tasks = False
        # The handle in the instructions.
        self._named: str | None = None
        self._buffer = bytearray()
        self._skipping = False
        self._closing: float | None = None

    def run(self) -> int:
        way = self._way
        while not self._finished():
            readable, writable = self._wait()
            if self._stdin in readable:
                self._on_input()
            if way.socket is not None and way.socket in readable:
                way.on_readable()
            if way.socket is not None and way.socket in writable:
                way.on_writable()
            way.on_time()
            self._answer_openings()
        # We leave: every open stream ends with its result.
        for call in [each for each in self._calls.values() if each.stays]:
            self._write(call.request.ended())
        way.close()
        return exits.OK

    def _wait(self) -> tuple[list[Any], list[Any]]:
        times = [deadline for _, deadline in self._opening]
        times += [time for time in (self._way.next_time(), self._closing) if time is not None]
        timeout = max(0.0, min(times) - self._clock()) if times and min(times) < float("inf") else None
        socket = self._way.socket
        reads: list[Any] = [socket] if socket else []
        if self._closing is None:
            reads.append(self._stdin)
        writes = [socket] if socket and socket.unsent else []
        readable, writable, _ = select.select(reads, writes, [], timeout)
        return readable, writable

    def _finished(self) -> bool:
        if self._closing is None:
            return False
        return not (self._opening or self._way.busy) or self._clock() >= self._closing

    # -- what the client says ---------------------------------------------------------------------

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
        if len(self._buffer) > self._max_line_bytes and not self._begins_hook():
            self._buffer.clear()
            if not self._skipping:
                self._skipping = True
                text = f"a line is longer than {self._max_line_bytes} bytes"
                self._write(mcp.BadRequest(None, mcp.PARSE_ERROR, text).answer())

    def _begins_hook(self) -> bool:
        begin = self._buffer[:_NAME_WITHIN_BYTES]
        named = any(f'"{name}"'.encode() in begin for name in tools.table()["hooks"])
        return named and len(self._buffer) <= MAX_HOOK_LINE_BYTES

    def _on_line(self, line: bytes) -> None:
        try:
            message = mcp.read(line)
            if isinstance(message, mcp.Request):
                self._on_request(message, line)
            elif message is not None and "method" not in message:
                if not mcp.has_lone_surrogate(line, message):
                    self._way.pass_answer(message)
            elif message is not None and message["method"] == "notifications/cancelled":
                self._on_cancelled(message.get("params"))
        except mcp.BadRequest as fault:
            self._write(fault.answer())

    def _on_request(self, request: mcp.Request, line: bytes) -> None:
        match request.method:
            case "initialize" | "server/discover":
                self._on_opening(request)
            case "ping":
                self._write(request.answer({}))
            case "tools/call":
                name = tools.name_of(request.params.get("name"), self._toolsets, self._hidden)
                if name is None:
                    text = f"there is no tool {request.params.get('name')}"
                    raise mcp.BadRequest(request.number, mcp.INVALID_PARAMS, text)
                if name in tools.table()["hooks"]:
                    self._note_hook(request)
                    line = self._hook_line(request, line)
                self._pass_on(request, line, tools.table()["retry"][name])
            case method if method in self._passed_on(request):
                self._pass_on(request, line, "read")
            case _:
                self._list(request)

    def _list(self, request: mcp.Request) -> None:
        """What must be there before the daemon is."""
        match request.method:
            case "tools/list":
                listed = tools.visible(self._toolsets, self._hidden)
                if self._lists_tasks and not request.modern:
                    listed = tools.with_task_support(listed)
                self._write(request.listed("tools", listed))
            case "prompts/list" if self._way.is_daemon:
                self._write(request.listed("prompts", tools.prompts(self._toolsets)))
            case "resources/list" if self._talks:
                self._write(request.listed("resources", tools.table()["resources"]))
            case "resources/templates/list" if self._talks:
                self._write(request.listed("resourceTemplates", []))
            case _:
                raise request.no_such_method()

    def _note_hook(self, request: mcp.Request) -> None:
        if self._on_hook is not None:
            self._on_hook(str((request.params.get("arguments") or {}).get("event")))

    def _hook_line(self, request: mcp.Request, line: bytes) -> bytes:
        """The line as the daemon takes it, whatever a tool was given; what is too long is left out."""
        arguments = request.params.get("arguments")
        if not isinstance(arguments, dict):
            return line
        is_flat = not isinstance(arguments.get("input"), dict | list)
        if is_flat and len(line) <= self._max_line_bytes and not mcp.has_lone_surrogate(line, arguments):
            return line
        plain = {name: value if isinstance(value, str) else encode(value).decode() for name, value in arguments.items()}
        # As the client's shell is given it: half a surrogate pair is U+FFFD.
        plain = {
            name: value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for name, value in plain.items()
        }
        if len(line) > self._max_line_bytes:
            plain.pop("input", None)
        request.params = {**request.params, "arguments": plain}
        message = {"jsonrpc": "2.0", "id": request.number, "method": request.method, "params": request.params}
        return encode(message)

    def _passed_on(self, request: mcp.Request) -> tuple[str, ...]:
        """What the daemon answers, and what changes nothing when it is asked twice."""
        more = (*mcp.TASK_METHODS, "prompts/get") if self._way.is_daemon else ()
        if not self._talks:
            return more
        listen = ("subscriptions/listen",) if request.modern else ()
        return (*more, *listen, "resources/read", "resources/subscribe", "resources/unsubscribe")

    def _on_opening(self, request: mcp.Request) -> None:
        self._way.opens_pages = self._way.opens_pages or request.opens_pages
        self._way.fills_forms = self._way.fills_forms or (request.fills_forms and not request.modern)
        if request.method == "initialize":
            self._lists_tasks = self._way.is_daemon and request.version == mcp.TASKS_VERSION
        self._open(request.client)
        self._opening.append((request, self._clock() + OPENING_SECONDS))
        self._answer_openings()

    def _pass_on(self, request: mcp.Request, line: bytes, retry: str) -> None:
        if request.number in self._calls:
            raise mcp.BadRequest(request.number, mcp.INVALID_REQUEST, "this id is in use")
        if len(self._calls) >= MAX_CALLS:
            self._write(request.failed(f"{MAX_CALLS} calls are open already; wait for some to finish"))
            return
        if mcp.has_lone_surrogate(line, request.params):
            self._write(request.failed("a text holds half a surrogate pair; send proper Unicode"))
            return
        self._open(request.client)
        call = Call(request, line, retry, self._clock(), self._named)
        self._calls[request.number] = call
        self._way.request(call)

    def _open(self, client: dict[str, Any]) -> None:
        if self._way.identity is None:
            self._way.open(self._make_identity(client))

    def _answer_openings(self) -> None:
        if not self._opening:
            return
        now = self._clock()
        settled = self._way.ready or self._way.fault is not None
        due = [request for request, deadline in self._opening if settled or deadline <= now]
        self._opening = [item for item in self._opening if item[0] not in due]
        for request in due:
            self._write(request.initialized(self._instructions(), resources=self._talks, daemon=self._way.is_daemon))

    def _instructions(self) -> str:
        name, fault = self._way.handle, self._way.fault
        self._named = name
        later = f"you will be the agent `{name}`, or, if that name is taken, what `you` says in a result."
        if self._way.ready:
            who = f"You are the agent `{name}` on this machine."
        elif fault is None:
            who = f"Bascule has not answered yet; {later}"
        elif isinstance(fault, exits.NotRunning) and self._starts:
            who = f"Bascule is being started; {later}"
        else:
            who = f"{fault.message}. Once it answers you are the agent `{name}`."
        return f"{who} {mcp.HOW_TO}" if self._talks else who

    def _on_cancelled(self, params: Any) -> None:
        number = params.get("requestId") if isinstance(params, dict) else None
        call = self._calls.pop(number, None) if isinstance(number, str | int) else None
        if call is not None:
            self._way.withdraw(call)

    # -- what the daemon says ---------------------------------------------------------------------

    def on_answer(self, call: Call, message: dict[str, Any]) -> None:
        self._calls.pop(call.request.number, None)
        if call.request.method in ("resources/subscribe", "resources/unsubscribe") and "result" in message:
            self._way.standing = call if call.request.method == "resources/subscribe" else None
        self._write(message)

    def on_failure(self, call: Call, fault: DoorError) -> None:
        request = call.request
        self._calls.pop(request.number, None)
        name = str(request.params.get("name"))
        if isinstance(fault, exits.NotRunning) and self._fallback is not None and request.method == "tools/call":
            # Nobody listens, so nothing was done yet.
            try:
                reduced = self._fallback(name, request.params.get("arguments") or {}, self._way.handle or "")
            except exits.DoorError as failed:
                fault = failed
            else:
                if reduced is not None:
                    self._write(request.tool_called(reduced, encode(reduced).decode()))
                    return
        self._write(request.failed(words.describe(fault, name)))

    def on_notification(self, message: dict[str, Any]) -> None:
        self._write(message)

    def _write(self, message: dict[str, Any]) -> None:
        data = memoryview(encode(message) + b"\n")
        while data:
            data = data[os.write(self._stdout, data) :]
