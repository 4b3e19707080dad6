"""Bells for agents in tmux panes that nobody wrapped: `bascule tmux ring`.

An agent that registered with its pane (`bridge-register --pane %0`) is looked after as long as the pane lives: its
connection is held open here, so that it is online with the pane and offline without it, and nothing of this is on
the way of a message. Rung is only where the program in the pane is one that a profile knows, because the claim to a
pane is the agent's own: in a pane with anything else the notice goes to tmux's status line.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from bascule.broker.protocol import InboxWatchResult
from bascule.client.client import Client
from bascule.foundation.errors import BasculeError
from bascule.programs.wrap import profiles
from bascule.programs.wrap.broker_link import BELL, BrokerLink
from bascule.programs.wrap.notifier import Notifier, Rung
from bascule.programs.wrap.profiles import NOTHING_KNOWN, Profile
from bascule.programs.wrap.readiness import Seen, reason_to_wait
from bascule.terminals.tmux import Pane, Tmux, TmuxFailed

# tmux is asked this often what its panes do, in one question for all.
LOOK_SECONDS = 1.0
# Whose agents are in which pane changes rarely.
AGENTS_SECONDS = 3.0
# tmux tells when a key was pressed, not whether a line is begun: a person needs longer than a pause to leave one.
HANDS_OFF_SECONDS = 15.0


class Panes:
    """What tmux showed last."""

    def __init__(self, tmux: Tmux) -> None:
        self.tmux = tmux
        self._panes: dict[str, Pane] = {}

    async def look(self) -> None:
        listed = await asyncio.to_thread(self.tmux.panes)
        self._panes = {pane.id: pane for pane in listed if not pane.dead}

    def get(self, pane_id: str) -> Pane | None:
        return self._panes.get(pane_id)


def seen_in(pane: Pane, *, now: float, last_key: float, line: str) -> Seen:
    return Seen(
        now=now,
        typing=pane.watched and now - last_key < HANDS_OFF_SECONDS,
        # tmux counts whole seconds: the last one may just have begun.
        last_output=pane.activity + 1,
        line=line,
        row=line,
        elsewhere=pane.in_mode,
    )


class PaneBell:
    """One agent's pane."""

    def __init__(
        self, post: BrokerLink, panes: Panes, pane_id: str, type_: str | None, log: Callable[[str], None]
    ) -> None:
        self._post = post
        self._panes = panes
        self._pane_id = pane_id
        self._type = type_
        self._log = log

    async def run(self) -> None:
        await Notifier(self._post, self._obstacle, self._ring, look_seconds=LOOK_SECONDS).run()

    def _profile(self, pane: Pane) -> Profile:
        """Known only if the program that is in the pane now is the one that the profile is about."""
        profile = profiles.choose(None, [pane.command], self._type)
        return profile if pane.command in profile.program else NOTHING_KNOWN

    def _obstacle(self) -> str | None:
        """From what was seen last, a second ago at most; `_ring` looks again before it types."""
        pane = self._panes.get(self._pane_id)
        if pane is None:
            return "the pane is gone"
        return "the program is writing" if time.time() - pane.activity < 1 else None

    async def _ring(self, seen: InboxWatchResult) -> Rung:
        line = self._post.bell_line(seen)
        try:
            how = await asyncio.to_thread(self._ring_now, line)
        except TmuxFailed as fault:
            self._log(f"{self._post.handle}: {fault}")
            return Rung.MISSED
        if how is None:
            return Rung.MISSED
        self._log(f"{self._post.handle}: {how}")
        return Rung.RUNG

    def _ring_now(self, line: str) -> str | None:
        tmux = self._panes.tmux
        pane = next((each for each in tmux.panes() if each.id == self._pane_id and not each.dead), None)
        if pane is None:
            return None
        profile = self._profile(pane)
        if profile is NOTHING_KNOWN:
            tmux.show(pane, line)
            return f"shown in the status line of {pane.session}: no profile knows {pane.command!r}"
        # tmux cuts the spaces at the end of a row; a prompt ends with one.
        at_cursor = tmux.line_at(pane) + " "
        facts = seen_in(pane, now=time.time(), last_key=tmux.last_key(pane), line=at_cursor)
        if reason_to_wait(facts, profile) is not None:
            return None
        tmux.type_line(pane.id, profile.bell_line(line))
        return f"rung in pane {pane.id}"


async def ring_panes(state: str, tmux: Tmux, log: Callable[[str], None]) -> None:
    """Until cancelled: look after every registered pane."""
    panes = Panes(tmux)
    bells: dict[tuple[str, str], asyncio.Task[None]] = {}
    async with Client.connect(state) as client, asyncio.TaskGroup() as group:
        due = 0.0
        wanted: dict[tuple[str, str], str] = {}
        while True:
            try:
                await panes.look()
                if time.monotonic() >= due:
                    wanted = _wanted(await client.agents())
                    due = time.monotonic() + AGENTS_SECONDS
            except (TmuxFailed, BasculeError) as fault:
                log(str(fault))
            for key, type_ in wanted.items():
                if key not in bells and panes.get(key[1]) is not None:
                    bells[key] = group.create_task(_look_after(state, panes, key, type_, log))
            for key, task in list(bells.items()):
                if task.done() or key not in wanted or panes.get(key[1]) is None:
                    task.cancel()
                    del bells[key]
            await asyncio.sleep(LOOK_SECONDS)


def _wanted(agents: list[Any]) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for agent in agents:
        pane = agent.metadata.get("paneId")
        # A wrapped program has its own bell.
        if isinstance(pane, str) and pane.startswith("%") and agent.metadata.get("wrapper") != BELL:
            found[agent.agent_id, pane] = agent.type
    return found


async def _look_after(state: str, panes: Panes, key: tuple[str, str], type_: str, log: Callable[[str], None]) -> None:
    handle, pane_id = key
    post = BrokerLink(state, handle, type_=type_, metadata={})
    try:
        await post.attach()
    except BasculeError as fault:
        log(f"{handle}: {fault.message}")
        # Asked again with the next look; a token that is not here will not come by knocking harder.
        await asyncio.sleep(AGENTS_SECONDS)
        return
    log(f"{handle}: looked after in pane {pane_id}")
    try:
        await PaneBell(post, panes, pane_id, type_, log).run()
    finally:
        log(f"{handle}: pane {pane_id} is left")
        await post.client.close()
