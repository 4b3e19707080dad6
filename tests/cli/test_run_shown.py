"""A run on a person's terminal: what a command prints may colour it, and nothing else."""

import pytest

from bascule.local_client.exits import REFUSED, UNEXPECTED
from bascule.workspace.cli import live
from bascule.workspace.cli.live import Screen, exit_code, follow, show_event
from bascule.workspace.protocol import (
    ApprovalRequiredEvent,
    CreateFileEvent,
    EditFileEvent,
    ErrorEvent,
    MessageEvent,
    PolicyDeniedEvent,
    ShellEvent,
    StreamedOutput,
)
from patience import PATIENCE

AT = {"timestamp": "2026-01-01T00:00:00.000Z", "operation_id": "op-1"}


def shown(capsys, *pieces, raw=False):
    screen = Screen(raw=raw)
    for piece in pieces:
        screen.write("stdout", piece)
    screen.end()
    return capsys.readouterr().out


def test_colours_pass_and_everything_else_of_a_terminals_language_is_shown(capsys):
    assert shown(capsys, "\x1b[31mred\x1b[0m\n") == "\x1b[31mred\x1b[0m\n"
    # Setting the title, asking for an answer on stdin, clearing the screen, turning text around.
    hostile = "\x1b]0;owned\x07\x1b[6n\x1b[2J\u202etxt\x9b31m"
    out = shown(capsys, hostile)
    assert not any(character in out for character in "\x1b\x07\u202e\x9b")
    assert "⟨ESC⟩]0;owned⟨U+0007⟩" in out


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_colour_that_comes_in_two_pieces_is_one(capsys, cut):
    text = "\x1b[1;31mred"
    assert shown(capsys, text[:cut], text[cut:]) == text


def test_a_sequence_that_never_ends_is_shown_at_the_end(capsys):
    assert shown(capsys, "a\x1b[1") == "a⟨ESC⟩[1"


def test_progress_bars_may_return_to_the_start_of_the_line(capsys):
    assert shown(capsys, "10%\r20%\r\ndone\n") == "10%\r20%\ndone\n"


def test_a_pipe_gets_what_the_command_wrote(capsys):
    assert shown(capsys, "\x1b]0;x\x07", raw=True) == "\x1b]0;x\x07"


def test_a_run_is_shown_to_its_end(capsys):
    items = [
        StreamedOutput(seq=1, kind="stdout", text="out\n"),
        StreamedOutput(seq=2, kind="stderr", text="err\n"),
        StreamedOutput(seq=3, kind="event", event=ShellEvent(**AT, command="x", success=True, exit_code=0)),
        StreamedOutput(seq=4, kind="status", status="completed"),
    ]
    status, events = follow(items, Screen(raw=True), what="the command", verbose=False)
    printed = capsys.readouterr()
    assert (status, len(events)) == ("completed", 1)
    assert (printed.out, printed.err) == ("out\n", "err\n")


def test_a_person_is_told_that_it_is_quiet(monkeypatch):
    import threading

    monkeypatch.setattr(live, "QUIET_SECONDS", 0.01)
    quiet = threading.Event()
    printed = []
    monkeypatch.setattr(live, "say", lambda text: (printed.append(text), quiet.set()))
    with live.SignOfLife("the command", on=True):
        assert quiet.wait(PATIENCE)
    assert "the command: quiet for" in printed[0]


def test_a_person_who_is_waited_for_is_told_so_and_where_to_answer(monkeypatch):
    """Never that it is quiet, as if the command ran."""
    import threading

    waits, runs = threading.Event(), threading.Event()
    printed = []

    def say(text):
        printed.append(text)
        if "approvals show apr_1," in text:
            waits.set()
        if "quiet for" in text:
            runs.set()

    def items():
        asked = ApprovalRequiredEvent(**AT, operation_type="shell", reason="why", details={"approvalId": "apr_1"})
        yield StreamedOutput(seq=1, kind="event", event=asked)
        yield StreamedOutput(seq=2, kind="status", status="awaiting_approval")
        assert waits.wait(PATIENCE), printed
        assert not runs.is_set()
        yield StreamedOutput(seq=3, kind="status", status="running")
        assert runs.wait(PATIENCE), printed
        yield StreamedOutput(seq=4, kind="status", status="completed")

    monkeypatch.setattr(live, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(live, "ASKED_SECONDS", 0.01)
    monkeypatch.setattr(live, "say", say)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert follow(items(), Screen(raw=True), what="the command", verbose=False)[0] == "completed"
    assert printed[-1].startswith("[the command: quiet for")
    waiting = [text for text in printed if "has been waiting for your answer" in text]
    assert waiting
    assert not any("quiet" in text for text in waiting)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            ApprovalRequiredEvent(**AT, operation_type="shell", reason="why", details={"approvalId": "apr_1"}),
            ["asks: why", "bascule approvals show apr_1", "bascule approvals approve apr_1"],
        ),
        (
            PolicyDeniedEvent(**AT, operation_type="shell", reason="no\x1b[2J", suggestion="Remove sudo"),
            ["denied: no⟨ESC⟩[2J; Remove sudo"],
        ),
        (ErrorEvent(**AT, category="system", message="disk full", details={}), ["system error: disk full"]),
        (ShellEvent(**AT, command="x", success=False, timed_out=True, duration_ms=7), ["timed out after 7 ms"]),
        (ShellEvent(**AT, command="x", success=True, sandbox="none"), ["WITHOUT a sandbox"]),
        (ShellEvent(**AT, command="x", success=False, ended_by="memory"), ["ended by memory"]),
        (EditFileEvent(**AT, path="a", success=False, error="closest:\n- x"), ["editFile a: closest:\n- x"]),
    ],
)
def test_what_a_person_must_know_is_always_said(capsys, event, words):
    show_event(event, verbose=False)
    printed = capsys.readouterr().err
    assert all(each in printed for each in words), printed


def test_what_went_well_is_said_when_asked_for(capsys):
    quiet = [MessageEvent(**AT, success=True), CreateFileEvent(**AT, path="a", success=True, bytes_written=1)]
    for event in quiet:
        show_event(event, verbose=False)
    assert capsys.readouterr().err == ""
    for event in quiet:
        show_event(event, verbose=True)
    assert "createFile a: done" in capsys.readouterr().err


def test_the_exit_code_is_the_commands_own_or_says_why_there_is_none():
    assert exit_code(ShellEvent(**AT, command="x", success=False, exit_code=3)) == 3
    assert exit_code(ShellEvent(**AT, command="x", success=False, error="no sandbox")) == 126
    assert exit_code(PolicyDeniedEvent(**AT, operation_type="shell", reason="no")) == REFUSED
    assert exit_code(None) == UNEXPECTED
