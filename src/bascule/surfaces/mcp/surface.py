"""The SDK's server with our tools and our resource."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from bascule import __version__
from bascule.foundation.agreement import is_ticket_id
from bascule.foundation.errors import BasculeError, InvalidRequest
from bascule.kernel.call import Principal, agent_of
from bascule.kernel.faults import log_fault
from bascule.kernel.gate import Gate
from bascule.kernel.journal_ports import Log
from bascule.kernel.policy.decision import Decision
from bascule.kernel.tool import AskForm, Tool
from bascule.local_client.values import new_ticket_id
from bascule.programs.mcp_stdio import words
from bascule.programs.mcp_stdio.mcp import (
    CALL_ID_KEY,
    HOW_TO,
    LIST_TTL_MS,
    RESOURCE_NOT_FOUND,
    SERVER_INFO,
    TASKS_CAPABILITY,
    TASKS_EXTENSION,
    TASKS_VERSION,
)
from bascule.programs.mcp_stdio.tools import plain_name, with_task_support
from bascule.surfaces.mcp import prompts, recent, sdk_log, task_calls
from bascule.surfaces.mcp.bus import AgentBus
from bascule.surfaces.mcp.calling import ClientGone, Facts, ToolCall, call_tool, register_again, repeats, text_of
from bascule.surfaces.mcp.delivery import Delivery, Handover
from bascule.surfaces.mcp.door import DELIVERY, PRINCIPAL, SESSION, McpDoor
from bascule.surfaces.mcp.forms import FORM_SECONDS, FormNeeded, form_by_retry
from bascule.surfaces.mcp.http_tasks import HttpTasks, TaskCall, is_modern
from bascule.surfaces.mcp.pages import MESSAGE, Page, Pages, Show
from bascule.surfaces.mcp.sessions import DOOR, Session, Sessions
from bascule.surfaces.mcp.tasks import McpTasks
from bascule.surfaces.mcp.tool_lists import ToolLists

Context = ServerRequestContext[Any, Any]

# JSON-RPC has no number for "the caller left"; LSP's is what the SDK uses as well.
REQUEST_CANCELLED = -32800
# How long a client may take to say that it has shown a page; as long as the question waits.
PAGE_SECONDS = 15 * 60.0


def open_door(
    gate: Gate,
    log: Log,
    *,
    tools: Sequence[Tool],
    trust: str,
    tasks: McpTasks,
    on_left: Callable[[str], None] | None = None,
    console: Callable[[], str | None] = lambda: None,
    console_is_open: Callable[[], bool] = lambda: False,
) -> McpDoor:
    sdk_log.listen(log)
    sessions = Sessions(gate, on_left=on_left)
    facts = Facts(DOOR, trust)
    surface = Surface(
        gate, sessions, log, tools=tools, facts=facts, tasks=tasks, console=console, console_is_open=console_is_open
    )
    return McpDoor(surface.server, sessions, surface.lists.policy_changed)


class Surface:
    def __init__(
        self,
        gate: Gate,
        sessions: Sessions,
        log: Log,
        *,
        tools: Sequence[Tool],
        tasks: McpTasks,
        facts: Facts | None = None,
        console: Callable[[], str | None] = lambda: None,
        console_is_open: Callable[[], bool] = lambda: False,
    ) -> None:
        self._gate = gate
        self._console_is_open = console_is_open
        self._pages = Pages(gate.desk, console)
        self._sessions = sessions
        self.lists = ToolLists(self._visible)
        sessions.lists = self.lists
        self._log = log
        # No deadline of our own: the daemon has its setting for messages that name none.
        self._facts = facts or Facts(DOOR)
        self._tools = {tool.name: tool for tool in tools}
        # Which sets there are is seen by a tool of each.
        present = {"agents": "send_message", "workspace": "run_undo"}
        self._toolsets = [name for name, tool in present.items() if tool in self._tools]
        self._listed = {name: tool.listed() for name, tool in self._tools.items()}
        listed = CacheHint(ttl_ms=LIST_TTL_MS, scope="private")
        self.server: Server[Any] = Server(
            SERVER_INFO["name"],
            title=SERVER_INFO["title"],
            version=__version__,
            # What we read is this moment's, and the instructions name the agent: neither is to be kept.
            cache_hints={
                "tools/list": listed,
                "prompts/list": listed,
                "resources/list": listed,
                "resources/templates/list": listed,
            },
            get_tool_input_schema=self._schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
        )
        # In place of the SDK's own, which makes a span for every message and sends it nowhere.
        self.server.middleware = [self._boundary, HttpTasks(tasks, self._begin_task, self._facts.grace_seconds)]

    # -- what the SDK calls --

    async def _list_tools(self, context: Context, _params: Any) -> types.ListToolsResult:
        usable = [self._listed[name] for name in self._visible(_principal(context))]
        if (session := _session(context)) is not None:
            self._sessions.follow_tools(session, context.session.send_tool_list_changed)
        if context.protocol_version == TASKS_VERSION:
            usable = with_task_support(usable)
        return types.ListToolsResult.model_validate({"tools": usable})

    def _visible(self, principal: Principal) -> tuple[str, ...]:
        return tuple(name for name, tool in self._tools.items() if self._may_use(principal, tool))

    def _may_use(self, principal: Principal, tool: Tool) -> bool:
        """An agent sees only what the policy lets it use; a rule on params cannot be judged before there are any."""
        for method in tool.uses:
            row = self._gate.methods[method].row
            verdict = self._gate.policy.decide(principal, method, row.effect)
            if verdict.decision is Decision.DENY and verdict.cacheable:
                return False
        return True

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        tool = self._tools.get(plain_name(params.name))
        if tool is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")
        me = self._caller(context, may_repeat=repeats(tool))
        try:
            with self._pages.shown_with(_principal(context), self._show_with(context)):
                result = await me.run(call_tool(me, tool, params.arguments or {}))
        except FormNeeded as needed:
            return types.InputRequiredResult.model_validate(needed.result())
        except BasculeError as refused:
            return _failed(words.describe(refused, tool.name))
        if result.acknowledge is not None:
            mark = str(result.acknowledge["ticketIds"][0]).encode()
            _delivery(context).hand_over(Handover(mark, lambda: me.acknowledge(result), me.give_back))
        text = types.TextContent(text=text_of(result))
        images = [types.ImageContent.model_validate(each) for each in result.images]
        return types.CallToolResult(content=[text, *images], structured_content=dict(result), is_error=result.failed)

    def _begin_task(self, context: Context) -> TaskCall | None:
        params = context.params or {}
        tool = self._tools.get(plain_name(params.get("name")))
        if tool is None or not tool.as_task or tool.for_hooks:
            return None
        me = self._caller(context, may_repeat=repeats(tool), as_task=True)
        arguments = params.get("arguments") or {}
        begin = partial(task_calls.work, me=me, tool=tool, arguments=arguments, desk=self._gate.desk, log=self._log)
        begin = partial(begin, forms=is_modern(context) and me.form is not None)
        return TaskCall(me.call_id, begin, tool.waits)

    async def _list_prompts(self, _context: Context, _params: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult.model_validate({"prompts": prompts.prompts_for(self._toolsets)})

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        me = self._caller(context, may_repeat=True)
        found = await me.run(prompts.get(me, params.name, params.arguments, self._toolsets))
        if found is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name[:80]!r}")
        return types.GetPromptResult.model_validate(found)

    async def _list_resources(self, _context: Context, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult.model_validate({"resources": recent.RESOURCES})

    async def _list_templates(self, _context: Context, _params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        _known(context, params.uri)
        me = self._caller(context, may_repeat=True)
        try:
            contents = await me.run(recent.read(me))
        except BasculeError as refused:
            raise MCPError(types.INTERNAL_ERROR, words.describe(refused, "")) from None
        return types.ReadResourceResult.model_validate({"contents": contents})

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = _known(context, params.uri)

        async def notify() -> None:
            await context.session.send_resource_updated(uri)

        if (session := _session(context)) is not None:
            self._sessions.subscribe(session, notify)
        return types.EmptyResult()

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        _known(context, params.uri)
        if (session := _session(context)) is not None:
            self._sessions.subscribe(session, None)
        return types.EmptyResult()

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        # Acknowledged is what can come: of our lists only that of the tools changes while the daemon runs.
        wanted = recent.RECENT_URI in (params.notifications.resource_subscriptions or ())
        honoured = types.SubscriptionFilter(
            tools_list_changed=params.notifications.tools_list_changed,
            resource_subscriptions=[recent.RECENT_URI] if wanted else None,
        )
        bus = AgentBus(self._gate, _principal(context), self.lists)
        # One for each stream, for the SDK's handler has one bus and every agent hears another.
        handler = ListenHandler(bus)
        bus.on_end = handler.close
        return await handler(context, params.model_copy(update={"notifications": honoured}))

    def _show_with(self, context: Context) -> Show | None:
        """How a page is opened by the client of this call; None where it cannot. The revision of 2026 has no requests
        from the server, so it has none of these."""
        able = context.session.client_capabilities
        if able is None or able.elicitation is None or able.elicitation.url is None:
            return None
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return None

        def show(page: Page) -> None:
            if self._sessions.group is not None:
                self._sessions.group.create_task(self._show(context, page))

        return show

    async def _show(self, context: Context, page: Page) -> None:
        """Whatever the client answers, or does not: it is not the person's word."""
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                await context.session.elicit_url(MESSAGE, page.url, page.approval_id, context.request_id)
        except (MCPError, TimeoutError, ValidationError) as error:
            self._log("page_not_shown", level="debug", error=error)
        except Exception as error:  # noqa: BLE001 - a client that cannot show it must not end the door for all others
            log_fault(self._log, error, method="elicitation/create")

    def _form(self, context: Context) -> AskForm | None:
        if self._console_is_open() or not _fills_forms(context):
            return None
        if is_modern(context):
            return form_by_retry(context.params or {})

        async def ask(message: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
            try:
                async with asyncio.timeout(FORM_SECONDS):
                    filled = await context.session.elicit_form(message, dict(schema), context.request_id)
            except (MCPError, TimeoutError, ValidationError) as error:
                self._log("form_not_filled", level="debug", error=error)
                return {"action": "cancel"}
            return {"action": filled.action, "content": filled.content}

        return ask

    # -- around all of them --

    async def _boundary(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """The one way from exceptions to the wire: the SDK would tell a client of 2025 the text of any of them."""
        try:
            result = await call_next(ctx)
        except (MCPError, ValidationError):
            raise
        except ClientGone:
            raise MCPError(REQUEST_CANCELLED, "the client left") from None
        except BasculeError as error:
            raise MCPError(types.INTERNAL_ERROR, error.message, error.body()) from None
        except Exception as error:
            fault = log_fault(self._log, error, method=ctx.method)
            raise MCPError(types.INTERNAL_ERROR, f"internal error {fault}; `bascule logs` shows it") from error
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            return self._introduced(_principal(ctx), result)
        return result

    def _introduced(self, principal: Principal, result: dict[str, Any]) -> dict[str, Any]:
        """The greeting, with what depends on the agent."""
        who = f"You are the agent `{agent_of(principal)}` on this machine."
        # The SDK promises changes of every list where it serves `subscriptions/listen`, and of none in the handshake.
        fixed = {name: value | {"listChanged": name == "tools"} for name, value in result["capabilities"].items()}
        if "protocolVersion" not in result:
            fixed["extensions"] = {TASKS_EXTENSION: {}}
        elif result["protocolVersion"] == TASKS_VERSION:
            fixed["tasks"] = TASKS_CAPABILITY
        return {**result, "capabilities": fixed, "instructions": f"{who} {HOW_TO}"}

    def _schema(self, name: str) -> dict[str, Any] | None:
        tool = self._listed.get(name)
        return tool["inputSchema"] if tool else None

    def _caller(self, context: Context, *, may_repeat: bool, as_task: bool = False) -> ToolCall:
        meta = (context.params or {}).get("_meta")
        total = self._facts.slice_ms / 1000
        principal = _principal(context)

        async def progress(seconds: float) -> None:
            await context.session.report_progress(seconds, total, "waiting")

        async def become(wanted: Mapping[str, Any]) -> Mapping[str, Any]:
            if wanted["agentId"] != me.handle:
                raise _cannot_become(me.handle, wanted["agentId"])
            return await register_again(me, wanted)

        asked = isinstance(meta, dict) and meta.get("progressToken") is not None
        me = ToolCall(
            self._gate,
            lambda: principal,
            self._facts,
            _call_id(meta),
            become=become,
            repeats=may_repeat,
            # A task outlives its request.
            progress=progress if asked and not as_task else None,
            hold=None if as_task else _delivery(context).hold,
            form=self._form(context),
        )
        return me


def _fills_forms(context: Context) -> bool:
    able = context.session.client_capabilities
    if able is None or able.elicitation is None:
        return False
    return able.elicitation.form is not None or able.elicitation.url is None


def _call_id(meta: object) -> str:
    """That of the caller, where it repeats a call whose answer it did not get; else a new one."""
    wanted = meta.get(CALL_ID_KEY) if isinstance(meta, dict) else None
    return wanted if isinstance(wanted, str) and is_ticket_id(wanted) else new_ticket_id()


def _cannot_become(handle: str, name: str) -> InvalidRequest:
    return InvalidRequest(
        f"over HTTP you are {handle}, by the token of this connection, and cannot become {name}",
        hint=f"to act as {name} too: `bridge-register --agent {name}`, and its agentToken as the bearer of another "
        "MCP entry",
    )


def _delivery(context: Context) -> Delivery:
    delivery: Delivery = _of_request(context)[DELIVERY]
    return delivery


def _of_request(context: Context) -> dict[str, Any]:
    """The scope that the door made for this request."""
    assert context.request is not None
    scope: dict[str, Any] = context.request.scope
    return scope


def _principal(context: Context) -> Principal:
    principal: Principal = _of_request(context)[PRINCIPAL]
    return principal


def _session(context: Context) -> Session | None:
    session: Session | None = _of_request(context)[SESSION]
    return session


def _known(context: Context, uri: Any) -> str:
    if str(uri) != recent.RECENT_URI:
        # The revisions differ in the number, and so does the stdio program.
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
        raise MCPError(code, f"there is no resource {uri}", {"uri": str(uri)})
    return recent.RECENT_URI


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
