"""Messages typed into programs, answers read from their screens, and requests out of shells without sockets."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lacking import missing_here
from living import eventually

from bascule.client import SyncClient
from bascule.foundation import paths
from bascule.local_client import spool as spool_door
from bascule.local_client.exits import BadAnswer, ConnectionLost, Refusal
from bascule.programs.helpers.hook import WAKE
from bascule.programs.wrap.answers import answer, has_printed
from bascule.programs.wrap.profiles import NOTHING_KNOWN, Profile
from bascule.programs.wrap.ringing import PAUSES
from bascule.programs.wrap.screen import HISTORY_LINES, Transcript
from bascule.programs.wrap.spool import Spool
from bascule.terminals.text import END_PASTE, pasted, typeable
from patience import PATIENCE

BIN = os.path.dirname(sys.executable)
PAYLOAD = ["--deliver", "payload"]

# -- text --


@given(st.text())
def test_nothing_but_text_is_left_of_any_text(text):
    cleaned = typeable(text)
    assert all(letter in "\t\n" or letter.isprintable() or ord(letter) > 0x9F for letter in cleaned)
    # Exactly one end of paste, at the end: what is in the text cannot end it early.
    assert pasted(text).count(END_PASTE) == 1
    assert pasted(text).endswith(END_PASTE)
    assert b"\r" not in pasted(text)


def test_a_forged_end_of_paste_is_text():
    assert typeable("x\x1b[201~\rrm -rf ~\r\n\x9b201~\x7f\x00y") == "x[201~\nrm -rf ~\n201~y"


# -- --deliver payload --


def test_a_message_is_pasted_whole_and_sent_once(typewriter, agents, sender):
    person = typewriter(agents[0], "-p", "-e", options=PAYLOAD)
    ticket = sender.send(agents[0], "first line\nsecond\x1b[201~\rline\x07\n\n").ticket_id
    eventually(lambda: "\r" in "".join(person.typed()), "Enter")
    keys = "".join(person.typed())
    assert keys == (
        "\x1b[200~"
        f"[bascule] message for {agents[0]} from an unnamed program of this user (sender verified): "
        "not from your user\n"
        f"[bascule] ticket: {ticket}\n"
        f'[bascule] reply with: bridge-reply {ticket} "your answer"\n'
        f"{'-' * 40}\n"
        "first line\nsecond[201~\nline"
        "\x1b[201~\r"
    )
    eventually(lambda: sender.ticket(ticket).status == "delivered", "it is acknowledged")


def test_64_kib_with_escapes_arrive_in_one_piece(typewriter, agents, sender):
    person = typewriter(agents[0], "-p", options=PAYLOAD)
    body = "\x1b[31mabcdefghij\x1b[201~ 0123456789\n" * 2200
    sender.send(agents[0], body)
    keys = eventually(lambda: (k := "".join(person.typed())).endswith("\r") and k, "Enter")
    assert keys.count("\x1b") == 2
    assert keys.count("\r") == 1
    assert typeable(body).rstrip() in keys.encode("latin-1").decode()


def test_a_message_too_long_to_type_is_put_into_a_file(typewriter, agents, sender):
    person = typewriter(agents[0], "-p", options=PAYLOAD)
    body = "long " * 60_000
    sender.send(agents[0], body)
    keys = eventually(lambda: (k := "".join(person.typed())).endswith("\r") and k, "Enter")
    assert len(keys) < 1000
    path = keys.partition("it is in ")[2].partition(")")[0]
    assert Path(path).read_text() == body
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_where_pastes_are_not_taken_only_the_bell_is_typed(typewriter, agents, sender):
    person = typewriter(agents[0], "-e", options=PAYLOAD)
    ticket = sender.send(agents[0], "one\nrm -rf ~\n").ticket_id
    eventually(lambda: "\r" in "".join(person.typed()), "the bell")
    keys = "".join(person.typed())
    assert keys.startswith(f"[bascule] 1 unread message for {agents[0]}")
    assert "rm -rf" not in keys
    assert sender.ticket(ticket).status == "pending"


def test_bash_gets_the_payload_alone(wrap, agents, sender):
    person = wrap(agents[0], "bash", "--norc", options=PAYLOAD)
    person.sees(r"^\$")
    sender.send(agents[0], "echo $((6*7))\necho more")
    person.sees(r"^42\nmore\n\$")


# -- --auto-reply --


def test_bash_answers_what_it_is_sent(wrap, agents, sender):
    person = wrap(agents[0], "bash", "--norc", options=[*PAYLOAD, "--auto-reply"], columns=60)
    person.sees(r"^\$")
    assert sender.ask(agents[0], "echo one; sleep 0.2; echo two", timeout=PATIENCE).payload == "one\ntwo"
    reply = sender.ask(
        agents[0], "seq 1 300; echo a line that is so long that the terminal must fold it", timeout=PATIENCE
    )
    lines = reply.payload.split("\n")
    assert lines[:300] == [str(number) for number in range(1, 301)]
    assert reply.metadata == {"status": "completed", "by": "auto-reply"}
    # The screen is not cleared and the next answer is not the last one again.
    assert sender.ask(agents[0], "printf 'no newline'", timeout=PATIENCE).payload.startswith("no newline")


def test_the_python_repl_is_rung_for_where_it_takes_no_pastes(wrap, agents, sender):
    person = wrap(agents[0], sys.executable, "-q", options=[*PAYLOAD, "--auto-reply"], columns=300)
    person.sees("^>>>")
    if b"\x1b[?2004h" in person.shown:
        assert sender.ask(agents[0], "2**64", timeout=PATIENCE).payload == "18446744073709551616"
        return
    sender.send(agents[0], "2**64")
    person.sees(r"^>>> pass  # \[bascule\] 1 unread message")
    person.sees(r"your user\.\n>>>$")
    assert person.lines[-1] == ">>>"


AGENT = r"""
import os, sys, time, tty
tty.setraw(0)
os.write(1, b"\x1b[?2004h\x1b[2J\x1b[H")
def draw(lines):
    os.write(1, b"\x1b[H\x1b[2J" + "\r\n".join(lines + ["", "+------+", "| >    |", "+------+", "? for help"]).encode())
