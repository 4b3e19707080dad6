"""A daemon whose door for A2A is open, its user, agents on it, and clients of the a2a-sdk in front of it."""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any, Self

import httpx
from a2a.client import ClientConfig
from a2a.client.client import Client
from a2a.client.client_factory import ClientFactory
from a2a.types.a2a_pb2 import Message, Part, Role, SendMessageRequest
from living import Living, eventually
from wires import LinkWire

import inside
from patience import PATIENCE
from ports import free_port

PASSPHRASE = {"passphrase": "correct horse battery"}
BINDINGS = ("JSONRPC", "HTTP+JSON")
VERSIONS = ("1.0", "0.3")
_numbers = itertools.count(1)


class Edge(Living):
    """`a2a_port` is open; other settings as given."""

    def __init__(self, state: str, **config: Any) -> None:
        self.a2a_port = config.setdefault("a2a_port", free_port())
        super().__init__(state, constants=inside.CHEAP_PASSPHRASE, **config)
        self._links = contextlib.ExitStack()
        self.user = self.link()
        self.person = self.link()
        if not self.person.call("person.status")["set"]:
            self.person.call("person.set", PASSPHRASE)
        self.person.call("person.unlock", PASSPHRASE)

    def __exit__(self, *error: object) -> None:
        self._links.close()
        super().__exit__(*error)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.a2a_port}"

    def link(self, token: str | None = None) -> LinkWire:
        wire = self._links.enter_context(LinkWire(self.link_socket))
        wire.hello(token) if token else wire.hello()
        return wire

    def agent(self, handle: str | None = None, *, published: bool = True) -> "Agent":
        handle = handle or f"Agent{next(_numbers)}"
        token = self.user.call("agents.register", {"agentId": handle})["agentToken"]
        if published:
            self.person.call("a2a.publish", {"agentId": handle})
        return Agent(handle, self.link(token))

    def comes_back(self, handle: str) -> "Agent":
        """After a restart: with the token that the state directory has."""
        with open(f"{self.state}/tokens/+{handle.lower()}.token", encoding="utf-8") as file:
            return Agent(handle, self.link(file.read().strip()))

    def token_of_user(self) -> str:
        with open(f"{self.state}/local.token", encoding="utf-8") as file:
            return file.read().strip()

    def token(self, name: str | None = None) -> str:
        made: dict[str, str] = self.person.call("a2a.addToken", {"name": name or f"client{next(_numbers)}"})
        return made["token"]


class Agent:
    """An agent on this machine, as it is over the link."""

    def __init__(self, handle: str, link: LinkWire) -> None:
        self.handle = handle
        self.link = link

    def take(self) -> dict[str, Any]:
        """The next message, acknowledged."""
        end = time.monotonic() + PATIENCE
        taken: dict[str, Any] = {"messages": []}
        while not taken["messages"]:
            assert time.monotonic() < end, "no message came"
            taken = self.link.call("inbox.take", {"agentId": self.handle, "waitMs": 10_000})
        message: dict[str, Any] = taken["messages"][0]
        self.link.call("inbox.ack", {"agentId": self.handle, "ticketIds": [message["ticketId"]]})
        return message

    def reply(self, ticket_id: str, payload: Any) -> None:
        self.link.call("replies.post", {"ticketId": ticket_id, "payload": payload})

    def answer(self, payload: Any) -> dict[str, Any]:
        message = self.take()
        self.reply(message["ticketId"], payload)
        return message

    def inbox(self) -> int:
        watched = self.link.call("inbox.watch", {"agentId": self.handle, "waitMs": 0}) or {}
        unread: int = watched.get("unread", 0)
        return unread


def text_message(text: str, *, message_id: str | None = None, now: bool = False, **more: Any) -> SendMessageRequest:
    """A message of one text part; `now`: answer as soon as it is taken."""
    message = Message(message_id=message_id or str(uuid.uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], **more)
    request = SendMessageRequest(message=message)
    request.configuration.return_immediately = now
    return request


@contextlib.asynccontextmanager
async def sdk_client(
    base: str,
    handle: str,
    token: str | None,
    *,
    binding: str = "JSONRPC",
    version: str = "1.0",
    streaming: bool = False,
) -> AsyncIterator[Client]:
    """A client of the a2a-sdk that read the card and takes one of its interfaces."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        config = ClientConfig(streaming=streaming, httpx_client=http, supported_protocol_bindings=[binding])
        factory = ClientFactory(config)
        from a2a.client.card_resolver import A2ACardResolver

        card = await A2ACardResolver(http, f"{base}/{handle}").get_agent_card()
        wanted = [
            each
            for each in card.supported_interfaces
            if each.protocol_binding == binding and each.protocol_version == version
        ]
        assert wanted, f"{binding} {version} is not on the card"
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(wanted)
        yield factory.create(card)


async def events(stream: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in stream]


def text_of(artifact: Any) -> str:
    return "\n".join(part.text for part in artifact.parts)


class PeerAgent:
    """An agent elsewhere: a process with the a2a-sdk's server, on loopback."""

    def __init__(self, folder: str, **settings: Any) -> None:
        self.port: int = settings.setdefault("port", free_port())
        self.effects_file = settings.setdefault("effects", f"{folder}/effects-{self.port}")
        self._settings = settings
        self.start()

    def start(self, **changed: Any) -> None:
        self._settings |= changed
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL)
        eventually(self._listens, "the agent elsewhere listens")

    def command(self) -> list[str]:
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer_program.py")
        return [sys.executable, program, json.dumps(self._settings)]

    def _listens(self) -> bool:
        assert self.process.poll() is None, "the agent elsewhere ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def effects(self, word: str = "told") -> list[str]:
        """What happened here: message id, context and text of each message, or ids of cancelled tasks."""
        if not os.path.exists(self.effects_file):
            return []
        with open(self.effects_file, encoding="utf-8") as file:
            return [line.strip().partition(" ")[2] for line in file if line.startswith(word + " ")]


def rpc(edge, handle, token, method, params=None, *, version="1.0", **more):
    headers = {"authorization": f"Bearer {token}", "a2a-version": version}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **more}
    return httpx.post(f"{edge.base}/{handle}", json=body, headers=headers, timeout=PATIENCE).json()


def plain(text, message_id="m1", **more):
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **more}}


def answered_now(params):
    return {**params, "configuration": {"returnImmediately": True}}


def run(work):
    return asyncio.run(asyncio.wait_for(work, PATIENCE))
