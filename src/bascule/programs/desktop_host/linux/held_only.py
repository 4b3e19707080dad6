"""A session of which only held keys and clicks are used (`desktop_trust = "held"`).

What its programs do by themselves, pictures and stop keys stay as they are.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from bascule.desktop.capabilities import Capabilities
from bascule.programs.desktop_host.linux.parts import Hands, Session
from bascule.programs.desktop_host.ports import Halt, IsShown, NotReachable, Onto, Pasted, Window

WHY: Final = 'desktop_trust is "held", and this session only checks where keys and clicks go'
NOTE: Final = (
    f"{WHY}: they are refused. Elements that their own programs press and set still are; "
    'desktop_trust = "checked" allows the rest'
)


class HeldOnly:
    """`session`, less what it does not hold."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.windows = session.windows
        self.pictures = session.pictures
        self.hands: Hands = _HeldHands(session)
        self.stop_keys = session.stop_keys
        self.picture_remedy = session.picture_remedy

    @property
    def capabilities(self) -> Capabilities:
        # Asked for each time: what a session holds is known once it is open.
        can = self._session.capabilities
        for kind in ("keys", "clicks"):
            if getattr(can, kind) == "checked":
                can = msgspec.structs.replace(can, **{kind: "none"})
        return can

    @property
    def notes(self) -> tuple[str, ...]:
        given = self._session.notes
        return given if self.capabilities == self._session.capabilities else (*given, NOTE)

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        await self._session.close()

    async def accessibility_hint(self) -> str | None:
        return await self._session.accessibility_hint()


class _HeldHands:
    def __init__(self, session: Session) -> None:
        self._session = session

    def _that(self, kind: Literal["keys", "clicks"]) -> Hands:
        if getattr(self._session.capabilities, kind) == "checked":
            raise NotReachable(WHY)
        return self._session.hands

    async def click_at(self, x: int, y: int, halt: Halt, onto: Onto, *, button: int = 1, count: int = 1) -> None:
        await self._that("clicks").click_at(x, y, halt, onto, button=button, count=count)

    async def scroll_at(self, x: int, y: int, halt: Halt, onto: Onto, *, direction: str, steps: int) -> None:
        await self._that("clicks").scroll_at(x, y, halt, onto, direction=direction, steps=steps)

    async def drag(self, start: tuple[int, int], end: tuple[int, int], halt: Halt, onto: Onto) -> None:
        await self._that("clicks").drag(start, end, halt, onto)

    async def chord(self, keys: Sequence[str], halt: Halt, window: Window, *, delay: float = 0.0) -> None:
        await self._that("keys").chord(keys, halt, window, delay=delay)

    async def check_keys(self, keys: Sequence[str]) -> None:
        await self._that("keys").check_keys(keys)

    async def paste(self, text: str, halt: Halt, window: Window, is_shown: IsShown | None = None) -> Pasted:
        return await self._that("keys").paste(text, halt, window, is_shown)

    async def release_all(self) -> None:
        await self._session.hands.release_all()
