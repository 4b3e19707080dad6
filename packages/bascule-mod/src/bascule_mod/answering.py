"""What a mod answers: lists and subscriptions at once, everything else by way of the game's own thread."""

import hmac
import logging
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import UNSET, UnsetType

from bascule_mod.attention import AttentionDesk
from bascule_mod.context import Context
from bascule_mod.pump import Overdue, Phase, Pump, PumpFull, Work
from bascule_mod.registry import Registry
from bascule_mod.server import Connection, Server
from bascule_mod.tools import ToolEntry, ToolError
from gabp import messages
from gabp.attention import blocked, passes
from gabp.codec import BadJson
from gabp.envelopes import to_json, utf8_text
from gabp.errors import ErrorCode, GameError
from gabp.kept import Kept
from gabp.mod_session import Asked, arguments_of
from gabp.session import SessionLimits, channel_matches

log = logging.getLogger("bascule.mod")

DEFAULT_REQUEST_SECONDS = 30.0
# The envelope around a result.
_ENVELOPE_BYTES: Final = 512
KEPT_BASE: Final = "gabp://mod/results/"
LARGE_RESULTS: Final = "large-results"
MOD_EXTENSIONS: Final = {**messages.EXTENSIONS, LARGE_RESULTS: {"field": "resource"}}


