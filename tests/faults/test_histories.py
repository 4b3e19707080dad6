"""What real clients were told by a real daemon that is stopped, killed and started again has one explanation."""

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from linearize import DOUBT, Model, Op, explain

from clients import Client, Http, Link, Scene, receivers_call, senders_call

LONG = bool(os.environ.get("BASCULE_LONG"))
HISTORIES = 5_000 if LONG else 200
# At once: most of the time is the disk's, and one commit carries many.
BENCHES = 24
CALLS_EACH = 5
MODEL = Model()
# No history may be short of calls because one principal is quick.
UNHURRIED = {"BASCULE_CALLS_PER_SECOND": "0"}

Actor = tuple[Client, Callable[..., tuple[Any, ...]]]


class Run:
    """Many histories, some at a time. A forgetful daemon knows nobody after a crash: only `local` can speak to it."""

    def __init__(self, daemon: Any, *, seed: int, forgetful: bool = False) -> None:
        self._daemon = daemon
        self._forgetful = forgetful
        self._seed = seed
        self.scene = Scene(daemon.state_dir)
        self.histories: list[list[Op]] = []
        self._another = asyncio.Event()

    async def go(self, count: int) -> None:
        numbers = iter(range(count))
        benches = [await self._actors(number) for number in range(BENCHES)]
        async with asyncio.TaskGroup() as group:
            trouble = group.create_task(self._pauses_and_crashes())
            async with asyncio.TaskGroup() as work:
                for actors in benches:
                    work.create_task(self._bench(actors, numbers))
            await self.scene.up.wait()
            trouble.cancel()

    async def _actors(self, number: int) -> list[Actor]:
        receiver = f"R{number}"
        theirs, mine = await self._register(receiver), await self._register(f"S{number}")
        if self._forgetful:
            return [(Client(self.scene, kind, receiver, None), senders_call) for kind in (Link, Http, Link)]
        senders = [(Client(self.scene, kind, receiver, mine), senders_call) for kind in (Link, Http)]
        return senders + [(Client(self.scene, kind, receiver, theirs), receivers_call) for kind in (Http, Link)]

    async def _register(self, handle: str) -> str:
        link = Link(*await asyncio.open_unix_connection(Link.path(self.scene.state_dir)))
        await link.hello(None)
        token: str = (await link.ask("agents.register", {"agentId": handle}))["agentToken"]
        link.close()
        return token

    async def _bench(self, actors: list[Actor], numbers: Iterator[int]) -> None:
        for number in numbers:
            history = await self._history(f"h{number}", actors, random.Random(self._seed + number))
            self.histories.append(history)
            self._another.set()
        for client, _ in actors:
            client.close()

    async def _history(self, name: str, actors: list[Actor], chance: random.Random) -> list[Op]:
        """Every client does a few things at the same time as the others; then somebody looks at what became of it."""
        tickets = [f"{name}{letter}" for letter in "abc"]
        life = self.scene.life
        history: list[Op] = []

        async def act(client: Client, some_call: Callable[..., tuple[Any, ...]]) -> None:
            for _ in range(CALLS_EACH):
                call = some_call(chance, tickets)
                wait_ms = 50 if call[0] in ("take", "wait") and chance.random() < 0.1 else 0
                history.append(await client.act(call, wait_ms))

        async with asyncio.TaskGroup() as group:
            for client, some_call in actors:
                group.create_task(act(client, some_call))
        history += [await actors[0][0].act(("show", ticket)) for ticket in tickets]
        # An inbox that is empty for the next history.
        while not self._forgetful and (history[-1].answer is DOUBT or history[-1].call[0] != "ack"):
            history.append(await actors[-1][0].act(("ack", *tickets)))
        history += [Op(("crash",), None, began, ended, of) for began, ended, of in self.scene.crashes if of >= life]
        return [op._replace(life=op.life - life) for op in history]

    async def _pauses_and_crashes(self) -> None:
        """A pause every few histories, a crash every few pauses: a machine of any speed gets its share of both."""
        chance = random.Random(self._seed)
        for number in itertools.count():
            enough = len(self.histories) + chance.randint(2, 12)
            while len(self.histories) < enough:
                self._another.clear()
                await self._another.wait()
            # Anywhere within the calls that follow.
            await asyncio.sleep(chance.uniform(0.0, 0.02))
            if number % 6 == 2:
                await self._crash()
                continue
            os.kill(self._daemon.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(chance.uniform(0.005, 0.05))
            finally:
                os.kill(self._daemon.pid, signal.SIGCONT)

    async def _crash(self) -> None:
        scene, began = self.scene, time.perf_counter()
        scene.up.clear()
        await asyncio.to_thread(self._daemon.restart, kill=True)
        for number in range(BENCHES if self._forgetful else 0):
            await self._register(f"R{number}")
        scene.crashes.append((began, time.perf_counter(), scene.life))
        scene.life += 1
        scene.up.set()


async def run(daemon: Any, count: int, **how: Any) -> Run:
    made = Run(daemon, **how)
    await made.go(count)
    return made


def test_every_history_of_a_daemon_that_is_paused_and_killed_has_an_explanation(start_daemon):
    daemon = start_daemon(None, env=UNHURRIED)
    seen = asyncio.run(run(daemon, HISTORIES, seed=random.randrange(10**9)))

    illegal = [history for history in seen.histories if explain(history, MODEL) is None]
    assert [sorted(history, key=lambda op: op.began) for history in illegal[:1]] == []
    assert len(seen.histories) == HISTORIES
    # The histories are worth something: calls met crashes, and messages were handed over.
    calls = [op for history in seen.histories for op in history]
    assert len(seen.scene.crashes) >= 2
    assert sum(op.answer is DOUBT for op in calls) >= 5
    takes = [op.answer for op in calls if op.call[0] == "take" and op.answer is not DOUBT]
    assert sum(map(len, takes)) >= HISTORIES // 4

    # And the checker reads them: with the last look at a ticket turned round, none has an explanation any more.
    turned = [broken for history in seen.histories[:100] if (broken := with_a_false_look(history)) is not None]
    assert len(turned) >= 50
    assert [history for history in turned if explain(history, MODEL) is not None] == []


def with_a_false_look(history: list[Op]) -> list[Op] | None:
    """A ticket whose sending was acknowledged is said not to be there."""
    sent = {op.call[1]: op.ended for op in reversed(history) if op.call[0] == "send" and op.answer == "ok"}
    for number, op in enumerate(history):
        looked = op.call[0] == "show" and op.answer not in (DOUBT, "unknown")
        if looked and sent.get(op.call[1], op.began) < op.began:
            return [*history[:number], op._replace(answer="unknown"), *history[number + 1 :]]
    return None


def test_a_daemon_that_forgets_in_a_crash_what_it_acknowledged_is_found_out(start_daemon):
    """The same clients, the same checker, a store that keeps nothing."""
    daemon = start_daemon(None, "--durability", "memory", env=UNHURRIED)
    # A crash takes away only what was acknowledged just before it: on a busy machine that may take some rounds.
    for seed in range(1, 6):
        seen = asyncio.run(run(daemon, 60, seed=seed, forgetful=True))
        assert seen.scene.crashes
        if any(explain(history, MODEL) is None for history in seen.histories):
            return
    pytest.fail("five rounds with crashes, and every history was explained")
