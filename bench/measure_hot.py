"""CPU of a whole ask in one process: real connections, gate, broker and ledger, a store in memory, no socket.

Bytes go into `LinkConnection.data_received` and come out of a transport that keeps them. The time is CPU of the loop's
thread, and of many short rounds the least counts: the machine is never quiet, and noise only adds.

python bench/measure_hot.py            microseconds
python bench/measure_hot.py calls      function calls, which no other process disturbs; -v lists them
"""

import cProfile
import gc
import pstats
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable

import uvloop

from bascule import __version__
from bascule.daemon.compose import Daemon
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.kernel.call import LOCAL, Call
from bascule.surfaces.link import LinkConnection
from gabp import codec
from gabp.content_length import frame
from measure_cpu import ASKER, PAYLOAD, RECEIVER, house, raw

# Short enough that most rounds meet no other process, long enough that the clock's step does not count.
ASKS_PER_ROUND = 100
ROUNDS = 100
_TICKET = re.compile(rb'"ticketId":"([^"]+)"')


class KeptTransport:
    """What a connection writes, until it is looked at."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        # The connection asks the kernel who is at the other end.
        self._pair = socket.socketpair()

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, _name: str) -> socket.socket:
        return self._pair[0]

    def pause_reading(self) -> None:
        raise RuntimeError("the measure goes faster than one principal's turn")

    def resume_reading(self) -> None:
        return None

    def close(self) -> None:
        return None

    def taken(self) -> bytes:
        written, self.written = self.written, []
        return b"".join(written)


class Peers:
    """An asker and a receiver on one daemon."""

    def __init__(self, daemon: Daemon, *, streams: bool) -> None:
        self._daemon = daemon
        self._last = 0
        self._streams = streams
        self._connections: list[LinkConnection] = []
        self._asker, self._asker_out = self._connect(ASKER)
        self._receiver, self._receiver_out = self._connect(RECEIVER)
        if streams:
            self._call(self._receiver, "inbox.stream", codec.encode({"agentId": RECEIVER}))
            self._receiver_out.taken()
        self._send = codec.encode({"agentId": RECEIVER, "payload": PAYLOAD, "waitMs": 30_000})
        self._take = codec.encode({"agentId": RECEIVER, "waitMs": 30_000})
        self._payload = codec.encode(PAYLOAD)
        self._beat = codec.encode({"agentId": RECEIVER})

    def _connect(self, name: str) -> tuple[LinkConnection, KeptTransport]:
        token = self._daemon.gate.call(Call(LOCAL, "agents.register", raw(agentId=name), door="link")).agent_token
        connection = self._daemon.link_connection()
        self._connections.append(connection)
        transport = KeptTransport()
        connection.connection_made(transport)  # type: ignore[arg-type] # as much of one as is used
        hello = {"protocol": PROTOCOL_VERSION, "version": __version__, "token": token}
        self._call(connection, "hello", codec.encode(hello))
        transport.taken()
        return connection, transport

    def _call(self, connection: LinkConnection, method: str, params: bytes) -> None:
        self._last += 1
        body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (self._last, method.encode(), params)
        connection.data_received(frame(body))
        for each in self._connections:
            each._flush()  # noqa: SLF001 - what the loop does at the end of each turn

    def ask(self) -> None:
        # The turns of the loop come in between on a real one.
        self._daemon.turns._renew()  # noqa: SLF001 - what the loop does between two reads
        if self._streams:
            self._call(self._asker, "messages.send", self._send)
        else:
            self._call(self._receiver, "inbox.take", self._take)
            self._call(self._asker, "messages.send", self._send)
        found = _TICKET.search(self._receiver_out.taken())
        assert found is not None
        ticket = found[1]
        if not self._streams:
            self._call(
                self._receiver, "inbox.ack", b'{"agentId":"%b","ticketIds":["%b"]}' % (RECEIVER.encode(), ticket)
            )
        self._call(self._receiver, "replies.post", b'{"ticketId":"%b","payload":%b}' % (ticket, self._payload))
        answer = self._asker_out.taken()
        assert b'"responded"' in answer, answer
        self._receiver_out.taken()
        if not self._streams:
            self._call(self._asker, "replies.wait", b'{"ticketId":"%b"}' % ticket)
            self._call(self._receiver, "agents.heartbeat", self._beat)
            self._receiver_out.taken()
            self._asker_out.taken()


def inside(work: Callable[[str, Peers], dict[str, float]]) -> dict[str, float]:
    """`work` in a daemon of its own for an ask over an inbox stream, and for one with polls: all six calls."""

    async def run(name: str, *, streams: bool) -> dict[str, float]:
        with tempfile.TemporaryDirectory() as directory, house(directory, logging=True) as (daemon, _):
            return work(name, Peers(daemon, streams=streams))

    return uvloop.run(run("ask", streams=True)) | uvloop.run(run("all six", streams=False))


def least(name: str, peers: Peers) -> dict[str, float]:
    gc.collect()
    gc.freeze()
    best = float("inf")
    for _ in range(ROUNDS):
        before = time.thread_time()
        for _ in range(ASKS_PER_ROUND):
            peers.ask()
        best = min(best, (time.thread_time() - before) / ASKS_PER_ROUND * 1e6)
    return {f"{name}, us": best}


def calls(name: str, peers: Peers) -> dict[str, float]:
    for _ in range(ASKS_PER_ROUND):
        peers.ask()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(ASKS_PER_ROUND):
        peers.ask()
    profile.disable()
    stats = pstats.Stats(profile)
    if "-v" in sys.argv:
        stats.sort_stats("ncalls").print_stats(110)
    return {f"{name}, function calls": stats.total_calls / ASKS_PER_ROUND}


def main() -> None:
    found = inside(calls if "calls" in sys.argv else least)
    print("; ".join(f"{name}: {value:.1f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
