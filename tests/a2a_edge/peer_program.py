"""An agent elsewhere, with the server of the a2a-sdk: what it is told says what it does. A program of its own.

Every message that it is given is a line in a file: the effects that tests count.

    python peer_program.py '{"port": 1234, "effects": "...", "version": "1.0", "binding": "JSONRPC", "token": null}'
"""

import asyncio
import json
import sys

import uvicorn
from a2a.helpers import get_message_text, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Task, TaskState, TaskStatus
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

SETTINGS = json.loads(sys.argv[1])


class Worker(AgentExecutor):
    def __init__(self) -> None:
        self.working: dict[str, asyncio.Event] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        text = get_message_text(context.message)
        note(f"told {context.message.message_id} {context.context_id} {text}")
        if text.startswith("echo"):
            await event_queue.enqueue_event(new_text_message(text, context_id=context.context_id))
            return
        if context.current_task is None:
            submitted = Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
            await event_queue.enqueue_event(submitted)
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        await task.start_work()
        if text.startswith("fail"):
            await task.failed(task.new_agent_message([new_text_part("it broke")]))
        elif text.startswith("which"):
            await task.requires_input(task.new_agent_message([new_text_part("which city?")]))
        elif text.startswith("wait"):
            await self.working.setdefault(context.task_id, asyncio.Event()).wait()
        else:
            await task.add_artifact([new_text_part(f"done: {text}")], name="result")
            await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        note(f"cancelled {context.task_id}")
        self.working.setdefault(context.task_id, asyncio.Event()).set()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def note(line: str) -> None:
    with open(SETTINGS["effects"], "a", encoding="utf-8") as file:
        file.write(line + "\n")


def application() -> Starlette:
    base = f"http://127.0.0.1:{SETTINGS['port']}"
    version, binding = SETTINGS.get("version", "1.0"), SETTINGS.get("binding", "JSONRPC")
    card = AgentCard(
        name=SETTINGS.get("name", "Weather"),
        description="knows the weather",
        version="1",
        capabilities=AgentCapabilities(streaming=False),
        skills=[AgentSkill(id="rain", name="rain", description="says when it rains", tags=["rain"])],
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(
                url=f"{base}/rpc" if binding == "JSONRPC" else base, protocol_binding=binding, protocol_version=version
            )
        ],
    )
    handler = DefaultRequestHandler(agent_executor=Worker(), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, enable_v0_3_compat=True),
        ]
    )
    if SETTINGS.get("token"):
        app.add_middleware(BaseHTTPMiddleware, dispatch=wants_token)
    return app


async def wants_token(request: Request, call_next) -> Response:
    if request.headers.get("authorization") != f"Bearer {SETTINGS['token']}":
        return PlainTextResponse("no", status_code=401)
    return await call_next(request)


if __name__ == "__main__":
    uvicorn.run(application(), host="127.0.0.1", port=SETTINGS["port"], log_level="error")
