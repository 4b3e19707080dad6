"""The a2a-sdk's request handler, over our tasks: who asks whom comes from the door, what is asked from the request."""

import functools
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, NoReturn

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types.a2a_pb2 import (
    AgentCard,
    Artifact,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.types.a2a_pb2 import Task as ProtoTask
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from bascule.a2a.machine.parts import UnsupportedPart, parts_of, payload_of
from bascule.a2a.tasks import MAX_ID_CHARS, Asked, Filter, NotCancelable, State, Task, Tasks, UnknownTask
from bascule.foundation.clock import Clock, rfc3339
from bascule.foundation.errors import BasculeError, Conflict, InvalidRequest, TooLarge
from bascule.kernel.call import Principal
from bascule.kernel.faults import EventLog, log_fault

# In one answer of ListTasks; the protocol's own bounds (1 to 100, 50 unless said).
MAX_PAGE = 100
DEFAULT_PAGE = 50
# In one answer of ListTasks: as much as one task may be, twice over. What does not fit is on the next page; a hundred
# messages of a mebibyte each would be made and sent at once.
MAX_PAGE_BYTES = 4 * 1024 * 1024

# Where the door leaves it for us in a request's scope.
CALLER = "bascule.a2a.caller"


class Caller(NamedTuple):
    """Who asks, and whom: both found by the door."""

    client: Principal
    handle: str


_STATES: dict[State, TaskState] = {state: TaskState.Value(f"TASK_STATE_{state.name}") for state in State}
_BY_STATE = {number: state for state, number in _STATES.items()}


def _answered(method: Callable[..., Any]) -> Callable[..., Any]:
    """What goes wrong, as A2A says it; of the unexpected the client gets an id (I4)."""

    @functools.wraps(method)
    async def call(self: "GateHandler", params: Any, context: ServerCallContext) -> Any:
        try:
            return await method(self, params, context)
        except Exception as error:  # noqa: BLE001 - I4: of the unexpected the client gets an id
            self.fail(error)

    return call


class GateHandler(RequestHandler):
    def __init__(self, tasks: Tasks, clock: Clock, log: EventLog) -> None:
        self._tasks = tasks
        self._clock = clock
        self._log = log

    def fail(self, error: Exception) -> NoReturn:
        match error:
            case A2AError():
                raise error
            case UnknownTask():
                raise TaskNotFoundError from None
            case NotCancelable():
                raise TaskNotCancelableError(error.message) from None
            case UnsupportedPart():
                raise ContentTypeNotSupportedError(error.message) from None
            case InvalidRequest() | TooLarge() | Conflict():
                raise InvalidParamsError(error.message) from None
            case BasculeError():
                after = {"retryAfter": str(round(error.retry_after + 0.5))} if error.retry_after else None
                raise InternalError(f"{error.code}: {error.message}", data=after) from None
            case _:
                raise InternalError(f"internal error {log_fault(self._log, error, door='a2a')}") from None

    # -- messages --

    @_answered
    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> ProtoTask:
        caller = caller_of(context)
        task = await self._send(caller, params)
        if not (task.over or params.configuration.return_immediately):
            task = await self._tasks.settled(*caller, task.task_id)
        return proto_task(task, history=_history_of(params.configuration))

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        caller = caller_of(context)
        try:
            task = await self._send(caller, params)
            yield proto_task(task, history=_history_of(params.configuration))
            async for event in self._rest(caller, task):
                yield event
        except Exception as error:  # noqa: BLE001 - I4: of the unexpected the client gets an id
            self.fail(error)

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Any, None]:
        caller = caller_of(context)
        try:
            task = await self._tasks.show(*caller, params.id)
            _require_open(task)
            yield proto_task(task)
            async for event in self._rest(caller, task):
                yield event
        except Exception as error:  # noqa: BLE001 - I4: of the unexpected the client gets an id
            self.fail(error)

    async def _send(self, caller: Caller, params: SendMessageRequest) -> Task:
        message = params.message
        if max(len(message.message_id), len(message.context_id)) > MAX_ID_CHARS:
            raise InvalidParamsError(f"messageId and contextId have at most {MAX_ID_CHARS} characters")
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError
        if message.task_id:
            # Whose task it is first: an unknown one and another client's are the same.
            await self._tasks.show(*caller, message.task_id)
            raise UnsupportedOperationError(
                "a task here is one message and its answer: send another message with the same contextId"
            )
        asked = Asked(message.message_id, message.context_id, payload_of(message.parts))
        return await self._tasks.send(*caller, asked, rfc3339(self._clock.wall_ms()))

    async def _rest(self, caller: Caller, task: Task) -> AsyncGenerator[Any, None]:
        if task.over:
            return
        task = await self._tasks.settled(*caller, task.task_id)
        for artifact in _artifacts(task):
            yield TaskArtifactUpdateEvent(
                task_id=task.task_id, context_id=task.context_id, artifact=artifact, last_chunk=True
            )
        yield TaskStatusUpdateEvent(task_id=task.task_id, context_id=task.context_id, status=_status(task))

    # -- tasks --

    @_answered
    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> ProtoTask:
        return proto_task(await self._tasks.show(*caller_of(context), params.id), history=_history_of(params))

    @_answered
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        caller = caller_of(context)
        size = params.page_size if params.HasField("page_size") else DEFAULT_PAGE
        if not 1 <= size <= MAX_PAGE:
            raise InvalidParamsError(f"pageSize is 1 to {MAX_PAGE}")
        if params.history_length < 0:
            raise InvalidParamsError("historyLength is not negative")
        if params.status and params.status not in _BY_STATE:
            # A state that no task here is ever in.
            return ListTasksResponse(tasks=[], page_size=size, total_size=0)
        after = params.status_timestamp_after
        wanted = Filter(
            params.context_id,
            _BY_STATE[params.status] if params.status else None,
            rfc3339(after.ToMilliseconds()) if params.HasField("status_timestamp_after") else "",
        )
        found = await self._tasks.list_tasks(*caller, wanted)
        rest = found
        if params.page_token:
            at, _, last = params.page_token.partition("~")
            rest = [each for each in found if (each.updated_at, each.task_id) < (at, last)]
            if not last or len(rest) == len(found):
                raise InvalidParamsError("pageToken is not one of ours")
        history = params.history_length if params.HasField("history_length") else 0
        whole: list[ProtoTask] = []
        room = MAX_PAGE_BYTES
        for each in rest[:size]:
            shown = await self._tasks.show(*caller, each.task_id)
            whole.append(proto_task(shown, history=history, artifacts=params.include_artifacts))
            room -= whole[-1].ByteSize()
            if room <= 0:
                break
        last_one = rest[len(whole) - 1] if len(rest) > len(whole) > 0 else None
        more = f"{last_one.updated_at}~{last_one.task_id}" if last_one is not None else ""
        return ListTasksResponse(tasks=whole, next_page_token=more, page_size=size, total_size=len(found))

    @_answered
    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> ProtoTask:
        return proto_task(await self._tasks.cancel(*caller_of(context), params.id))

    # -- what the card says is not offered --

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        raise ExtendedAgentCardNotConfiguredError


