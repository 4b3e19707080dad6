"""The limit: a broker that only forwards. No identity, no policy, no ledger, no ticket, no second reader.

Same frames, same event loop, same JSON library as Bascule; what Bascule adds to an ask is what it costs
beyond this.
"""

import asyncio
import os
import sys
from itertools import count

import msgspec
import uvloop

from bascule.transports.framed import FramedConnection


class Frame(msgspec.Struct, omit_defaults=True):
    id: int
    to: str | None = None
    name: str | None = None
    body: msgspec.Raw = msgspec.Raw(b"")


decode = msgspec.json.Decoder(Frame).decode
encode = msgspec.json.Encoder().encode


class Peer(FramedConnection):
    receivers: dict[str, "Peer"] = {}
    waiting: dict[int, tuple["Peer", int]] = {}
    numbers = count(1)

    def __init__(self) -> None:
        super().__init__(max_body_bytes=1024 * 1024)

    def on_frame(self, body: bytes) -> None:
        frame = decode(body)
        if frame.name is not None:
            self.receivers[frame.name] = self
            self.send(encode(Frame(frame.id)))
        elif frame.to is not None:
            number = next(self.numbers)
            self.waiting[number] = self, frame.id
            self.receivers[frame.to].send(encode(Frame(number, body=frame.body)))
        else:
            asker, id_ = self.waiting.pop(frame.id)
            asker.send(encode(Frame(id_, body=frame.body)))


async def serve(path: str, ready: int) -> None:
    server = await asyncio.get_running_loop().create_unix_server(Peer, path)
    os.write(ready, b"ready\n")
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
