"""The tutorial is typed word for word, into real terminals, with a daemon of its own."""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE / "tools"))

from cast import PROGRAMS, SHELL, Terminal, environment_of  # noqa: E402 - a tool, found by the line above

PAGE = HERE / "docs" / "quickstart.md"
BLOCK = re.compile(r"^```console( second)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
ID = re.compile(r"\b(?:run|undo|apr)_[0-9a-f]{20}\b")
TIME = re.compile(r"(?:\d\d-\d\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.]+Z)")
VARIES = re.compile(f"({ID.pattern}|{TIME.pattern})")
PASSPHRASE = "correct horse battery"
# What a command asks on its terminal, and what is typed.
ANSWERS = (
    ("New passphrase", PASSPHRASE),
    ("The same again", PASSPHRASE),
    ("Approve?", "y"),
    ("assphrase:", PASSPHRASE),
)
# What a command shows that waits for the other terminal.
WAITS = "  bascule approvals approve "
# Nothing may scroll away, and no line may be cut.
COLUMNS, LINES = 240, 400


class Reader:
    """Types the page's commands and compares what they print with what the page says."""

    def __init__(self, home):
        self._home = home
        self._environment = environment_of(home)
        self._terminals = {}
        # Of the page's ids, those of this run.
        self._ids = {}

    def terminal(self, name):
        if name not in self._terminals:
            place = self._home / "shop" if self._terminals else self._home
            self._terminals[name] = Terminal(SHELL, self._environment, place, COLUMNS, LINES)
        return self._terminals[name]

    def type(self, name, command, expected):
        terminal = self.terminal(name)
        terminal.await_prompt()
        for theirs, ours in self._ids.items():
            command = command.replace(theirs, ours)
        first = terminal.screen.cursor.y + 1
        terminal.enter(command)
        answered = 0
        while not terminal.is_at_prompt:
            rows = terminal.rows()[first:]
            if any(row.startswith(WAITS) for row in rows):
                break
            answers = [answer for row in rows for question, answer in ANSWERS if question in row]
            if len(answers) > answered:
                terminal.answer(answers[answered])
                answered += 1
            else:
                terminal.read()
        self._compare(expected, [row for row in terminal.rows()[first:] if row], command)

    def _compare(self, expected, shown, command):
        """Each line of the page is shown, in this order; `...` stands for any."""
        rest = iter(shown)
        for line in expected:
            if line == "...":
                continue
            pattern = "".join(
                f"({ID.pattern})" if ID.fullmatch(part) else TIME.pattern if TIME.fullmatch(part) else re.escape(part)
                for part in VARIES.split(line)
            )
            found = next((match for row in rest if (match := re.fullmatch(pattern, row))), None)
            assert found, f"`{command}` does not show {line!r}, but {shown}"
            self._ids.update(zip(ID.findall(line), found.groups(), strict=True))

    def close(self):
        for terminal in self._terminals.values():
            terminal.close()
        subprocess.run([PROGRAMS / "bascule", "down"], env=self._environment, check=False, capture_output=True)


@pytest.fixture
def reader():
    # A unix socket's path must be short.
    home = Path(tempfile.mkdtemp(prefix="tut"))
    reader = Reader(home)
    yield reader
    reader.close()
    shutil.rmtree(home)


def blocks(text):
    for second, block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.splitlines()
            yield second.strip() or "first", command, expected


def test_the_tutorial_can_be_typed_word_for_word_and_shows_what_it_says(reader):
    commands = list(blocks(PAGE.read_text("utf-8")))
    assert len(commands) > 20
    assert {name for name, _, _ in commands} == {"first", "second"}
    for name, command, expected in commands:
        reader.type(name, command, expected)


def test_a_page_that_says_what_a_command_does_not_show_is_found(reader):
    ((name, command, expected),) = blocks("```console\n$ echo one; echo two\none\nthree\n```\n")
    with pytest.raises(AssertionError, match="does not show 'three'"):
        reader.type(name, command, expected)