class Answering:
    def __init__(
        self,
        registry: Registry,
        pump: Pump,
        attention: AttentionDesk,
        *,
        identity: Callable[[], messages.Welcome],
        limits: SessionLimits,
        request_seconds: float = DEFAULT_REQUEST_SECONDS,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._registry = registry
        self._pump = pump
        self._attention = attention
        self._identity = identity
        self._limits = limits
        self._request_seconds = request_seconds
        self._on_tick = on_tick
        self._kept = Kept(KEPT_BASE)
        self._contexts: dict[tuple[Connection, str], Context] = {}
        self.token = ""
        # Set where both are made.
        self.server: Server
        self._methods: dict[str, Callable[[Connection, Asked], None]] = {
            messages.TOOLS_LIST: self._list_tools,
            messages.TOOLS_CALL: self._call_tool,
            messages.TOOLS_CANCEL: self._cancel_tool,
            messages.SUBSCRIBE: self._subscribe,
            messages.UNSUBSCRIBE: self._unsubscribe,
            messages.RESOURCES_LIST: self._list_resources,
            messages.RESOURCES_READ: self._read_resource,
            messages.STATE_GET: self._get_state,
            messages.STATE_SET: self._set_state,
            messages.ATTENTION_CURRENT: self._current_attention,
            messages.ATTENTION_ACK: self._ack_attention,
        }

    # -- what the server tells --

    def greeted(self, connection: Connection, params: messages.HelloParams) -> None:
        # In constant time: how long a refusal takes must not tell how much of a guess was right.
        if not self.token or not hmac.compare_digest(params.token.encode(), self.token.encode()):
            connection.session.refuse(
                ErrorCode.AUTHENTICATION_FAILED, "the token is not this launch's: read the newest bridge configuration"
            )
            return
        try:
            welcome = self._identity()
        except Exception:
            # As below: the game goes on, also one that is served by its only thread.
            log.exception("the welcome could not be made")
            connection.session.refuse(ErrorCode.INTERNAL_ERROR, "internal error; the game's log has it")
            return
        connection.session.welcome(welcome)

    def asked(self, connection: Connection, request: Asked) -> None:
        try:
            self._methods[request.method](connection, request)
        except GameError as error:
            connection.session.fail(request.id, error.code, error.message, error.data)
        except Exception:
            # A fault of ours: this bridge hears that there is one, and the game goes on.
            log.exception("%s failed", request.method)
            connection.session.fail(request.id, ErrorCode.INTERNAL_ERROR, "internal error; the game's log has it")

    def gone(self, connection: Connection) -> None:
        """Nobody hears the answers: what has not begun does not begin, what goes on is told."""
        for work in self._pump.withdraw(connection):
            work.phase = Phase.OVER
        for key in [key for key in self._contexts if key[0] is connection]:
            self._contexts.pop(key).cancel()

    def tick(self) -> None:
        self._pump.check()
        self._on_tick()

    # -- at once --

    def _answer(self, connection: Connection, request: Asked, result: Any) -> None:
        text = to_json(result)
        if len(text) + _ENVELOPE_BYTES > self._limits.max_message_bytes:
            raise GameError(
                ErrorCode.INTERNAL_ERROR,
                f"the answer to {request.method} has {len(text)} bytes, over the limit of "
                f"{self._limits.max_message_bytes}; ask for less with a filter or pattern",
            )
        connection.session.answer(request.id, text)

    def _list_tools(self, connection: Connection, request: Asked) -> None:
        tools = self._registry.listed_tools(request.params.filter)
        self._answer(connection, request, {"tools": tools})

    def _list_resources(self, connection: Connection, request: Asked) -> None:
        found = self._registry.listed_resources(request.params) + self._kept.list()
        self._answer(connection, request, {"resources": found})

    def _subscribe(self, connection: Connection, request: Asked) -> None:
        wanted = list(dict.fromkeys(request.params.channels))
        known = [each for each in wanted if any(channel_matches(each, name) for name in self._registry.channels)]
        if not known:
            raise GameError(
                ErrorCode.CHANNEL_NOT_FOUND,
                f"no channel {', '.join(wanted)[:200] or '(none was named)'}",
                {"channels": sorted(self._registry.channels)},
            )
        channels = connection.session.channels
        if len(channels.union(known)) > self._limits.max_channels:
            raise GameError(
                ErrorCode.SUBSCRIBE_FAILED, f"a bridge may subscribe to {self._limits.max_channels} channels"
            )
        channels.update(known)
        self._answer(connection, request, messages.SubscribeResult(subscribed=known))

    def _unsubscribe(self, connection: Connection, request: Asked) -> None:
        channels = connection.session.channels
        gone = [each for each in dict.fromkeys(request.params.channels) if each in channels]
        channels.difference_update(gone)
        self._answer(connection, request, messages.UnsubscribeResult(unsubscribed=gone))

    def _current_attention(self, connection: Connection, request: Asked) -> None:
        self._answer(connection, request, messages.AttentionCurrentResult(attention=self._attention.current))

    def _ack_attention(self, connection: Connection, request: Asked) -> None:
        id_ = request.params.attention_id
        acknowledged = self._attention.clear(id_)
        self._answer(
            connection,
            request,
            messages.AttentionAckResult(
                acknowledged=acknowledged, attention_id=id_, current_attention=self._attention.current
            ),
        )

    def _cancel_tool(self, connection: Connection, request: Asked) -> None:
        id_ = request.params.request_id
        found = self._pump.withdraw(connection, id_)
        context = self._contexts.get((connection, id_))
        if context is not None:
            context.cancel()
        for work in found:
            executed = work.phase is Phase.RUNNING
            if executed and work.steps is None:
                # A plain function cannot be stopped half-way; it has its context to look at, and will answer.
                continue
            work.phase = Phase.OVER
            work.done(None, Overdue("was cancelled", executed=executed))
        self._answer(connection, request, messages.ToolsCancelResult(cancelled=bool(found)))

    # -- on the game's thread --

    def _call_tool(self, connection: Connection, request: Asked) -> None:
        name = request.params.name
        entry = self._registry.tools.get(name)
        if entry is None:
            raise GameError(ErrorCode.TOOL_NOT_FOUND, f"no tool {name[:100]}; tools/list names those there are")
        self._gate(name, entry.listed.tags)
        try:
            arguments = entry.decode.decode(arguments_of(request.params))
        except BadJson as bad:
            raise GameError(ErrorCode.INVALID_PARAMS, f"arguments of {name}: {bad.message}") from None
        context: Context | None = None
        if entry.signature.context is not None:
            context = Context(request.id, partial(self._progress, connection))
            self._contexts[connection, request.id] = context
        self._queue(connection, request, name, partial(self._guarded, entry, arguments, context))

    def _guarded(self, entry: ToolEntry, arguments: Any, context: Context | None) -> Any:
        # Again, now that it is about to run: attention may have been opened while it waited.
        self._gate(entry.name, entry.listed.tags)
        return entry.call(arguments, context)

    def _gate(self, name: str, tags: object) -> None:
        item = self._attention.blocking
        if item is not None and not passes(name, tags):
            raise blocked(name, item)

    def _read_resource(self, connection: Connection, request: Asked) -> None:
        uri = request.params.uri
        if self._kept.owns(uri):
            self._answer(connection, request, self._kept.read(uri))
            return
        entry = self._registry.resources.get(uri)
        if entry is None:
            raise GameError(
                ErrorCode.RESOURCE_NOT_FOUND, f"no resource {uri[:200]}; resources/list names those there are"
            )
        self._queue(connection, request, uri, entry.read)

    def _get_state(self, connection: Connection, request: Asked) -> None:
        known = self._registry.components
        wanted = request.params.components
        names = list(known) if isinstance(wanted, UnsetType) else list(dict.fromkeys(wanted))
        for name in names:
            if name not in known:
                raise GameError(
                    ErrorCode.INVALID_PARAMS,
                    f"no part of the state is called {name[:100]!r}",
                    {"components": sorted(known)},
                )
        player = request.params.player_id
        player_id = player if isinstance(player, str) else None

        def get() -> messages.StateGetResult:
            state = {name: known[name].get(player_id) for name in names}
            return messages.StateGetResult(state=state, timestamp=int(time.time()))

        self._queue(connection, request, messages.STATE_GET, get)

    def _set_state(self, connection: Connection, request: Asked) -> None:
        params: messages.StateSetParams = request.params
        if params.validate is not True:
            self._gate(messages.STATE_SET, None)
        player_id = params.player_id if isinstance(params.player_id, str) else None
        values, errors = self._judged(params)

        def set_all() -> messages.StateSetResult:
            applied: dict[str, Any] = {}
            for name, value in values.items():
                if params.validate is not True:
                    try:
                        self._registry.components[name].set(value, player_id)
                    except (ValueError, ToolError) as error:
                        errors.append(messages.StateError(field=name, message=str(error), code="refused"))
                        continue
                    applied[name] = value
            return messages.StateSetResult(applied=applied, errors=errors or UNSET)

        self._queue(connection, request, messages.STATE_SET, set_all)

    def _judged(self, params: messages.StateSetParams) -> tuple[dict[str, Any], list[messages.StateError]]:
        values: dict[str, Any] = {}
        errors: list[messages.StateError] = []
        for name, text in params.updates.items():
            component = self._registry.components.get(name)
            if component is None or not component.settable:
                what = "is not part of the state" if component is None else "can be read but not set"
                errors.append(
                    messages.StateError(field=name, message=what, code="unknown" if component is None else "fixed")
                )
                continue
            try:
                values[name] = component.decode(text)
            except BadJson as bad:
                errors.append(messages.StateError(field=name, message=bad.message, code="invalid"))
        return values, errors

    def _queue(self, connection: Connection, request: Asked, label: str, run: Callable[[], Any]) -> None:
        work = Work(
            connection,
            request.id,
            label,
            run=run,
            done=partial(self._done, connection, request, label),
            deadline=time.perf_counter() + self._request_seconds,
        )
        try:
            self._pump.put(work)
        except PumpFull:
            self._contexts.pop((connection, request.id), None)
            raise GameError(
                ErrorCode.TOOL_UNAVAILABLE,
                "too many calls wait for the game; wait for answers first",
                {"executed": False},
            ) from None

    def _done(
        self, connection: Connection, request: Asked, label: str, result: Any, error: BaseException | None
    ) -> None:
        """Made into an answer on the game's thread, where the values are that it is made of; sent by the other."""
        answer = self._failed(label, error) if error is not None else self._encoded(label, result)
        self.server.post(partial(self._deliver, connection, request, answer))

    def _failed(self, label: str, error: BaseException) -> GameError:
        match error:
            case GameError():
                return error
            case ToolError():
                return GameError(ErrorCode.TOOL_FAILED, error.message or f"{label} failed", error.data)
            case Overdue():
                code = ErrorCode.TOOL_UNAVAILABLE if error.unavailable else ErrorCode.TOOL_TIMEOUT
                return GameError(code, f"{label}: {error.message}", {"executed": error.executed})
            case _:
                log.error("%s failed:\n%s", label, "".join(traceback.format_exception(error)))
                return GameError(
                    ErrorCode.TOOL_FAILED, f"{type(error).__name__}: {error}", {"exception": type(error).__name__}
                )

    def _encoded(self, label: str, result: Any) -> bytes | GameError:
        try:
            return to_json(result)
        except (TypeError, ValueError, RecursionError, OverflowError) as fault:
            log.error("%s returned a value that is not valid JSON: %s", label, fault)  # noqa: TRY400 - the game's own fault, one line
            return GameError(
                ErrorCode.TOOL_FAILED, f"{label} ran, but its result is not valid JSON: {fault}", {"executed": True}
            )

    def _deliver(self, connection: Connection, request: Asked, answer: bytes | GameError) -> None:
        self._contexts.pop((connection, request.id), None)
        try:
            if isinstance(answer, GameError):
                raise answer
            if len(answer) + _ENVELOPE_BYTES > self._limits.max_message_bytes:
                # Bridges count bytes: what fits only without escapes is sent without them.
                answer = utf8_text(answer)
            if len(answer) + _ENVELOPE_BYTES > self._limits.max_message_bytes:
                # transport.md 7.1: "Large payloads SHOULD be transferred via resource URIs when possible".
                kept = {"resource": self._kept.keep(answer)}
                answer = to_json({"content": kept} if request.method == messages.RESOURCES_READ else kept)
            connection.session.answer(request.id, answer)
        except GameError as error:
            connection.session.fail(request.id, error.code, error.message, error.data)
        self.server.flush(connection)

    # -- events --

    def _progress(self, connection: Connection, progress: messages.Progress) -> None:
        """To the caller alone, and so with numbers of its own: nobody else may see a gap."""
        payload = to_json(progress)

        def send() -> None:
            if connection.session.wants(messages.PROGRESS_CHANNEL):
                seq = connection.private_seq.get(messages.PROGRESS_CHANNEL, -1) + 1
                connection.private_seq[messages.PROGRESS_CHANNEL] = seq
                self.server.emit(connection, messages.PROGRESS_CHANNEL, seq, payload)

        self.server.post_event(send, len(payload))

    def publish(self, channel: str, seq: int, payload: bytes) -> None:
        """To every bridge that subscribed; each has its own buffer, so a slow one costs the others nothing."""
        for connection in list(self.server.connections):
            if connection.session.wants(channel):
                self.server.emit(connection, channel, seq, payload)
