"""Two daemons in one mesh: a person at each of them begins it, joins it and accepts, as `docs/mesh.md` says."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec
import uvloop

from ends_frames import FrameClient, encode, link
from processes import Server
from scene import FAR

NEAR = "near"
PASSPHRASE = "correct horse battery staple"
# Joining is a handshake over NATS that a person's call waits for, and two programs that compute.
PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.02


async def call(client: FrameClient, method: str, **params: Any) -> Any:
    return msgspec.json.decode((await client.call(method, encode(params))).result)


async def eventually(look: "Callable[[], Any]", what: str) -> Any:
    until = time.perf_counter() + PATIENCE_SECONDS
    while not (found := await look()):
        if time.perf_counter() > until:
            raise RuntimeError(f"the mesh: {what} did not happen within {PATIENCE_SECONDS:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)
    return found


async def person(state: str) -> FrameClient:
    client = await link(state)
    await client.call("person.set", encode({"passphrase": PASSPHRASE}))
    await client.call("person.unlock", encode({"passphrase": PASSPHRASE}))
    return client


async def reaches(client: FrameClient, node: str) -> bool:
    nodes = (await call(client, "mesh.status")).get("nodes", [])
    return any(each["node"] == node and each.get("reachable") for each in nodes)


async def join(near: str, far: str) -> None:
    """`near` and `far` are state directories; nats-server is a child of the first."""
    here, there = await person(near), await person(far)
    code = (await call(here, "mesh.new", mesh="bench", node=NEAR, listen=f"127.0.0.1:{free_port()}"))["code"]
    await call(there, "mesh.join", code=code, node=FAR)

    async def words() -> str | None:
        nodes = (await call(here, "mesh.nodes")).get("nodes", [])
        return next((each["words"] for each in nodes if each["standing"] == "waiting"), None)

    await call(here, "mesh.accept", node=FAR, words=await eventually(words, f"{FAR} asks at {NEAR}"))
    await eventually(lambda: reaches(here, FAR), f"{NEAR} reaches {FAR}")
    await eventually(lambda: reaches(there, NEAR), f"{FAR} reaches {NEAR}")


def make(near: Server, far: Server) -> None:
    uvloop.run(join(near.address, far.address))


def hub_pid(server: Server) -> int | None:
    """nats-server, which the daemon of the first node has started; None where there is no /proc."""
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                name, _, fields = file.read().partition(" (")[2].rpartition(") ")
        except OSError:
            continue
        if name == "nats-server" and int(fields.split()[1]) == server.pid:
            return int(pid)
    return None


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
