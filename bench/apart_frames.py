"""`bare_frames` by two sends for each frame, header and body apart, with Nagle's algorithm on: Lib.GAB's habit.

Run as a program by `measure_game`: python bench/apart_frames.py ADDRESS_FILE READY_FD
"""

import asyncio
import json
import socket

from bare_frames import Frames, say, serve


class Apart(Frames):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)

    def send(self, message: object) -> None:
        body = json.dumps(message).encode()
        self.transport.write(b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n" % len(body))
        self.transport.write(body)


if __name__ == "__main__":
    # Not on uvloop, which joins what is written in one turn.
    asyncio.run(serve(0, say, Apart))
