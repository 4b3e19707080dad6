"""Every profile against the recording it was made from: real programs, as they were shown and typed into.

The models of Codex and Claude Code were replaced by a local program that answers "The answer is 42."; no account was
used.
"""

import asyncio
import json
import os
from pathlib import Path

import pytest

from bascule.programs.wrap import profiles
from bascule.programs.wrap.answers import answer
from bascule.programs.wrap.output import Output
from bascule.programs.wrap.readiness import Seen, reason_to_wait
from bascule.programs.wrap.screen import Transcript

HERE = Path(__file__).parent / "recordings"
RECORDED = sorted(path.stem for path in HERE.glob("*.cast"))
AGENTS = ("codex-0.166", "claude-2.1")


class Replay:
    """A recording, watched as the wrapper would have watched the program."""

    def __init__(self, name):
        head, *events = [json.loads(line) for line in (HERE / f"{name}.cast").read_text("utf-8").splitlines()]
        self.events = [(at, kind, text.encode()) for at, kind, text in events]
        self.profile = profiles.choose(name.removesuffix("-signin"), [head["title"]])
        self.output = Output()
        self.screen = Transcript(head["height"], head["width"])
        self._next = 0

    def until(self, at):
        """Everything shown before this moment; why nothing may be typed then."""
        while self._next < len(self.events) and self.events[self._next][0] < at:
            when, kind, data = self.events[self._next]
            self._next += 1
            if kind == "o":
                self.output.feed(data, when)
                self.screen.put_aside(data)
        row = self.screen.row()
        while self.screen._backlog:
            row = self.screen.row()
        facts = Seen(
            now=at,
            typing=False,
            last_output=self.output.last_output,
            line=self.output.last_line(),
            title=self.output.title,
            cursor=self.output.shows_cursor,
            row=row,
        )
        return reason_to_wait(facts, self.profile)

    @property
    def sent(self):
        """When Enter was pressed."""
        return next(at for at, kind, data in self.events if kind == "i" and data.endswith(b"\r"))

    @property
    def typed(self):
        """When the text came."""
        return next(at for at, kind, data in self.events if kind == "i" and not data.startswith((b"\x1b[?", b"\x1b]")))

    @property
    def answered(self):
        return next(at for at, kind, data in self.events if kind == "o" and at > self.sent and b"42" in data)


def test_there_is_a_recording_for_every_profile_and_a_profile_for_every_recording():
    shipped = {path.removesuffix(".toml") for path in os.listdir(profiles.HERE) if path.endswith(".toml")}
    assert {name.removesuffix("-signin") for name in RECORDED} == shipped


@pytest.mark.parametrize("name", [name for name in RECORDED if not name.endswith("-signin")])
def test_a_program_that_waits_for_a_line_is_ready(name):
    replay = Replay(name)
    assert replay.until(replay.typed) is None


@pytest.mark.parametrize("name", ["dash-0.5", "python-3.11", *AGENTS])
def test_a_program_in_a_turn_is_not_ready_at_any_moment_of_it(name):
    replay = Replay(name)
    if name in AGENTS:
        end = replay.answered
    else:
        end = next(at for at, kind, data in replay.events if kind == "o" and at > replay.sent and b"two\r\n" in data)
    moments = [replay.sent + 0.05 + step / 100 for step in range(int((end - replay.sent) * 100) - 6)]
    assert len(moments) > 50
    assert [round(at, 2) for at in moments if replay.until(at) is None] == []


@pytest.mark.parametrize("name", AGENTS)
def test_a_program_is_ready_after_its_turn_and_its_answer_can_be_read(name):
    replay = Replay(name)
    replay.until(replay.typed)
    before = asyncio.run(replay.screen.lines())
    typed = next(data for at, kind, data in replay.events if at == replay.typed and kind == "i")
    assert replay.until(replay.events[-1][0] + replay.profile.answer_quiet_seconds) is None
    after = asyncio.run(replay.screen.lines())
    text = typed.decode().removeprefix("\x1b[200~").removesuffix("\x1b[201~")
    assert answer(before, after, text, replay.profile).lstrip("•● ") == "The answer is 42."


def test_nothing_is_ever_typed_into_a_menu():
    replay = Replay("codex-0.166-signin")
    assert replay.until(1e6) == "the program shows a menu"
    rows = asyncio.run(replay.screen.lines())
    assert any("1. Sign in with ChatGPT" in row for row in rows)


def test_without_an_emulator_nothing_is_typed_for_programs_that_draw():
    facts = Seen(now=1e6, typing=False, last_output=0.0, title="✳ Claude Code", cursor=True, row=None)
    for name in AGENTS:
        assert reason_to_wait(facts, profiles.choose(name, ["x"])) is not None
