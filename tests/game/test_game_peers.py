"""The bridge with mods that write as Lib.GAB does: what their habits cost must not be the agents' to pay."""

import asyncio
import socket
import statistics
import time

import pytest
import uvloop
from playground import PATIENCE, attached, playground
from scripted_mod import ScriptedMod

from bascule.wire import gabp

CALLS = 40
# Linux delays an ACK by 40 ms or more; half of that is a delay that no scheduler adds to one kind of call alone.
DELAYED_ACK_SECONDS = 0.02


class TwoWrites(ScriptedMod):
    """Writes a frame's header and its body by two sends, with Nagle's algorithm on: Lib.GAB's TcpTransport."""

    split = False

    def _answer(self, writer, request, params):
        if not self.split or request.method != "tools/call":
            super()._answer(writer, request, params)
            return
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        header, end, body = gabp.response(request.id, gabp.to_json(params["arguments"])).partition(b"\r\n\r\n")
        writer.write(header + end)
        # Each by a send of its own: uvloop joins what is written in one turn.
        asyncio.get_running_loop().call_later(0.001, writer.write, body)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="the delay and its cure are Linux's")
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_mod_that_sends_header_and_body_apart_is_answered_without_a_delayed_ack(tmp_path, loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_compare_calls(tmp_path))


async def _compare_calls(tmp_path):
    mod = TwoWrites(tools_call=lambda params: params["arguments"])
    async with mod, playground(tmp_path) as ground, asyncio.timeout(PATIENCE):
        attached(ground, mod.port)
        await ground.games.start("arena")
        arena = ground.games.find("arena")
        taken = {True: [], False: []}
        for number in range(2 * CALLS):
            mod.split = number % 2 == 0
            began = time.perf_counter()
            assert bytes(await arena.call_tool("me", "a/b", {"n": number})) == b'{"n":%d}' % number
            taken[mod.split].append(time.perf_counter() - began)
        # In turns, and against the same calls in one write: a busy machine slows both.
        whole, split = statistics.median(taken[False]), statistics.median(taken[True])
        assert split < whole + DELAYED_ACK_SECONDS, f"{split * 1000:.1f} ms, in one write {whole * 1000:.1f} ms"