talk = ["welcome"]
draw(talk)
while True:
    data = b""
    while not data.endswith(b"\r"):
        data += os.read(0, 65536)
    text = data[6:-7].decode()
    talk += ["> " + line for line in text.splitlines()]
    for turn in "thinking", "thinking.", "thinking..":
        draw(talk + [turn])
        time.sleep(0.2)
    talk += ["", "The answer is", "  " + text.splitlines()[-1].upper()]
    draw(talk + ["DONE"] if "-s" in sys.argv else talk)
"""


@pytest.mark.parametrize("sentinel", [False, True])
def test_a_program_that_redraws_its_screen_answers_with_what_is_new(wrap, agents, sender, tmp_path, sentinel):
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    profile = tmp_path / "agent-1.toml"
    profile.write_text("[ready]\nquiet_ms = 400\n[answer]\nquiet_ms = 600\nskip = ['^[+|? ].*[+|p]$']\n")
    options = [*PAYLOAD, "--auto-reply", "--profile", str(profile), *(["--sentinel", "DONE"] if sentinel else [])]
    person = wrap(agents[0], sys.executable, str(path), *(["-s"] if sentinel else []), options=options, rows=40)
    person.sees("for help")
    for word in ("first", "second"):
        assert sender.ask(agents[0], word, timeout=PATIENCE).payload == f"The answer is\n  {word.upper()}"


SHELL = Profile("shell", {"answer.prompt": r"^\$ ?$"})


def test_an_answer_is_what_is_new_without_echo_prompt_and_frame():
    before = ["$ old", "old answer", "$"]
    after = ["$ old", "old answer", "$ echo hi there", "hi there", "", "$"]
    assert answer(before, after, "echo hi there", SHELL) == "hi there"
    # Folded by the terminal.
    assert answer(["$"], ["$ echo a lon", "g line", "a long line", "$"], "echo a long line", SHELL) == "a long line"
    # An input box that is drawn again below.
    box = ["┌──┐", "│> │", "└──┘"]
    assert answer(["hello", *box], ["hello", "> ask", "new", *box], "ask", NOTHING_KNOWN) == "new"
    assert answer(["$"], ["$ x", "one", "END two", "$"], "x", SHELL, "END") == "one"
    assert answer(["$"], ["$"], "x", SHELL) == ""
    # Nothing that looks like our text: nothing is cut.
    assert answer(["$"], ["$", "all", "new"], "zzz", NOTHING_KNOWN) == "all\nnew"


def test_where_everything_has_moved_an_answer_begins_after_the_question():
    """A program that fills the screen: what was said to somebody else before is not part of this answer."""
    before = ["> a secret question", "a secret answer", "END", "+--+", "| >|"]
    thinking = ["a secret answer", "END", "> and now?", "...", "| >|"]
    after = ["END", "> and now?", "the answer", "END", "| >|"]
    assert answer(before, after, "and now?", NOTHING_KNOWN, "END") == "the answer"
    assert has_printed(before, after, "and now?", "END")
    assert not has_printed(before, thinking, "and now?", "END")
    # The sentinel stands where the last one stood, or was only asked for.
    assert has_printed(["x", "> 1", "one", "END"], ["x", "> 2", "two", "END"], "2", "END")
    assert not has_printed(["$"], ["$", "> say END", "..."], "say END", "END")


def test_after_thousands_of_lines_only_what_is_new_is_an_answer():
    """A full scrollback drops a line for each new one: nothing is where it was, and all of it looked new."""

    async def story():
        transcript = Transcript(24, 80)
        transcript.put_aside(b"".join(b"old %d\r\n" % number for number in range(2 * HISTORY_LINES)) + b"$ ")
        before = await transcript.fresh()
        transcript.put_aside(b"seq 3\r\n1\r\n2\r\n3\r\n$ ")
        after = await transcript.lines()
        assert answer(before, after, "seq 3", SHELL) == "1\n2\n3"
        assert not transcript.cut
        transcript.put_aside(b"".join(b"%d\r\n" % number for number in range(HISTORY_LINES + 100)))
        await transcript.lines()
        assert transcript.cut
        await transcript.fresh()
        assert not transcript.cut

    asyncio.run(story())


ROWS = st.lists(st.text("ab$ >END", max_size=8), max_size=6)


@given(ROWS, ROWS, st.text("ab$ ", max_size=12))
def test_an_answer_is_made_of_lines_that_are_on_the_screen(before, after, typed):
    found = answer(before, after, typed, SHELL)
    assert [line for line in found.split("\n") if line and line not in {each.rstrip() for each in after}] == []
    assert "END" not in answer(before, after, typed, SHELL, "END")


# -- the spool --


@pytest.fixture
def spool(daemon, agents, tmp_path):
    """A spool with nobody looking after it, and the token of its agent."""
    with SyncClient.connect(daemon.state, agents[0], register=True):
        pass
    made = Spool(daemon.state, agents[0], str(tmp_path))
    yield made, spool_token(daemon, agents[0])
    made.close()


def spool_token(daemon, agent):
    from bascule.local_client import choice

    return choice.stored_token(choice.own_door(daemon.state), agent)


def serve(made):
    """One round of the wrapper."""
    import asyncio

    async def once():
        for name in made._new():
            await made._serve(name)

    asyncio.run(once())


def dropped(made, token, verb="GET", path="/status", *, body=None, at=None, name=None):
    """A request file, and the answer the wrapper gave to it."""
    name = name or os.urandom(16).hex()
    request = {"verb": verb, "path": path, "body": body, "at": time.time() if at is None else at, "seconds": 5}
    folder = os.open(made.path, os.O_RDONLY)
    spool_door.write(folder, name + ".req", spool_door.sealed(token, name, request))
    os.close(folder)
    serve(made)
    path = Path(made.path, name + ".ans")
    if not path.exists():
        return None
    data = path.read_bytes()
    path.unlink()
    return spool_door.unsealed(token, name, data) if data[:1] else None


def test_a_shell_without_sockets_receives_and_replies_through_the_wrapper(wrap, agents, sender):
    if not os.path.exists("/proc/sys/kernel/seccomp"):
        missing_here("no seccomp here")
    sandbox = f"{sys.executable} {Path(__file__).parent.parent / 'helpers' / 'without_sockets.py'} socket"
    person = wrap(agents[0], "bash", "--norc", columns=200)
    person.sees(r"^\$")
    ticket = sender.send(agents[0], "the question").ticket_id
    person.sees("unread message")
    # The control: without the spool there is no way out.
    person.type(f"BRIDGE_SPOOL= {sandbox} {BIN}/bridge-recv; echo code $?\r")
    person.sees("^code 8")
    person.type(f"clear; {sandbox} {BIN}/bridge-recv\r")
    person.sees("the question")
    person.type(f"{sandbox} {BIN}/bridge-reply {ticket} 'the answer'\r")
    assert sender.wait(ticket, timeout=PATIENCE).payload == "the answer"
    person.sees(f"replied to {ticket}")
    person.type("clear; ls -A $BRIDGE_SPOOL | wc -l\r")
    person.sees("^0$")


def test_a_token_file_that_became_unsafe_ends_nothing_but_its_request(spool, daemon, agents):
    """What escapes here ends the group of tasks that the wrapper's bell and heartbeat are in."""
    made, token = spool
    file = Path(paths.token_file(daemon.state, agents[0]))
    file.chmod(0o644)
    assert dropped(made, token) is None
    assert os.listdir(made.path) == []
    file.chmod(0o600)
    # The control.
    assert dropped(made, token)["status"] == 200


