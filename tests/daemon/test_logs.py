"""The log: one JSON line per fact, private, bounded, and never in anybody's way."""

import io
import json
import os
import stat

import pytest
from living import Living, eventually, short_dir
from wires import Caller, LinkWire

from bascule.daemon.logs import MAX_QUEUED, DaemonLog, human
from bascule.testing.clock import FakeClock


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "log" / "daemon.log")


def lines(path: str) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_each_fact_is_one_json_line_with_time_level_and_name(path):
    log = DaemonLog(FakeClock(), path=path)
    log("ticket.sent", ticket="t-1", nothing=None, ms=1.23456)
    log("odd", level="warning", text='two\nlines "quoted" \x1b[31m', list=[1, "a"], number=7)
    log.close()
    first, second = lines(path)
    assert {key: first[key] for key in ("level", "event", "ticket", "ms")} == {
        "level": "info",
        "event": "ticket.sent",
        "ticket": "t-1",
        "ms": 1.235,
    }
    assert "nothing" not in first
    assert first["at"].endswith("Z")
    assert second["text"] == 'two\nlines "quoted" \x1b[31m'
    assert (second["list"], second["number"]) == ([1, "a"], 7)


def test_file_and_folder_are_private(path):
    DaemonLog(FakeClock(), path=path).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_a_link_in_place_of_the_file_is_not_followed(path, tmp_path):
    os.mkdir(os.path.dirname(path), 0o700)
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(OSError, match="symbolic links"):
        DaemonLog(FakeClock(), path=path)
    assert not (tmp_path / "elsewhere").exists()


def test_lines_below_the_level_are_not_written(path):
    log = DaemonLog(FakeClock(), path=path, level="warning")
    for level in ("debug", "info", "warning", "error"):
        log("each", level=level)
    log.close()
    assert [line["level"] for line in lines(path)] == ["warning", "error"]


def test_an_exception_is_written_whole(path):
    log = DaemonLog(FakeClock(), path=path)
    try:
        int("no number")
    except ValueError as error:
        log("fault", level="error", error=error)
    log.close()
    (line,) = lines(path)
    assert line["error"].startswith("Traceback")
    assert line["error"].endswith("invalid literal for int() with base 10: 'no number'")


def test_text_that_is_no_unicode_does_not_stop_the_log(path):
    log = DaemonLog(FakeClock(), path=path)
    log("odd", name="half \ud800 a pair")
    log("next")
    log.close()
    assert [line["event"] for line in lines(path)] == ["odd", "next"]


def test_a_value_that_is_no_json_is_shown_as_text(path):
    log = DaemonLog(FakeClock(), path=path)
    log("odd", what=object, nested={"deep": object()}, raw=b"bytes")
    log("next")
    log.close()
    assert [line["event"] for line in lines(path)] == ["odd", "next"]


@pytest.mark.parametrize(
    ("form", "shown"), [("human", ["ticket.sent", "call"]), ("json", ["ticket.sent", "call", "call"]), ("off", [])]
)
def test_the_terminal_shows_what_people_follow_and_programs_get_it_all(path, form, shown):
    terminal = io.StringIO()
    log = DaemonLog(FakeClock(), path=path, terminal=terminal, form=form)
    log("ticket.sent")
    log("call", outcome="ok")
    log("call", level="warning", outcome="internal")
    log.close()
    assert [name for line in terminal.getvalue().splitlines() for name in ("ticket.sent", "call") if name in line] == (
        shown
    )
    assert len(lines(path)) == 3


def test_a_terminal_that_was_closed_does_not_stop_the_file(path):
    terminal = io.StringIO()
    terminal.close()
    log = DaemonLog(FakeClock(), path=path, terminal=terminal)
    log("first")
    log.close()
    assert [line["event"] for line in lines(path)] == ["first"]


def test_on_a_terminal_control_characters_are_shown_and_not_obeyed():
    line = human("2026-01-02T03:04:05.678Z", "info", "agent.seen", {"name": "a\x1b]0;x\x07\n\u202eb"}, colour=False)
    assert line.startswith("03:04:05.678 agent.seen")
    assert line.isprintable()


def test_colours_mark_warnings_only_when_asked_for():
    line = {"at": "2026-01-02T03:04:05.678Z", "level": "warning", "event": "odd", "fields": {}}
    assert human(**line, colour=True).startswith("\x1b[33m")
    assert human(**line, colour=True).endswith("\x1b[0m")
    assert human(**line, colour=False).startswith("WARNING ")


# -- bounds ---------------------------------------------------------------------------------------


def test_a_full_file_becomes_the_older_one_and_there_is_only_one_of_those(path):
    log = DaemonLog(FakeClock(), path=path, max_file_bytes=1_000)
    for number in range(5):
        log("fact", number=number, text="x" * 1_000)
        drained(log)
    log.close()
    assert sorted(os.listdir(os.path.dirname(path))) == ["daemon.log", "daemon.log.1"]
    assert [line["number"] for line in lines(path + ".1") + lines(path)] == [4]
    assert stat.S_IMODE(os.stat(path).st_mode) == stat.S_IMODE(os.stat(path + ".1").st_mode) == 0o600


def drained(log: DaemonLog) -> None:
    eventually(lambda: not log._queue, "the log has taken its lines")


def test_a_file_that_cannot_be_turned_over_is_written_on(path):
    os.makedirs(os.path.join(path + ".1", "in the way"))
    os.chmod(os.path.dirname(path), 0o700)
    log = DaemonLog(FakeClock(), path=path, max_file_bytes=10)
    for number in range(3):
        log("fact", number=number)
        drained(log)
    log.close()
    assert [line["number"] for line in lines(path)] == [0, 1, 2]


def test_lines_that_found_no_room_are_counted(path):
    log = DaemonLog(FakeClock(), path=path)
    # The thread is asleep between two looks; whatever it misses is counted.
    for number in range(MAX_QUEUED * 3):
        log("flood", number=number)
    log.close()
    written = lines(path)
    lost = sum(line["count"] for line in written if line["event"] == "log_lines_lost")
    kept = sum(1 for line in written if line["event"] == "flood")
    assert kept + lost == MAX_QUEUED * 3


# -- what is never in it --------------------------------------------------------------------------


def test_what_agents_say_to_each_other_is_in_no_log_and_no_ledger():
    secret = "the launch code is 0000"
    with short_dir() as folder, Living(f"{folder}/s", log_level="debug") as daemon:
        local = Caller(daemon)
        jerry = local.register("Jerry", metadata={"note": secret})
        ticket = local.send("Jerry", secret, metadata={"note": secret})
        jerry.get("/agents/Jerry/inbox?waitMs=0")
        jerry.post("/replies", {"ticketId": ticket, "payload": {secret: secret}, "metadata": {"note": secret}})
        local.post(f"/tickets/{local.send('Jerry')}/cancel", {"reason": secret})
        local.post("/agents/Jerry/send", {"payload": 1, secret: 1})
        with LinkWire(daemon.link_socket) as link:
            link.hello()
            link.refusal("person.unlock", {"passphrase": secret})
            link.call("person.set", {"passphrase": secret})
            link.refusal("person.unlock", {"passphrase": secret + "!"})
            ledger = json.dumps(link.call("ledger.tail", {"limit": 1_000}))
        assert daemon.stop() == 0
        assert ticket in daemon.log()
        assert secret not in daemon.log() + daemon.terminal() + ledger
