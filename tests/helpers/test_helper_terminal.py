"""What is printed cannot act on the terminal; what is piped in is taken whole or refused."""

import io
import os
import sys

import pytest

from bascule.local_client import exits
from bascule.programs.helpers import terminal
from bascule.programs.helpers.logtail import LogTail
from bascule.programs.helpers.seen import KEEP_SECONDS, MAX_PRUNED, handle_of, remember

DANGEROUS = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e"}
DANGEROUS |= set("\u2066\u2067\u2068\u2069")


def test_text_printed_for_a_reader_is_made_visible(capsys):
    terminal.show("a\x1b[2Jb\u202ec\x9b\n\td")
    terminal.say("e\u200b")
    assert capsys.readouterr() == ("a⟨ESC⟩[2Jb⟨U+202E⟩c⟨U+009B⟩\n\td\n", "e⟨U+200B⟩\n")


def test_json_for_programs_holds_no_control_character_at_all(capsys):
    terminal.show_json({"text": "a\x1b\x7f\x9b\u202e"})
    printed = capsys.readouterr().out.rstrip("\n")
    assert not DANGEROUS & set(printed)
    assert "\\u001b" in printed


def test_a_table_lines_up_and_shows_line_breaks(capsys):
    terminal.show_table(("A", "B"), [("x\ny", "1"), ("z", "2")])
    assert capsys.readouterr().out.splitlines() == ["A       B", "x⟨LF⟩y  1", "z       2"]


def piped(monkeypatch, data: bytes):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_text_comes_from_the_argument_or_from_stdin(monkeypatch):
    piped(monkeypatch, b"from a pipe\n")
    assert terminal.text_argument("given") == "given"
    assert terminal.text_argument("-") == "from a pipe"


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", "é".encode() * 600_000, b"x" * 1_048_577])
def test_empty_undecodable_or_too_large_input_is_refused(monkeypatch, data):
    piped(monkeypatch, data)
    with pytest.raises(exits.WrongUsage):
        terminal.text_argument(None)


def test_the_largest_text_is_accepted(monkeypatch):
    piped(monkeypatch, b"x" * 1_048_576)
    assert len(terminal.text_argument(None)) == 1_048_576


def test_a_received_ticket_is_remembered_with_its_handle(state):
    remember(state, "t-1", "Jerry")
    assert handle_of(state, "t-1") == "Jerry"
    assert handle_of(state, "t-2") is None


def test_old_memories_go_and_one_call_does_bounded_work(state):
    for number in range(MAX_PRUNED * 2):
        remember(state, f"t-{number}", "Jerry")
    folder = os.path.join(state, "seen")
    for name in os.listdir(folder):
        os.utime(os.path.join(folder, name), (1, 1))
    remember(state, "new", "Jerry", now=2 + KEEP_SECONDS)
    assert MAX_PRUNED <= len(os.listdir(folder)) <= MAX_PRUNED + 2
    remember(state, "new", "Jerry", now=2 + KEEP_SECONDS)
    remember(state, "new", "Jerry", now=2 + KEEP_SECONDS)
    assert os.listdir(folder) == ["new"]


def test_a_memory_that_cannot_be_written_is_no_error(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    remember(str(blocker), "t-1", "Jerry")
    assert handle_of(str(blocker), "t-1") is None


def test_a_log_is_followed_through_rotation(tmp_path):
    path = tmp_path / "daemon.log"
    path.write_text("1\n2\n3\npar")
    with LogTail(str(path)) as log:
        assert log.last(2) == ["2", "3"]
        with path.open("a") as file:
            file.write("tial\n4\n")
        assert log.new_lines() == ["partial", "4"]
        assert log.new_lines() == []
        with path.open("a") as file:
            file.write("last words\n")
        path.rename(tmp_path / "daemon.log.1")
        path.write_text("5\n")
        assert log.new_lines() == ["last words"]
        assert log.new_lines() == ["5"]
        path.write_text("")
        assert log.new_lines() == []
        with path.open("a") as file:
            file.write("6\n")
        assert log.new_lines() == ["6"]


def test_the_end_of_a_long_log_is_found_without_reading_it_all(tmp_path):
    path = tmp_path / "daemon.log"
    path.write_text("".join(f"{number:099d}\n" for number in range(5000)))
    with LogTail(str(path)) as log:
        assert [int(line) for line in log.last(1000)] == list(range(4000, 5000))
        assert log.last(0) == []


def test_a_log_that_does_not_exist_says_how_to_get_one(tmp_path):
    with pytest.raises(exits.DoorError, match="there is no log"):
        LogTail(str(tmp_path / "none.log"))
