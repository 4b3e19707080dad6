"""A real daemon with a game that breaks every rule beside one that keeps them all."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from arcade import arcade
from living import eventually
from playground import MOD
from scripted_mod import ScriptedMod
from test_game_attacks import ATTACKS
from wires import LinkWire

from patience import PATIENCE

# Python's own arenas move by some megabytes; the claims of the attacks would be gigabytes.
MOST_GROWTH_KB = 48 * 1024


class Hostile:
    """A scripted mod on a loop of its own thread."""

    def __init__(self, mod: ScriptedMod, loop: asyncio.AbstractEventLoop) -> None:
        self.port = mod.port
        self._mod = mod
        self._loop = loop

    def send(self, data: bytes, *, pieces: int | None = None) -> None:
        async def sent() -> None:
            for at in range(0, len(data), pieces or len(data)):
                self._mod.send(data[at : at + (pieces or len(data))])
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(sent(), self._loop).result(PATIENCE)

    def half_close(self) -> None:
        self._loop.call_soon_threadsafe(self._mod.writers[-1].write_eof)


@contextmanager
def hostile() -> Iterator[Hostile]:
    ready: list[Hostile] = []
    came, over = threading.Event(), threading.Event()

    async def served() -> None:
        async with ScriptedMod(tools_call=1) as mod:
            ready.append(Hostile(mod, asyncio.get_running_loop()))
            came.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(served()), daemon=True)
    thread.start()
    assert came.wait(PATIENCE)
    try:
        yield ready[0]
    finally:
        over.set()
        thread.join(PATIENCE)


def resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


@pytest.mark.req("GABP-SEC-4", "DEC-GABP-1")
def test_a_daemon_outlives_every_broken_frame_with_its_memory_and_its_other_games():
    with arcade() as place, hostile() as bad:
        place.list_mod(MOD)
        (place.folder / "token").write_text("0123456789abcdef" * 4)
        (place.folder / "token").chmod(0o600)
        with place.live() as daemon, LinkWire(daemon.link_socket, PATIENCE).hello() as wire:
            attach = {"gameId": "bad", "address": str(bad.port), "tokenFile": str(place.folder / "token")}
            assert wire.call("games.start", {"gameId": "arena"})["state"] == "live"
            assert wire.call("games.attach", attach)["state"] == "live"

            def connects() -> int:
                return wire.call("games.status", {"gameId": "bad"})["connects"]

            before = resident_kb(daemon.process.pid)
            happened = 1
            for name, attack in ATTACKS.items():
                bad.send(attack, pieces=1 if len(attack) < 100 else None)
                happened += 1
                eventually(lambda seen=happened: connects() >= seen, f"connected again after {name}", PATIENCE)
                answer = wire.call(
                    "games.call", {"gameId": "arena", "tool": "arena/echo", "arguments": {"value": name}}
                )
                assert answer["result"] == name
            bad.half_close()
            eventually(lambda: connects() > happened, "connected again after a half close", PATIENCE)
            assert resident_kb(daemon.process.pid) - before < MOST_GROWTH_KB
            # Each ended with a reason that says what was wrong.
            notes = [
                event["message"]
                for event in wire.call("games.events", {"gameId": "bad", "limit": 1000})["events"]
                if "the connection was lost" in event.get("message", "")
            ]
            assert len(notes) == len(ATTACKS) + 1
            assert all(len(message) > len("the connection was lost: ") + 5 for message in notes)
            assert wire.call("games.status", {"gameId": "arena"})["connects"] == 1
            assert '"level":"error"' not in daemon.log()
            assert daemon.stop() == 0
