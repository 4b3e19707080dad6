"""An A2A agent with the official SDK that answers with what it was told. Its server is the agent itself."""

from a2a.helpers import get_message_text, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

import uvicorn_program


class Echo(AgentExecutor):
    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        await event_queue.enqueue_event(new_text_message(get_message_text(context.message)))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:  # noqa: ARG002 - the SDK gives them
        raise RuntimeError("an echo has answered before it could be cancelled")


def application(address: str) -> Starlette:
    card = AgentCard(
        name="echo",
        description="says it back",
        version="1",
        capabilities=AgentCapabilities(streaming=False),
        skills=[AgentSkill(id="echo", name="echo", description="says it back", tags=["echo"])],
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        supported_interfaces=[
            AgentInterface(url=f"{address}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
        ],
    )
    handler = DefaultRequestHandler(agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card)
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])


if __name__ == "__main__":
    uvicorn_program.run(application)
