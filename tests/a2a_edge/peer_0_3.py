"""The a2a-sdk of protocol 0.3 itself, in an environment of its own: an agent that is asked, or a client that asks.

python peer_0_3.py serve PORT BINDING
python peer_0_3.py ask BASE TOKEN BINDING STREAMING TEXT
"""

import asyncio
import json
import sys

import httpx
import uvicorn
from a2a.client import ClientConfig, ClientFactory, create_text_message_object
from a2a.server.agent_execution import AgentExecutor
from a2a.server.apps import A2ARESTFastAPIApplication, A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part, TaskQueryParams, TextPart
from a2a.utils import new_agent_text_message, new_task

SECONDS = 60


class Worker(AgentExecutor):
    async def execute(self, context, event_queue):
        text = context.get_user_input()
        if text.startswith("echo"):
            await event_queue.enqueue_event(new_agent_text_message(text))
            return
        task = context.current_task or new_task(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        if text.startswith("which"):
            asked = updater.new_agent_message([Part(root=TextPart(text="which city?"))])
            await updater.requires_input(asked, final=True)
        elif text.startswith("wait"):
            await asyncio.Event().wait()
        else:
            await updater.add_artifact([Part(root=TextPart(text=f"done: {text}"))], name="result")
            await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def serve(port, binding):
    card = AgentCard(
        name="Old",
        description="an agent of before",
        url=f"http://127.0.0.1:{port}/",
        version="1",
        capabilities=AgentCapabilities(streaming=False),
        skills=[AgentSkill(id="rain", name="rain", description="says when it rains", tags=["rain"])],
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        preferred_transport=binding,
    )
    handler = DefaultRequestHandler(agent_executor=Worker(), task_store=InMemoryTaskStore())
    application = A2AStarletteApplication if binding == "JSONRPC" else A2ARESTFastAPIApplication
    uvicorn.run(
        application(agent_card=card, http_handler=handler).build(),
        host="127.0.0.1",
        port=int(port),
        log_level="error",
    )


async def ask(base, token, binding, streaming, text):
    """Prints how the task went, by what came and by what the door says of it afterwards."""
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {token}"}, timeout=SECONDS) as http:
        config = ClientConfig(httpx_client=http, streaming=streaming == "streaming", supported_transports=[binding])
        client = await ClientFactory.connect(base, config)
        states = []
        async for task, _update in client.send_message(create_text_message_object(content=text)):
            states.append(task.status.state.value)
        found = await client.get_task(TaskQueryParams(id=task.id))
        texts = [part.root.text for artifact in found.artifacts or [] for part in artifact.parts]
        sys.stdout.write(json.dumps({"states": states, "state": found.status.state.value, "texts": texts}))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:])
    else:
        asyncio.run(ask(*sys.argv[2:]))