def test_the_token_is_never_written_into_the_spool(spool):
    _, token = spool
    name = os.urandom(16).hex()
    assert token.encode() not in spool_door.sealed(token, name, {"verb": "GET"})


def test_requests_are_acted_on_only_with_the_agent_s_token_and_for_the_agent(spool, agents):
    made, token = spool
    assert dropped(made, token)["body"]["principal"] == f"agent:{agents[0]}"
    name = os.urandom(16).hex()
    Path(made.path, name + ".req").write_bytes(
        spool_door.sealed("not-the-token", name, {"verb": "GET", "path": "/status"})
    )
    serve(made)
    answer_ = spool_door.unsealed(token, name, Path(made.path, name + ".ans").read_bytes())
    assert (answer_["status"], answer_["body"]["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/agents/register"),
        ("GET", "/agents/Somebody/inbox"),
        ("POST", "/daemon/stop"),
        ("GET", "/status\r\nX: y"),
        ("DELETE", "/replies"),
        ("GET", "/../status"),
        ("GET", 7),
    ],
)
def test_the_spool_serves_only_the_requests_of_helpers(spool, verb, path):
    made, token = spool
    assert dropped(made, token, verb, path)["status"] == 403


def test_an_old_request_and_a_repeated_one_are_not_acted_on(spool):
    made, token = spool
    assert dropped(made, token, at=time.time() - 3600)["status"] == 409
    name = os.urandom(16).hex()
    assert dropped(made, token, name=name)["status"] == 200
    assert dropped(made, token, name=name) is None


