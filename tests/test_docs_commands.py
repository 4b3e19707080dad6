"""Every command that a page for users shows is one: its words are taken by the program's own parser."""

import contextlib
import io
import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from bascule.cli.main import build_parser

HERE = Path(__file__).resolve().parent.parent
PAGES = [HERE / "README.md", HERE / "SECURITY.md", *sorted((HERE / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?:console|sh)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?bascule .*")
# In a sentence, a whole command between backticks. What has a word in capitals stands for something else.
IN_TEXT = re.compile(r"`(bascule (?:undo|redo|log|show|blame|off|on|runs|doctor)\b[^`\n]*)`")
# What went, in whatever words: only the decisions say what to type instead.
GONE = re.compile(r"--last-undo|bascule undo last|bascule runs undo")
# In a sentence a command may be named without what it needs.
UNFINISHED = "the following arguments are required"


def commands(text):
    in_blocks = [line for block in BLOCK.findall(text) for line in block.splitlines() if TYPED.match(line)]
    shown = [re.sub(r"^(?:\$ )?(?:\.venv/bin/)?", "", line) for line in in_blocks] + IN_TEXT.findall(text)
    return [each for each in shown if not GONE.search(each)]


def refusal(command):
    """What the parser says of it; nothing when it takes the words."""
    reader = shlex.shlex(re.sub(r"\$\([^)]*\)", "", command), posix=True, punctuation_chars="&")
    reader.whitespace_split = True
    # Of what a shell puts together, the first command.
    words = list(takewhile(lambda word: word != "&&", reader))[1:]
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written), contextlib.redirect_stdout(io.StringIO()):
            build_parser().parse_args(words)
    except SystemExit as ended:
        return written.getvalue() if ended.code else None
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_shows_is_taken_by_its_program(page):
    refused = {each: refusal(each) for each in commands(page.read_text("utf-8"))}
    assert {each: why for each, why in refused.items() if why and UNFINISHED not in why} == {}


def test_a_command_that_is_gone_is_found():
    shown = commands(
        "```console\n$ bascule undo --nothing   # a comment\n```\nas `bascule log -n many` does, or `bascule off`\n"
    )
    assert shown == ["bascule undo --nothing   # a comment", "bascule log -n many", "bascule off"]
    assert [bool(refusal(each)) for each in shown] == [True, True, False]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "decisions.md"], ids=lambda page: page.name)
def test_no_page_speaks_of_an_undo_that_went(page):
    assert GONE.findall(page.read_text("utf-8")) == []
