"""The bell: rung in the program, never into a person's line, and again until the messages are fetched."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jumping import run_at_once
from living import eventually

from bascule.broker.protocol import InboxWatchResult, SkipRung
from bascule.client import SyncClient
from bascule.programs.wrap.notifier import HOOK_HEAD_START_SECONDS, LOOK_SECONDS, Notifier, Rung
from bascule.programs.wrap.ringing import Ringing
from patience import PATIENCE

TYPEWRITER = str(Path(__file__).parent / "typewriter.py")
BELL = r"\[bascule\] 1 unread message for"


def presence(client, agent):
    return {each.agent_id: each for each in client.agents()}.get(agent)


def test_the_program_is_an_agent_while_it_lives(wrap, agents, sender):
    person = wrap(agents[0], "dash", options=["--type", "codex"])
    person.sees(r"^\$")
    agent = eventually(lambda: presence(sender, agents[0]), "it is registered")
    assert (agent.type, agent.status, agent.metadata["cwd"]) == ("codex", "online", os.getcwd())
    person.type("exit\r")
    assert person.ends() == 0
    eventually(lambda: presence(sender, agents[0]).status == "offline", "it is offline")


def test_what_it_runs_knows_who_it_is(wrap, agents, daemon, sender):
    person = wrap(agents[0], "bash", "--norc", options=["--ticket", "t-1"])
    person.sees(r"^\$")
    person.type("echo $BRIDGE_AGENT_ID $BRIDGE_TICKET ${#BRIDGE_AGENT_TOKEN} $BASCULE_STATE_DIR\r")
    person.sees(f"^{agents[0]} t-1 43 {daemon.state}")
    ticket = sender.send(agents[0], "what is 6*7?").ticket_id
    person.sees(BELL)
    person.type(
        f"{os.path.dirname(sys.executable)}/bridge-recv && {os.path.dirname(sys.executable)}/bridge-reply {ticket} 42\r"
    )
    assert sender.wait(ticket, timeout=PATIENCE).payload == "42"


def test_a_second_wrapper_of_the_same_name_is_refused(wrap, agents):
    first = wrap(agents[0], "dash")
    first.sees(r"^\$")
    second = wrap(agents[0], "dash")
    assert second.ends() == 6
    assert f"handle {agents[0]} is taken" in "\n".join(second.lines)


def test_the_bell_is_one_line_and_its_enter_comes_by_itself(typewriter, agents, sender):
    person = typewriter(agents[0], "-e")
    sender.send(agents[0], "the secret text\r\nrm -rf ~\x1b[201~")
    person.sees(BELL)
    keys = eventually(lambda: (keys := person.typed()) and keys[-1] == "\r" and keys, "Enter")
    assert keys[-1] == "\r"
    line = "".join(keys[:-1])
    assert line.startswith(f"[bascule] 1 unread message for {agents[0]} from a program of this user: ")
    assert line.isprintable()
    assert "secret" not in line


def test_the_sender_sees_that_the_bell_was_rung(typewriter, agents, sender):
    person = typewriter(agents[0])
    ticket = sender.send(agents[0], "hello").ticket_id
    eventually(lambda: "\r" in person.typed(), "the bell")
    seen = eventually(lambda: (d := sender.ticket(ticket).delivery).by and d, "it is recorded")
    assert (seen.state, seen.by) == ("rung", ["bridge-wrap"])


def test_the_bell_waits_for_a_person_who_is_in_the_middle_of_a_line(typewriter, agents, sender):
    person = typewriter(agents[0])
    person.type("git commit -m 'half a")
    eventually(lambda: "".join(person.typed()).endswith("half a"), "the keys")
    sender.send(agents[0], "hello")
    # Longer than every other reason to wait.
    person.look(2.2)
    assert "".join(person.typed()) == "git commit -m 'half a"
    person.type(" thought'\r")
    eventually(lambda: "[bascule]" in "".join(person.typed()), "the bell after the line")
    assert "".join(person.typed()).startswith("git commit -m 'half a thought'\r[bascule] 1 unread")


def test_the_bell_waits_for_a_program_that_is_busy(wrap, agents, sender, tmp_path):
    person = wrap(agents[0], "bash", "--norc", cwd=str(tmp_path))
    person.sees(r"^\$")
    person.type("sleep 1; cat; echo over\r")
    person.sees("sleep 1")
    sender.send(agents[0], "hello")
    person.look(2.2)
    # Quiet for seconds, and yet not ready: bash is not the one that reads.
    assert "[bascule]" not in "\n".join(person.lines)
    person.type("\x04")
    person.sees(r"over\n\$ # " + BELL)
    assert os.listdir(tmp_path) == []


def test_a_person_s_keys_are_never_lost_or_mixed_with_a_bell(typewriter, agents, sender):
    person = typewriter(agents[0])
    lines = [f"line {number} of what the person types\r" for number in range(40)]
    sent = bells = 0
    for number, line in enumerate(lines):
        for at in range(0, len(line), 5):
            person.type(line[at : at + 5])
        if number % 4 == 0:
            sender.send(agents[0], f"message {number}")
            sent += 1
        if number % 20 == 0:
            # A pause that lets a bell through.
            bells += 1
            eventually(lambda most=bells: "".join(person.typed()).count("[bascule]") >= most, "a bell")
    eventually(lambda: "".join(person.typed()).count("line 39"), "all keys")
    text = "".join(person.typed())
    lines_typed = [line for line in text.split("\r") if line]
    rung = [line for line in lines_typed if line.startswith("[bascule]")]
    assert [line + "\r" for line in lines_typed if line not in rung] == lines
    assert bells <= len(rung) <= sent
    assert all(line.endswith("are not from your user.") for line in rung)


def test_keys_typed_between_the_bell_and_its_enter_come_after_it(typewriter, agents, sender):
    """The program of this test does not echo, so that the gap is as long as it gets."""
    person = typewriter(agents[0])
    sender.send(agents[0], "hello")
    eventually(lambda: any("[bascule]" in keys for keys in person.typed()), "the bell")
    person.type("mine")
    eventually(lambda: "mine" in "".join(person.typed()), "the person's keys")
    assert "".join(person.typed()).endswith("your user.\rmine")


def test_the_end_of_the_program_answers_what_it_had_received(wrap, agents, daemon, sender):
    person = wrap(agents[0], "bash", "--norc")
    person.sees(r"^\$")
    taken = sender.send(agents[0], "answer me").ticket_id
    person.sees(BELL)
    person.type(f"{os.path.dirname(sys.executable)}/bridge-recv --agent {agents[0]}\r")
    person.sees("answer me")
    eventually(lambda: sender.ticket(taken).status == "delivered", "it is received")
    waiting = sender.send(agents[0], "later").ticket_id
    person.type("kill -9 $$\r")
    reply = sender.wait(taken, timeout=PATIENCE)
    assert person.ends() == 137
    assert reply.payload == f"{agents[0]} ended (killed by SIGKILL) before it answered this message"
    assert reply.metadata == {"status": "failed", "reason": "agent ended", "exitCode": 137}
    # What it never saw is for its next life.
    assert sender.ticket(waiting).status == "pending"


def test_the_bell_rings_again_after_a_restart_of_the_daemon(start_daemon, agents, tmp_path):
    from person import Person

    daemon = start_daemon(tmp_path)
    log = tmp_path / "keys"
    words = [sys.executable, "-P", "-m", "bascule.programs.wrap.command", "--state-dir", daemon.state_dir, "--no-start"]
    person = Person([*words, "--agent", "Jerry", "--", sys.executable, TYPEWRITER, str(log)])
    try:
        person.sees("ready>")
        daemon.restart(kill=True)
        with SyncClient.connect(daemon.state_dir) as client:
            eventually(lambda: presence(client, "Jerry").status == "online", "it came back")
            client.send("Jerry", "hello")
            eventually(lambda: "[bascule]" in log.read_text(), "the bell")
    finally:
        person.leave()


# -- ringing again, with a clock that is not a person's --


class FakePost:
    """An inbox with one message in it, until it is fetched."""

    def __init__(self) -> None:
        self.waiting = True
        self.recorded = False
        self.others = False
        self.unread_count = 1

    async def unread(self, *, wait_seconds=0.0, skip=SkipRung.NONE, record=False):
        rung = self.recorded if skip is SkipRung.OWN else self.others and skip is SkipRung.ANY
        if not self.waiting or rung:
            await asyncio.sleep(wait_seconds)
            return None
        self.recorded = self.recorded or record
        return InboxWatchResult(unread=self.unread_count)


def ring(post, *, seconds, obstacle=lambda: None, hooked=lambda: False, happens=()):
    """When it was rung, in the first `seconds` of a clock that nobody waits for; (when, what) happens meanwhile."""
    rung = []

    async def run():
        for when, what in happens:
            asyncio.get_running_loop().call_at(when, what)

        async def ring_once(_seen):
            rung.append(round(asyncio.get_running_loop().time(), 3))
            return Rung.RUNG

        task = asyncio.ensure_future(
            Notifier(post, obstacle, ring_once, hooked=hooked, ringing=Ringing()).run(),
        )
        await asyncio.sleep(seconds)
        task.cancel()

    run_at_once(run())
    return rung


def test_a_message_that_is_not_fetched_is_rung_for_again_with_growing_pauses():
    assert ring(FakePost(), seconds=1_100) == [0, 30, 90, 210, 450, 750, 1_050]


def test_a_message_that_was_fetched_is_not_rung_for_again():
    post = FakePost()

    assert ring(post, seconds=3_600, happens=[(60, lambda: setattr(post, "waiting", False))]) == [0, 30]


def test_a_message_fetched_while_the_moment_was_awaited_is_not_rung_for():
    post = FakePost()
    looks = []

    def obstacle():
        looks.append(1)
        if len(looks) == 2:
            post.waiting = False
        return "busy" if len(looks) < 3 else None

    assert ring(post, seconds=3_600, obstacle=obstacle) == []
    assert len(looks) >= 3


def test_what_comes_while_the_line_is_typed_is_rung_for_at_the_next_moment():
    """The bell records what waits after it rang: without a second line nobody had heard of the second message."""
    post = FakePost()

    def obstacle():
        # Between the look at the inbox and the line.
        post.unread_count = 2

    assert ring(post, seconds=20, obstacle=obstacle) == [0, 0]


def test_where_a_hook_rings_the_wrapper_is_second():
    post = FakePost()
    post.others = True
    assert ring(post, seconds=40, hooked=lambda: True) == [HOOK_HEAD_START_SECONDS + 30]
    # The control: hooks that did not ring.
    assert ring(FakePost(), seconds=20, hooked=lambda: True) == [HOOK_HEAD_START_SECONDS]


def test_a_hook_has_its_head_start_at_the_end_of_a_turn_too():
    """It says that the turn is over, and rings a moment later: a look between the two must not ring as well."""

    def story(*happens):
        turn_is_over_at = 60
        return ring(
            post,
            seconds=turn_is_over_at + 20,
            obstacle=lambda: "in a turn" if asyncio.get_running_loop().time() < turn_is_over_at else None,
            hooked=lambda: True,
            happens=happens,
        )

    post = FakePost()
    assert story((60.5, lambda: setattr(post, "others", True))) == []
    # The control: a hook that does not ring.
    post = FakePost()
    (rung,) = story()
    assert rung == pytest.approx(60 + HOOK_HEAD_START_SECONDS, abs=LOOK_SECONDS)


def test_a_flood_of_output_is_passed_on_without_a_dam(daemon, agents, record_property):
    words = [sys.executable, "-P", "-m", "bascule.programs.wrap.command", "--state-dir", daemon.state, "--no-start"]
    flood = "yes | head -c 10000000"
    begun = time.perf_counter()
    done = subprocess.run(
        [*words, "--agent", agents[0], "--", "sh", "-c", flood],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    record_property("seconds", round(time.perf_counter() - begun, 2))
    assert len(done.stdout) == 10_000_000


# -- beside others who act as the same agent --


def test_the_mcp_server_of_a_wrapped_program_is_the_same_agent(wrap, agents, daemon, sender):
    """`bascule mcp` takes a name of its own when the handle is in use; not when its own wrapper uses it."""
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
    words = f"{os.path.dirname(sys.executable)}/bascule mcp --no-start"
    person = wrap(agents[0], "bash", "--norc", columns=200)
    person.sees(r"^\$")
    # Once as the wrapper's own, and as a control without what the wrapper says.
    for setting, name in (("", agents[0]), ("BRIDGE_WRAPPED=", f"{agents[0]}-2")):
        line = json.dumps(opening)
        person.type(f"clear; (echo '{line}'; sleep 1.5) | {setting} {words} | grep -o 'agent `[^`]*`'\r")
        person.sees(f"^agent `{name}`")


def test_a_wrapped_program_shares_the_queue_of_its_group(typewriter, agents, sender):
    group = f"group-{agents[0]}"
    person = typewriter(agents[0], options=["--group", group])
    ticket = sender.send(group, "whoever is free").ticket_id
    eventually(lambda: "[bascule] 1 unread message" in "".join(person.typed()), "the bell")
    assert (sender.ticket(ticket).target_agent, sender.ticket(ticket).group) == (agents[0], group)