def test_nothing_that_lies_in_the_spool_is_followed(spool, tmp_path):
    made, token = spool
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    secret.chmod(0o600)
    names = [os.urandom(16).hex() for _ in range(4)]
    os.symlink(secret, f"{made.path}/{names[0]}.req")
    os.mkfifo(f"{made.path}/{names[1]}.req")
    os.mkdir(f"{made.path}/{names[2]}.req")
    # The answer's place, taken by a link that leads out.
    os.symlink(secret, f"{made.path}/{names[3]}.ans")
    assert dropped(made, token, name=names[3])["status"] == 200
    assert secret.read_text() == "the secret"
    serve(made)
    assert not [name for name in os.listdir(made.path) if name.endswith(".ans")]
    # The control: plain open() would have written through.
    os.symlink(secret, f"{made.path}/{names[3]}.naive")
    Path(f"{made.path}/{names[3]}.naive").write_text("gone")
    assert secret.read_text() == "gone"


def test_a_request_that_came_within_the_tick_of_our_last_look_is_seen(spool, monkeypatch):
    """The directory's time stands still for a tick of the clock: what was named after the look has the same time."""
    # A tick of an hour: however slow the machine is, the look comes within it.
    monkeypatch.setattr("bascule.programs.wrap.spool.RACY_NS", 3600 * 10**9)
    made, token = spool
    folder = os.open(made.path, os.O_RDONLY)
    assert made._new() == []
    looked = os.fstat(folder)
    name = os.urandom(16).hex()
    spool_door.write(folder, name + ".req", spool_door.sealed(token, name, {"verb": "GET", "path": "/status"}))
    os.utime(folder, ns=(looked.st_atime_ns, looked.st_mtime_ns))
    os.close(folder)
    assert made._new() == [name]


