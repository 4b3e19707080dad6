"""Keep-alive HTTP connections that ask the same thing again and again. Run as a program by `measure_http`.

Reads a JSON object from stdin: address, request (base64), connections, seconds, server_pid, count. Where the request
says NUMBER each one sent carries the next number, and after `count` of them there are no more.
"""

import asyncio
import base64
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import uvloop

from processes import cpu_seconds

PATIENCE_SECONDS = 30.0
# As long as the digits that take its place, so that the length of the body stays true.
NUMBER = b"@NUMBER@"
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


def requests(text: bytes, count: int) -> Iterator[bytes]:
    """The same bytes for ever, or each with its own number."""
    before, mark, after = text.partition(NUMBER)
    if not mark:
        while True:
            yield text
    for number in range(count):
        yield b"%b%08d%b" % (before, number, after)


class Connection(asyncio.Protocol):
    """One request open at a time; the next goes out when the whole answer is in."""

    def __init__(self, following: Iterator[bytes], done: "asyncio.Future[None]") -> None:
        self._following = following
        self._done = done
        self._buffer = b""
        self._need = 0
        self._began = 0.0
        self._until = 0.0
        self.times: list[float] = []
        self.statuses: set[bytes] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def start(self, until: float) -> None:
        self._until = until
        self._next()

    def _next(self) -> None:
        self._began = time.perf_counter()
        request = next(self._following, None) if self._began < self._until else None
        if request is not None:
            self._transport.write(request)
        elif not self._done.done():
            self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data if self._buffer else data
        if not self._need:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.statuses.add(buffer[9:12])
            length = _LENGTH.search(buffer, 0, end + 2)
            self._need = end + 4 + (int(length[1]) if length else 0)
        if len(buffer) >= self._need:
            self._buffer = b""
            self._need = 0
            self.times.append(time.perf_counter() - self._began)
            self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the server closed the connection"))


async def load(order: dict) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    place = urlsplit(order["address"])
    text = base64.b64decode(order["request"])
    numbered = requests(text, order["count"])
    # Numbers spent on the way to the measured part are gone, so a numbered request warms up with few.
    warm_up = 0.02 if NUMBER in text else min(0.3, order["seconds"] / 4)

    async def everybody(length: float) -> tuple[list[Connection], float]:
        made = []
        for _ in range(order["connections"]):
            done = loop.create_future()
            _, connection = await loop.create_connection(
                lambda done=done: Connection(numbered, done), place.hostname, place.port
            )
            made.append((connection, done))
        began = time.perf_counter()
        for connection, _ in made:
            connection.start(began + length)
        async with asyncio.timeout(length + PATIENCE_SECONDS):
            await asyncio.gather(*(done for _, done in made))
        return [connection for connection, _ in made], time.perf_counter() - began

    await everybody(warm_up)
    before = cpu_seconds(order["server_pid"])
    own = time.process_time()
    made, took = await everybody(order["seconds"])
    after = cpu_seconds(order["server_pid"])
    times = sorted(each for connection in made for each in connection.times)
    spent = after - before if before is not None and after is not None else None
    return {
        "statuses": sorted({each.decode() for connection in made for each in connection.statuses}),
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
        "per_second": len(times) / took,
        "server_us": None if spent is None else spent / len(times) * 1e6,
        "server_busy": None if spent is None else spent / took,
        "client_busy": (time.process_time() - own) / took,
    }


def main() -> None:
    figures = uvloop.run(load(json.load(sys.stdin)))
    sys.stdout.write(json.dumps(figures))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
