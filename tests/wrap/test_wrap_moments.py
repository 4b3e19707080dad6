"""When something may be typed, when a bell rings again, and what profiles say about both."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bascule.foundation.text import MAX_LINE_CHARS
from bascule.local_client.exits import WrongUsage
from bascule.local_client.turns import note_turn
from bascule.programs.wrap import profiles
from bascule.programs.wrap.profiles import NOTHING_KNOWN, Profile
from bascule.programs.wrap.readiness import STALE_BUSY_SECONDS, Seen, reason_to_wait
from bascule.programs.wrap.ringing import PAUSES, Ringing
from bascule.programs.wrap.turn_state import TurnState

SHELL = Profile("shell", {"ready.quiet_ms": 100, "ready.mode": "raw", "ready.foreground": True})
REPL = Profile("repl", {"ready.quiet_ms": 100, "ready.prompt": "^>>> $"})


def seen(**facts) -> Seen:
    return Seen(**{"now": 1000.0, "typing": False, "last_output": 0.0, **facts})


@pytest.mark.parametrize(
    ("facts", "profile", "reason"),
    [
        ({}, NOTHING_KNOWN, None),
        ({"typing": True}, NOTHING_KNOWN, "the person is typing"),
        ({"typing": True, "turn": "idle"}, NOTHING_KNOWN, "the person is typing"),
        ({"last_output": 999.5}, NOTHING_KNOWN, "the program is writing"),
        ({"last_output": 999.5, "turn": "idle"}, NOTHING_KNOWN, None),
        ({"last_output": 999.9, "turn": "idle"}, NOTHING_KNOWN, "the program is writing"),
        ({"last_output": 990.0, "turn": "busy"}, NOTHING_KNOWN, "the program is in a turn"),
        ({"last_output": 1000.0 - STALE_BUSY_SECONDS, "turn": "busy"}, NOTHING_KNOWN, None),
        ({"elsewhere": True}, NOTHING_KNOWN, "the pane shows something else"),
        ({"cooked": False, "foreground": True}, SHELL, None),
        ({"cooked": True, "foreground": True}, SHELL, "the program does not read a line"),
        ({"cooked": False, "foreground": False}, SHELL, "another program has the terminal"),
        ({"cooked": None, "foreground": None}, SHELL, None),
        ({"line": ">>> "}, REPL, None),
        ({"line": ""}, REPL, "the program shows no prompt"),
        ({"line": "", "turn": "idle"}, REPL, None),
    ],
)
def test_nothing_is_typed_while_there_is_a_reason_to_wait(facts, profile, reason):
    assert reason_to_wait(seen(**facts), profile) == reason


def test_a_bell_rings_again_ever_less_often_until_the_messages_are_fetched():
    ringing = Ringing()
    assert ringing.due_in(0.0) is None
    now, pauses = 0.0, []
    for _ in range(7):
        ringing.ring(now)
        pauses.append(ringing.due_in(now))
        now += pauses[-1]
    assert pauses == [*PAUSES, 300.0, 300.0]
    ringing.fetched()
    assert ringing.due_in(now) is None
    ringing.ring(now)
    assert ringing.due_in(now + 10) == PAUSES[0] - 10


def test_the_profiles_of_this_release_are_found_by_program_type_and_name():
    assert profiles.choose(None, ["/usr/bin/bash"]).name.startswith("bash-")
    assert profiles.choose(None, ["python3.11"]).name.startswith("python-")
    assert profiles.choose(None, ["sh"]).name.startswith("dash-")
    assert profiles.choose(None, ["/opt/weird"], "bash").name.startswith("bash-")
    assert profiles.choose("dash", ["whatever"]).name.startswith("dash-")
    assert profiles.choose(None, ["python3", "-q"]).name.startswith("python-")
    assert profiles.choose(None, ["python3", "agent.py"]) is NOTHING_KNOWN
    assert profiles.choose(None, ["bash", "-c", "codex"]) is NOTHING_KNOWN
    assert profiles.choose(None, ["nobody-knows-it"]) is NOTHING_KNOWN
    with pytest.raises(WrongUsage, match="there is no profile 'vms'"):
        profiles.choose("vms", ["x"])


def test_a_new_program_joins_by_one_file(tmp_path, monkeypatch):
    monkeypatch.setenv("BASCULE_CONFIG_DIR", str(tmp_path))
    (tmp_path / "profiles").mkdir()
    for version in ("0.9", "0.10"):
        (tmp_path / "profiles" / f"parrot-{version}.toml").write_text('[bell]\nline = "SAY {line}"\n')
    profile = profiles.choose(None, ["/opt/bin/parrot"])
    assert profile.name == "parrot-0.10"
    assert profile.bell_line("hello") == "SAY hello"
    # One's own comes before the one that was shipped.
    (tmp_path / "profiles" / "bash-1.0.toml").write_text('type = "mine"\n')
    assert profiles.choose(None, ["bash"]).type == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[bell]\nlin = 'x'", "'bell.lin' is not a field"),
        ("[ready]\nquiet_ms = true", "ready.quiet_ms is True, not a int"),
        ("[ready]\nquiet_ms = 9999999", "it may be 0 to"),
        ("[ready]\nmode = 'sleepy'", 'not "raw" or "cooked"'),
        ("[ready]\nprompt = '['", "is not a pattern"),
        ("[bell]\nline = 'no place'", "does not contain {line}"),
        ("program = [1]", "program is a list of names"),
        ("[enter]\ndelay_ms = 60000", "it may be 0 to 1000"),
        ("= what", "is not TOML"),
        ("# " + "x" * 70_000, "is larger than"),
    ],
)
def test_a_profile_that_cannot_be_meant_is_refused_with_the_reason(tmp_path, text, message):
    path = tmp_path / "odd-1.toml"
    path.write_text(text)
    with pytest.raises(WrongUsage) as refused:
        profiles.read(str(path))
    assert message in refused.value.message


def test_a_bell_is_one_short_line_whatever_is_put_into_it():
    line = SHELL.bell_line("a\r\nb\x1b[201~\x07\tc\u2028d" + "x" * 1000)
    assert len(line) == MAX_LINE_CHARS
    assert line.startswith("a b[201~ cd")
    assert line.isprintable()


def test_a_turn_file_is_never_empty_between_two_words(tmp_path, monkeypatch):
    """The wrapper reads it while a hook writes: an empty file would mean that the program has no hooks."""
    monkeypatch.setenv("BRIDGE_WRAPPED", "Jerry")
    turns = TurnState(str(tmp_path), "Jerry")
    turns.open()
    note_turn(str(tmp_path), "UserPromptSubmit")
    over = threading.Event()

    def flip() -> None:
        for _ in range(2000):
            for event in ("Stop", "UserPromptSubmit"):
                note_turn(str(tmp_path), event)
        over.set()

    words = set()
    with ThreadPoolExecutor(1) as hooks:
        flipped = hooks.submit(flip)
        while not over.is_set():
            words.add(turns.now())
        flipped.result()
    assert words == {"busy", "idle"}