def caller_of(context: ServerCallContext) -> Caller:
    caller = context.state[CALLER]
    assert isinstance(caller, Caller)
    return caller


def proto_task(task: Task, *, history: int | None = None, artifacts: bool = True) -> ProtoTask:
    """`history`: how many messages of it; None for all. There is one: what the client said."""
    asked = Message(
        message_id=task.message_id,
        context_id=task.context_id,
        task_id=task.task_id,
        role=Role.ROLE_USER,
        parts=parts_of(task.payload),
    )
    return ProtoTask(
        id=task.task_id,
        context_id=task.context_id,
        status=_status(task),
        artifacts=_artifacts(task) if artifacts else [],
        history=[] if history == 0 else [asked],
    )


def _require_open(task: Task) -> None:
    # 3.1.6: "Attempting to subscribe to a task in a terminal state" is an UnsupportedOperationError.
    if task.over:
        raise UnsupportedOperationError(f"the task is {task.state.value}: nothing more will happen to it")


def _history_of(params: Any) -> int | None:
    if not params.HasField("history_length"):
        return None
    if params.history_length < 0:
        raise InvalidParamsError("historyLength is not negative")
    return int(params.history_length)


def _status(task: Task) -> TaskStatus:
    status = TaskStatus(state=_STATES[task.state])
    status.timestamp.FromJsonString(task.updated_at)
    if task.reason:
        status.message.CopyFrom(
            Message(
                message_id=f"{task.task_id}.{task.state.value}",
                context_id=task.context_id,
                task_id=task.task_id,
                role=Role.ROLE_AGENT,
                parts=parts_of(task.reason),
            )
        )
    return status


def _artifacts(task: Task) -> list[Artifact]:
    found = []
    for number, reply in enumerate(task.replies, 1):
        artifact = Artifact(artifact_id=f"reply-{number}", name="reply", parts=parts_of(reply.payload))
        artifact.metadata.update({"from": reply.from_, "at": reply.at, **({"late": True} if reply.late else {})})
        found.append(artifact)
    return found
