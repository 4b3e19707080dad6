"""Keep-alive HTTP connections that ask the same thing again and again. Run as a program by `measure_http`.

Reads a JSON object from stdin: port, request (base64), connections, seconds, server_pid.
"""

import asyncio
import base64
import json
import os
import re
import sys
import time

import uvloop

from processes import cpu_seconds

PATIENCE_SECONDS = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One request open at a time; the next goes out when the whole answer is in."""

    def __init__(self, request: bytes, done: "asyncio.Future[None]") -> None:
        self._request = request
        self._done = done
        self._buffer = b""
        self._need = 0
        self._began = 0.0
        self._until = 0.0
        self.times: list[float] = []
        self.status = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def start(self, until: float) -> None:
        self._until = until
        self._next()

    def _next(self) -> None:
        self._began = time.perf_counter()
        if self._began >= self._until:
            if not self._done.done():
                self._done.set_result(None)
            return
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._buffer = buffer = self._buffer + data if self._buffer else data
        if not self._need:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self.status = buffer[9:12]
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


async def load(port: int, request: bytes, connections: int, seconds: float, server_pid: int) -> dict[str, object]:
    loop = asyncio.get_running_loop()

    async def everybody(length: float) -> tuple[list[Connection], float]:
        made = []
        for _ in range(connections):
            done = loop.create_future()
            _, connection = await loop.create_connection(lambda done=done: Connection(request, done), "127.0.0.1", port)
            made.append((connection, done))
        began = time.perf_counter()
        for connection, _ in made:
            connection.start(began + length)
        async with asyncio.timeout(length + PATIENCE_SECONDS):
            await asyncio.gather(*(done for _, done in made))
        return [connection for connection, _ in made], time.perf_counter() - began

    await everybody(min(0.3, seconds / 4))
    before = cpu_seconds(server_pid)
    made, took = await everybody(seconds)
    after = cpu_seconds(server_pid)
    times = sorted(each for connection in made for each in connection.times)
    statuses = {connection.status.decode() for connection in made}
    return {
        "statuses": sorted(statuses),
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
        "per_second": len(times) / took,
        "server_us": (after - before) / len(times) * 1e6 if before is not None and after is not None else None,
    }


def main() -> None:
    order = json.load(sys.stdin)
    request = base64.b64decode(order["request"])
    figures = uvloop.run(load(order["port"], request, order["connections"], order["seconds"], order["server_pid"]))
    sys.stdout.write(json.dumps(figures))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
