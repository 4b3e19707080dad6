"""The limit: a broker that only passes messages on. No identity, no policy, no ledger, nothing kept.

Same frames, same event loop, same JSON library as Bascule, and in the same five messages per ask:

    asker     ask ->                             <- the answer
    receiver             <- item      reply ->   <- done

so what Bascule costs beyond this is what it does beyond passing on. A second way in (`to` without `method`) is a
plain forwarder with four messages per ask: what the work would take at the very least if nothing had a ticket.
"""

import asyncio
import os
import sys
from itertools import count

import msgspec
import uvloop

from bascule.transports.framed import FramedConnection


class Frame(msgspec.Struct, omit_defaults=True):
    id: int | None = None
    method: str | None = None
    to: str | None = None
    ticket: int | None = None
    body: msgspec.Raw = msgspec.Raw(b"")


decode = msgspec.json.Decoder(Frame).decode
encode = msgspec.json.Encoder().encode


class Peer(FramedConnection):
    receivers: dict[str, "Peer"] = {}
    # By ticket: who waits for its answer.
    asked: dict[int, tuple["Peer", int | None]] = {}
    numbers = count(1)

    def __init__(self) -> None:
        super().__init__(max_body_bytes=1024 * 1024)

    def on_frame(self, body: bytes) -> None:
        frame = decode(body)
        match frame.method:
            case "ask":
                number = next(self.numbers)
                self.asked[number] = self, frame.id
                self.receivers[frame.to].send(encode(Frame(method="item", ticket=number, body=frame.body)))
            case "reply":
                asker, id_ = self.asked.pop(frame.ticket)
                asker.send(encode(Frame(id_, body=frame.body)))
                self.send(encode(Frame(frame.id)))
            case "receive":
                self.receivers[frame.to] = self
                self.send(encode(Frame(frame.id)))
            case _:
                self._forward(frame)

    def _forward(self, frame: Frame) -> None:
        if frame.to is not None:
            number = next(self.numbers)
            self.asked[number] = self, frame.id
            self.receivers[frame.to].send(encode(Frame(number, body=frame.body)))
        else:
            asker, id_ = self.asked.pop(frame.id)
            asker.send(encode(Frame(id_, body=frame.body)))


async def serve(path: str, ready: int) -> None:
    server = await asyncio.get_running_loop().create_unix_server(Peer, path)
    os.write(ready, b"ready\n")
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2])))
