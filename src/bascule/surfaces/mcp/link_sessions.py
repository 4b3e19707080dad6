"""MCP sessions whose messages the stdio program passes on over the link.

A session is one link connection. It acts as the agent that the connection said hello as; it ends with the
connection, and what its client was not handed by then is given back. The program opens another one and repeats what
may be repeated, under the same call ids: what such a call has done already is answered from memory.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import ALL_ERRORS, BasculeError, Forbidden, Internal, InvalidRequest
from bascule.foundation.tasks import Tasks
from bascule.kernel.call import Principal, agent_of
from bascule.kernel.faults import log_fault
from bascule.kernel.gate import Gate
from bascule.kernel.journal_ports import Log
from bascule.kernel.link_protocol import McpBecame, McpOpen, McpRequest
from bascule.kernel.tool import AskForm, Result, Retry, Tool, Toolset
from bascule.programs.mcp_stdio import mcp, words
from bascule.programs.mcp_stdio.tools import plain_name
from bascule.surfaces.mcp import prompts, task_protocol
from bascule.surfaces.mcp.calling import ClientGone, Facts, ToolCall, call_tool, register_again, repeats, text_of
from bascule.surfaces.mcp.forms import ClientForms, FormNeeded, form_by_retry
from bascule.surfaces.mcp.kept_answers import KeptAnswers
from bascule.surfaces.mcp.link_tasks import Handover, LinkTasks
from bascule.surfaces.mcp.news import News
from bascule.surfaces.mcp.pages import METHOD, Page, Pages
from bascule.surfaces.mcp.recent import RECENT_URI, read
from bascule.surfaces.mcp.task_protocol import TaskFault
from bascule.surfaces.mcp.tasks import McpTasks
from bascule.surfaces.mcp.tools import shown
from gabp import codec

DOOR = "link"
# No client has this many calls open; more is a loop gone wild.
MAX_CALLS = 256
# A client has one stream, or two while it replaces one.
MAX_LISTENERS = 16
# Codex names the session of each call here; its hooks name the same one.
_CODEX_META = "x-codex-turn-metadata"
MAX_SESSION_ID_CHARS = 128


class Peer(Protocol):
    """The link connection."""

    @property
    def principal(self) -> Principal | None: ...

    def reply(self, id_: int | str, result: bytes) -> None: ...

    def notify(self, method: str, params: bytes) -> None: ...


class LinkSessions:
    """All of them, and the tasks that their calls run in."""

    def __init__(
        self,
        gate: Gate,
        log: Log,
        toolsets: Sequence[Toolset],
        *,
        hooks: Sequence[Tool] = (),
        facts: Facts | None = None,
        console: Callable[[], str | None] = lambda: None,
        console_is_open: Callable[[], bool] = lambda: False,
    ) -> None:
        self.console_is_open = console_is_open
        self.pages = Pages(gate.desk, console)
        self.gate = gate
        self.log = log
        self.toolsets = toolsets
        self.hooks = {tool.name: tool for tool in hooks}
        # What a session does not say for itself; tests set the clocks short.
        self.facts = facts or Facts(DOOR)
        self.tasks = Tasks(lambda name, error: log_fault(log, error, task=name))
        self.mcp_tasks = McpTasks(gate.desk, self.tasks)
        self.kept = KeptAnswers()
        self._sessions: set[LinkSession] = set()

    async def close(self) -> None:
        self.mcp_tasks.close()
        await self.tasks.close()

    def begin(self, params: McpOpen, peer: Peer) -> "LinkSession":
        session = LinkSession(self, params, peer)
        self._sessions.add(session)
        return session

    def ended(self, session: "LinkSession") -> None:
        self._sessions.discard(session)

    @property
    def busy(self) -> bool:
        """A call is under way."""
        return any(session.busy for session in self._sessions)

    def stop(self) -> None:
        """The daemon stops: what may be repeated is left to the next one, so that no wait seems to be over."""
        for session in self._sessions:
            session.stop()


class _OpenCall(NamedTuple):
    work: Deferred[None]
    repeats: bool


class LinkSession:
    def __init__(self, all_: LinkSessions, params: McpOpen, peer: Peer) -> None:
        self._all = all_
        self._peer = peer
        principal = peer.principal
        if principal is None or agent_of(principal) is None:
            raise Forbidden("mcp.open is for agents", hint="say hello with an agentToken first")
        self._agent = principal
        if params.trust not in words.TRUST_LABELS:
            raise InvalidRequest(f"there is no trust label {params.trust!r}")
        self._toolsets = params.toolsets
        self._tools = shown(all_.toolsets, params.toolsets, params.hidden) | all_.hooks
        self._facts = all_.facts._replace(
            trust=params.trust,
            directory=params.directory,
            default_timeout_ms=params.default_timeout_ms,
        )
        self._open: dict[int | str, _OpenCall] = {}
        # Calls whose answers are kept until the client has them.
        self._keyed: set[str] = set()
        # Answered, and not known to have reached the client.
        self._undone: dict[str, Handover] = {}
        self._becoming: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._numbers = count(1)
        self._client_session: str | None = None
        self._opens_pages = params.opens_pages
        self._fills_forms = params.fills_forms
        self._forms = ClientForms(self._notify)
        self._subscribed = False
        # Open streams of 2026-07-28, and whether they asked for the resource.
        self._listeners: dict[int | str, tuple[mcp.Request, bool]] = {}
        self._tasks = LinkTasks(all_.mcp_tasks, all_.gate.desk, all_.log, self._notify, self._facts.grace_seconds)
        self._news: News | None = None
        self._news_of: Principal | None = None

    # -- what the program says --

    def request(self, id_: int | str, asked: McpRequest) -> None:
        message = asked.message
        kept = self._all.kept.get(self._handle, asked.call)
        if kept is not None:
            self._peer.reply(id_, kept)
            return
        try:
            self._on_request(id_, asked, mcp.Request(message.id, message.method, message.params))
        except mcp.BadRequest as fault:
            self._reply(id_, fault.answer())

    def _on_request(self, id_: int | str, asked: McpRequest, request: mcp.Request) -> None:
        if request.number in self._open or request.number in self._listeners:
            raise mcp.BadRequest(request.number, mcp.INVALID_REQUEST, "this id is in use")
        if request.method == "tools/call":
            self._start_call(id_, asked, request)
        elif request.method in task_protocol.METHODS:
            self._start(id_, asked, request, self._respond(asked, request), may_repeat=True)
        elif request.method == "prompts/get":
            me = self._caller(asked, request, may_repeat=True)
            self._start(id_, asked, request, self._get_prompt(me, request), may_repeat=True)
        elif "agents" in self._toolsets:
            self._on_resource_request(id_, asked, request)
        else:
            raise request.no_such_method()

    def cancelled(self, params: dict[str, Any]) -> None:
        """notifications/cancelled: nothing more is wanted of that request."""
        number = params.get("requestId")
        if not isinstance(number, str | int):
            return
        if number in self._listeners:
            del self._listeners[number]
            self._tasks.unfollow(number)
            self._follow()
        elif number in self._open:
            _cancel(self._open.pop(number))

    def done(self, call: str) -> None:
        self._all.kept.drop(self._handle, call)
        undone = self._undone.pop(call, None)
        if undone is not None:
            delivered, _ = undone
            delivered()

    def became(self, answer: McpBecame) -> None:
        waiting = self._becoming.pop(answer.number, None)
        if waiting is None or waiting.done():
            return
        if answer.error is not None:
            waiting.set_exception(_error_in(answer.error))
        else:
            waiting.set_result(answer.result)
        self._follow()

    @property
    def busy(self) -> bool:
        return bool(self._open)

    # -- how it ends --

    def stop(self) -> None:
        for number, call in list(self._open.items()):
            if call.repeats:
                del self._open[number]
                _cancel(call)

    def close(self) -> None:
        """The connection is gone."""
        self._all.ended(self)
        open_, self._open = self._open, {}
        for call in open_.values():
            _cancel(call)
        undone, self._undone = self._undone, {}
        for _, lost in undone.values():
            lost()
        self._listeners.clear()
        self._tasks.close()
        self._subscribed = False
        self._follow()

    # -- tool calls --

    def _start_call(self, id_: int | str, asked: McpRequest, request: mcp.Request) -> None:
        name = request.params.get("name")
        tool = self._tools.get(plain_name(name))
        if tool is None:
            raise mcp.BadRequest(request.number, mcp.INVALID_PARAMS, f"there is no tool {name}")
        me = self._caller(asked, request, may_repeat=repeats(tool))
        try:
            as_task = self._tasks.wanted(self._principal, request, tool)
        except TaskFault as fault:
            raise mcp.BadRequest(request.number, fault.code, fault.message, fault.data) from None
        call = self._call_as_task if as_task else self._call_tool
        self._start(id_, asked, request, call(me, tool, asked, request), may_repeat=repeats(tool))

    async def _call_as_task(self, me: ToolCall, tool: Tool, asked: McpRequest, request: mcp.Request) -> dict[str, Any]:
        """The agent of this moment is the task's, whoever the session becomes."""
        await self._note_client_session(me, request)
        principal = self._principal
        me = self._caller(asked, request, may_repeat=repeats(tool), principal=principal)

        def finish(result: Result) -> None:
            self._name_agent(result, me, asked)

        with self._all.pages.shown_with(principal, self._show if self._opens_pages else None):
            answer, handover = await self._tasks.call(principal, me, tool, request, finish)
        if handover is not None:
            self._undone[asked.call] = handover
        return answer

    async def _respond(self, asked: McpRequest, request: mcp.Request) -> dict[str, Any]:
        principal = self._principal
        me = self._caller(asked, request, may_repeat=True, principal=principal)
        answer, handover = await self._tasks.respond(principal, request, me, self._tools.get("await_reply"))
        if handover is not None:
            self._undone[asked.call] = handover
        return answer

    def _name_agent(self, result: Result, me: ToolCall, asked: McpRequest) -> None:
        if me.handle != asked.named:
            result["you"] = me.handle

    async def _call_tool(self, me: ToolCall, tool: Tool, asked: McpRequest, request: mcp.Request) -> dict[str, Any]:
        await self._note_client_session(me, request)
        try:
            with self._all.pages.shown_with(self._principal, self._show if self._opens_pages else None):
                result = await me.run(call_tool(me, tool, request.params.get("arguments") or {}))
        except BasculeError as refused:
            return request.tool_failed(words.describe(refused, tool.name))
        if not tool.for_hooks:
            self._name_agent(result, me, asked)
        if result.acknowledge is not None:
            self._undone[asked.call] = (partial(me.acknowledge, result), me.give_back)
        answer = request.tool_called(result, text_of(result), result.images, failed=result.failed)
        if tool.retry is Retry.KEYED:
            self._keyed.add(asked.call)
        return answer

    def _start(self, id_: int | str, asked: McpRequest, request: mcp.Request, work: Any, *, may_repeat: bool) -> None:
        if len(self._open) >= MAX_CALLS:
            work.close()
            self._reply(id_, request.failed(f"{MAX_CALLS} calls are open already; wait for some to finish"))
            return
        later = self._all.tasks.answer(self._serve(id_, asked, request, work), f"mcp {asked.call}")
        if not later.done():
            self._open[request.number] = _OpenCall(later, may_repeat)

    async def _serve(self, id_: int | str, asked: McpRequest, request: mcp.Request, work: Any) -> None:
        try:
            answer = await work
        except ClientGone:
            return
        except FormNeeded as needed:
            answer = request.answer(needed.result())
        except TaskFault as wrong:
            answer = mcp.BadRequest(request.number, wrong.code, wrong.message, wrong.data).answer()
        except BasculeError as refused:
            answer = request.failed(words.describe(refused, ""))
        except Exception as error:  # noqa: BLE001 - the boundary: one broken call must not end the session
            fault = log_fault(self._all.log, error, method=request.method)
            answer = request.failed(f"internal error {fault}; `bascule logs` shows it")
        keyed = asked.call in self._keyed
        self._keyed.discard(asked.call)
        # With mcp.done the message is acknowledged, and the answer need not be kept any longer.
        confirm = keyed or asked.call in self._undone
        body = codec.encode({"message": answer, "confirm": True} if confirm else {"message": answer})
        if keyed:
            self._all.kept.put(self._handle, asked.call, body)
        if self._open.pop(request.number, None) is not None:
            self._peer.reply(id_, body)
        elif asked.call in self._undone:
            # Cancelled, or the connection ended, in the moment in which the answer came.
            self._undone.pop(asked.call)[1]()

    def _caller(
        self, asked: McpRequest, request: mcp.Request, *, may_repeat: bool, principal: Principal | None = None
    ) -> ToolCall:
        """With a `principal` it is that of a task, which has no progress to report."""
        facts = self._facts._replace(slice_ms=min(self._facts.slice_ms, asked.left_ms))

        async def progress(seconds: float) -> None:
            self._notify(request.progress(seconds, self._facts.slice_ms / 1000, "waiting"))

        return ToolCall(
            self._all.gate,
            lambda: principal or self._principal,
            facts,
            asked.call,
            become=self._become,
            repeats=may_repeat,
            form=self._form(request),
            progress=progress if request.progress_token is not None and principal is None else None,
        )

    def _form(self, request: mcp.Request) -> AskForm | None:
        if self._all.console_is_open():
            return None
        if request.modern:
            return form_by_retry(request.params) if request.fills_forms else None
        return self._forms.ask if self._fills_forms else None

    def filled(self, number: int | str, result: dict[str, Any]) -> None:
        """The client's answer to a form. There is no way from here to the desk."""
        self._forms.filled(number, result)

    # -- who it is --

    @property
    def _principal(self) -> Principal:
        """The agent of the connection; while it changes its name, the last one."""
        principal = self._peer.principal
        if principal is not self._agent and principal is not None and agent_of(principal) is not None:
            self._agent = principal
        return self._agent

    @property
    def _handle(self) -> str:
        return agent_of(self._principal) or ""

    async def _become(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """The program holds the tokens, so it registers and says hello; the connection is another agent then."""
        number = next(self._numbers)
        waiting: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._becoming[number] = waiting
        self._peer.notify("mcp.become", codec.encode({"number": number, "wanted": wanted}))
        try:
            return await waiting
        finally:
            self._becoming.pop(number, None)

    async def _note_client_session(self, me: ToolCall, request: mcp.Request) -> None:
        """Put the client's own name for its session beside the agent, so that its hooks find the agent by it."""
        meta = request.params.get("_meta")
        about = meta.get(_CODEX_META) if isinstance(meta, dict) else None
        found = about.get("session_id") if isinstance(about, dict) else None
        if not isinstance(found, str) or found == self._client_session or len(found) > MAX_SESSION_ID_CHARS:
            return
        self._client_session = found
        try:
            await register_again(me, {"metadata": {"clientSession": found}})
        except BasculeError:
            # Without it a hook that finds several agents wakes none of them; the call itself is not touched.
            return

    # -- the resource --

    def _on_resource_request(self, id_: int | str, asked: McpRequest, request: mcp.Request) -> None:
        match request.method:
            case "resources/read":
                _check_uri(request)
                me = self._caller(asked, request, may_repeat=True)
                self._start(id_, asked, request, self._read(me, request), may_repeat=True)
            case "resources/subscribe" | "resources/unsubscribe" if not request.modern:
                _check_uri(request)
                self._subscribed = request.method == "resources/subscribe"
                self._follow()
                self._reply(id_, request.answer({}))
                if asked.again:
                    self._send_news()
            case "subscriptions/listen" if request.modern:
                self._listen(request, again=asked.again)
            case _:
                raise request.no_such_method()

    async def _get_prompt(self, me: ToolCall, request: mcp.Request) -> dict[str, Any]:
        params = request.params
        found = await me.run(prompts.get(me, params.get("name"), params.get("arguments"), self._toolsets))
        return request.no_such_prompt().answer() if found is None else request.answer(found)

    async def _read(self, me: ToolCall, request: mcp.Request) -> dict[str, Any]:
        return request.resource_read(await me.run(read(me)))

    def _listen(self, request: mcp.Request, *, again: bool) -> None:
        """Acknowledged is what can come: our lists do not change while the daemon runs."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise mcp.BadRequest(request.number, mcp.INVALID_PARAMS, "notifications must be an object")
        if len(self._listeners) >= MAX_LISTENERS:
            text = f"{MAX_LISTENERS} subscriptions are open already; cancel one first"
            raise mcp.BadRequest(request.number, mcp.INTERNAL_ERROR, text)
        uris = wanted.get("resourceSubscriptions")
        wants_recent = isinstance(uris, list) and RECENT_URI in uris
        honoured: dict[str, Any] = {"resourceSubscriptions": [RECENT_URI]} if wants_recent else {}
        if "taskIds" in wanted:
            try:
                honoured["taskIds"] = self._tasks.listen(self._principal, request, wanted["taskIds"])
            except TaskFault as fault:
                raise mcp.BadRequest(request.number, fault.code, fault.message, fault.data) from None
        self._listeners[request.number] = (request, wants_recent)
        # First the stream: what happens from now on is heard of.
        self._follow()
        if not again:
            self._notify(request.acknowledged(honoured))
        elif wants_recent:
            self._notify(request.updated(RECENT_URI))

    def _follow(self) -> None:
        """Have a stream of events while it is wanted, of the agent that we are now."""
        wanted = self._subscribed or any(wants_recent for _, wants_recent in self._listeners.values())
        if self._news is not None and (not wanted or self._news_of != self._principal):
            self._news.close()
            self._news = None
        if wanted and self._news is None:
            self._news_of = self._principal
            try:
                self._news = News(self._all.gate, self._principal, self._send_news, door=DOOR)
            except BasculeError:
                # Refused: without it the client reads the resource when it wants to know.
                return

    def _send_news(self) -> None:
        for request, wants_recent in self._listeners.values():
            if wants_recent:
                self._notify(request.updated(RECENT_URI))
        if self._subscribed:
            self._notify(mcp.notification("notifications/resources/updated", {"uri": RECENT_URI}))

    def _show(self, page: Page) -> None:
        """What the client answers is dropped by the program: it is not the person's word."""
        number = f"{page.approval_id}-{next(self._numbers)}"
        self._notify({"jsonrpc": "2.0", "id": number, "method": METHOD, "params": page.params()})

    # -- to the program --

    def _reply(self, id_: int | str, answer: dict[str, Any]) -> None:
        self._peer.reply(id_, codec.encode({"message": answer}))

    def _notify(self, message: dict[str, Any]) -> None:
        self._peer.notify("mcp.message", codec.encode({"message": message}))


def _cancel(call: _OpenCall) -> None:
    """In the next turn of the loop, when its task has begun: a coroutine that never ran would complain."""
    asyncio.get_running_loop().call_soon(call.work.cancel)


def _check_uri(request: mcp.Request) -> None:
    uri = request.params.get("uri")
    if uri != RECENT_URI:
        raise request.no_such_resource(uri)


def _error_in(body: dict[str, Any]) -> BasculeError:
    """The error that the program was answered with."""
    kind = next((each for each in ALL_ERRORS if each.code == body.get("code")), Internal)
    hint = body.get("hint")
    return kind(str(body.get("message") or "refused"), hint=str(hint) if hint else None)
