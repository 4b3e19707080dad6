"""A2A, met with a2a-sdk's own client: one SendMessage over JSON-RPC and HTTP, answered by the agent itself."""

from a2a.client import ClientConfig, create_client
from a2a.helpers import get_message_text, new_text_message
from a2a.types import Role, SendMessageRequest

from scene import PAYLOAD, PAYLOAD_BYTES, Ask, Asker, Receiver


async def a2a_asker(address: str, _name: str) -> Ask:
    client = await create_client(address, ClientConfig(streaming=False))

    async def ask() -> None:
        request = SendMessageRequest(message=new_text_message(PAYLOAD, role=Role.ROLE_USER))
        async for event in client.send_message(request):
            assert len(get_message_text(event.message)) == PAYLOAD_BYTES

    return ask


ASKERS: dict[str, Asker] = {"a2a": a2a_asker}
# With A2A the agent is the server: nobody stands between the two.
RECEIVERS: dict[str, Receiver] = {}
