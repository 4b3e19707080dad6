"""The SDK's server with our tools and our resource: what the shim does, without the pipe and the link."""

import json
from collections.abc import Collection
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
from bascule.audit.ports import Log
from bascule.call import Principal, agent_of
from bascule.doors.exits import DoorError
from bascule.errors import BasculeError
from bascule.ids import new_fault_id
from bascule.kernel.gate import Gate
from bascule.mcp import sdk_log
from bascule.mcp.door import DELIVERY, PRINCIPAL, SESSION, McpDoor
from bascule.mcp.errand import PROGRESS_SECONDS, ClientGone, Errand
from bascule.mcp.news import AgentBus
from bascule.mcp.sessions import Session, Sessions
from bascule.policy.decision import Decision
from bascule.protocols.tools import TOOLS
from bascule.shim import calls, resources, tools, words
from bascule.shim.calls import Me
from bascule.shim.mcp import LIST_TTL_MS, RESOURCE_NOT_FOUND, SERVER_INFO
from bascule.shim.serve import HOW_TO

Context = ServerRequestContext[Any, Any]

# JSON-RPC has no number for "the caller left"; LSP's is what the SDK uses as well.
REQUEST_CANCELLED = -32800


USES = {tool.name: tool.uses for tool in TOOLS}


def open_door(dispatch: Gate, log: Log, *, toolsets: Collection[str], trust: str) -> McpDoor:
    sdk_log.listen(log)
    sessions = Sessions(dispatch)
    return McpDoor(Surface(dispatch, sessions, log, toolsets=toolsets, trust=trust).server, sessions)


class Surface:
    def __init__(
        self,
        dispatch: Gate,
        sessions: Sessions,
        log: Log,
        *,
        toolsets: Collection[str] = tools.TOOLSETS,
        trust: str = words.DEFAULT_TRUST,
        slice_ms: int = calls.SLICE_MS,
        progress_seconds: float = PROGRESS_SECONDS,
    ) -> None:
        self._dispatch = dispatch
        self._sessions = sessions
        self._log = log
        self._trust = trust
        self._slice_ms = slice_ms
        self._progress_seconds = progress_seconds
        self._tools = {tool["name"]: tool for tool in tools.visible(toolsets)}
        listed = CacheHint(ttl_ms=LIST_TTL_MS, scope="private")
        self.server: Server[Any] = Server(
            SERVER_INFO["name"],
            title=SERVER_INFO["title"],
            version=__version__,
            # What we read is this moment's, and the instructions name the agent: neither is to be kept.
            cache_hints={"tools/list": listed, "resources/list": listed, "resources/templates/list": listed},
            get_tool_input_schema=self._schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listen,
        )
        # In place of the SDK's own, which makes a span for every message and sends it nowhere.
        self.server.middleware = [self._boundary]

    # -- what the SDK calls --

    async def _list_tools(self, context: Context, _params: Any) -> types.ListToolsResult:
        principal = _principal(context)
        shown = [tool for name, tool in self._tools.items() if self._may_use(principal, name)]
        return types.ListToolsResult.model_validate({"tools": shown})

    def _may_use(self, principal: Principal, name: str) -> bool:
        """An agent sees only what the policy lets it use; a rule on params cannot be judged before there are any."""
        for method in USES[name]:
            row = self._dispatch.methods[method].row
            verdict = self._dispatch.policy.decide(principal, method, row.effect)
            if verdict.decision is Decision.DENY and verdict.cacheable:
                return False
        return True

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in self._tools:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")
        arguments = params.arguments or {}
        if fault := tools.fault_in(params.name, arguments):
            return _failed(fault)
        me = self._me(_principal(context))
        try:
            result = await self._errand(context).run(calls.answer(me, params.name, arguments))
        except DoorError as refused:
            return _failed(words.describe(refused, params.name))
        text = types.TextContent(text=json.dumps(result, ensure_ascii=False, separators=(",", ":")))
        images = [types.ImageContent.model_validate(each) for each in getattr(result, "images", ())]
        return types.CallToolResult(content=[text, *images], structured_content=dict(result), is_error=False)

    async def _list_resources(self, _context: Context, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult.model_validate({"resources": resources.RESOURCES})

    async def _list_templates(self, _context: Context, _params: Any) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=[])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        _known(context, params.uri)
        try:
            contents = await self._errand(context).run(resources.read(self._me(_principal(context))))
        except DoorError as refused:
            raise MCPError(types.INTERNAL_ERROR, words.describe(refused, "")) from None
        return types.ReadResourceResult.model_validate({"contents": contents})

    async def _subscribe(self, context: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = _known(context, params.uri)

        async def tell() -> None:
            await context.session.send_resource_updated(uri)

        if (session := _session(context)) is not None:
            self._sessions.subscribe(session, tell)
        return types.EmptyResult()

    async def _unsubscribe(self, context: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        _known(context, params.uri)
        if (session := _session(context)) is not None:
            self._sessions.subscribe(session, None)
        return types.EmptyResult()

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        # Acknowledged is what can come: our lists do not change while the daemon runs.
        wanted = resources.RECENT_URI in (params.notifications.resource_subscriptions or ())
        honoured = types.SubscriptionFilter(resource_subscriptions=[resources.RECENT_URI] if wanted else None)
        bus = AgentBus(self._dispatch, _principal(context))
        # One for each stream, for the SDK's handler has one bus and every agent hears another.
        handler = ListenHandler(bus)
        bus.on_end = handler.close
        return await handler(context, params.model_copy(update={"notifications": honoured}))

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
            fault = new_fault_id()
            self._log("fault", level="error", id=fault, method=ctx.method, error=error)
            raise MCPError(types.INTERNAL_ERROR, f"internal error {fault}; `bascule logs` shows it") from error
        if ctx.method in ("initialize", "server/discover") and isinstance(result, dict):
            return self._introduced(_principal(ctx), result)
        return result

    def _introduced(self, principal: Principal, result: dict[str, Any]) -> dict[str, Any]:
        """The greeting, with what depends on the agent."""
        who = f"You are the agent `{agent_of(principal)}` on this machine."
        # The SDK promises changes of every list where it serves `subscriptions/listen`; ours have none.
        fixed = {name: value | {"listChanged": False} for name, value in result["capabilities"].items()}
        return {**result, "capabilities": fixed, "instructions": f"{who} {HOW_TO}"}

    def _schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools.get(name)
        return tool["inputSchema"] if tool else None

    def _me(self, principal: Principal) -> Me:
        handle = agent_of(principal) or ""
        # No deadline of our own: the daemon has its setting for those who name none.
        return Me(lambda: handle, None, self._slice_ms, self._trust)

    def _errand(self, context: Context) -> Errand:
        meta = (context.params or {}).get("_meta")
        total = self._slice_ms / 1000

        async def progress(seconds: float) -> None:
            await context.session.report_progress(seconds, total, "waiting")

        asked = isinstance(meta, dict) and meta.get("progressToken") is not None
        return Errand(
            self._dispatch,
            _principal(context),
            _of_request(context)[DELIVERY],
            progress if asked else None,
            self._progress_seconds,
        )


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
    if str(uri) != resources.RECENT_URI:
        # The revisions differ in the number, and so does the shim.
        modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
        raise MCPError(code, f"there is no resource {uri}", {"uri": str(uri)})
    return resources.RECENT_URI


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