@pytest.mark.parametrize("more", [{"at": 10**400}, {"seconds": 10**400}, {"body": "\ud800"}, {"body": [[]] * 9}])
def test_no_request_ends_the_serving_of_the_others(spool, more):
    made, token = spool
    name = os.urandom(16).hex()
    request = {"verb": "POST", "path": "/replies", "body": None, "at": time.time(), "seconds": 5, **more}
    folder = os.open(made.path, os.O_RDONLY)
    spool_door.write(folder, name + ".req", spool_door.sealed(token, name, request))
    os.close(folder)
    serve(made)
    answered = spool_door.unsealed(token, name, Path(made.path, name + ".ans").read_bytes())
    assert 400 <= answered["status"] < 500


def test_a_long_message_is_put_where_the_spool_is_and_nowhere_else(spool, tmp_path):
    """The agent may put another directory, or a link, in the spool's place."""
    made, _ = spool
    (tmp_path / "elsewhere").mkdir()
    os.rename(made.path, made.path + "-moved")
    os.symlink(tmp_path / "elsewhere", made.path)
    made.put("message.txt", b"long")
    assert os.listdir(tmp_path / "elsewhere") == []
    assert Path(made.path + "-moved", "message.txt").read_bytes() == b"long"


def test_a_refusal_and_a_silence_come_through_as_from_the_daemon(spool, monkeypatch):
    made, token = spool

    def call(path, seconds=5.0):
        import threading

        looking = threading.Timer(0.1, serve, (made,))
        looking.start()
        try:
            return spool_door.call(made.path, "GET", path, None, token=token, seconds=seconds)
        finally:
            looking.join()

    with pytest.raises(Refusal, match="unknown ticket") as refused:
        call("/tickets/nope")
    assert refused.value.exit_code == 5
    with pytest.raises(ConnectionLost, match="did not answer through the spool"):
        spool_door.call(made.path, "GET", "/status", None, token=token, seconds=0.1)
    assert os.listdir(made.path) == []
    monkeypatch.setattr("bascule.programs.wrap.spool.spool.sealed", lambda *_: b"0" * 64 + b"\n{}")
    with pytest.raises(BadAnswer, match="is not bridge-wrap's"):
        call("/status")


# -- what the program's hooks say --


def test_a_turn_that_a_hook_announced_keeps_the_bell_silent(typewriter, agents, daemon, sender):
    busy, idle = agents
    person, other = typewriter(busy), typewriter(idle)

    def hook(agent, event, *, wait=1, **wrapped):
        # `flock` stands in for the client: otherwise that would be pytest, whose `-p` is also that of `claude -p`.
        command = [
            "flock",
            "--shared",
            "/dev/null",
            f"{BIN}/bridge-wait",
            "--state-dir",
            daemon.state,
            "--hook",
            "claude",
        ]
        return subprocess.run(
            [*command, "--event", event, "--wait", str(wait)],
            input=json.dumps({"hook_event_name": event}).encode(),
            env={**os.environ, "BRIDGE_AGENT_ID": agent, **wrapped},
            timeout=PATIENCE + 30,
            check=False,
            capture_output=True,
        ).returncode

    hook(busy, "UserPromptSubmit", BRIDGE_WRAPPED=busy)
    hook(idle, "Stop", BRIDGE_WRAPPED=idle)
    ticket = sender.send(busy, "hello").ticket_id
    sender.send(idle, "hello")
    # The control: between turns, hooks or not, the same message is rung for.
    eventually(lambda: "[bascule] 1 unread" in "".join(other.typed()), "a bell between turns")
    assert "".join(person.typed()) == ""
    # What the hook at the end of a turn does, one after the other: it rings (exit code 2 wakes its agent), ...
    before = time.monotonic()
    assert hook(busy, "Stop", wait=60_000) == WAKE
    assert sender.ticket(ticket).delivery.by == ["claude asyncRewake"]
    # ... and it says that the turn is over.
    assert hook(busy, "Stop", BRIDGE_WRAPPED=busy) == 0
    # Now the wrapper looks, and counts that bell as its own first: one that it typed would be the second, which comes
    # no sooner than half a minute later.
    eventually(lambda: "bridge-wrap" in sender.ticket(ticket).delivery.by, "the wrapper has looked")
    assert "".join(person.typed()) == "" or time.monotonic() - before >= PAUSES[0]
    sender.send(busy, "one more")
    line = f"[bascule] 2 unread messages for {busy}"
    eventually(lambda: line in "".join(person.typed()), "a bell for what no hook rang for")
