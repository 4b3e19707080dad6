"""What other machines hold of a ledger: what was cut off is found out, also when the ledger has grown past it."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from live_nodes import live_nodes
from living import eventually
from machines import Machine, Machines

from bascule.daemon.composition import SWEEP_EVERY_MS
from bascule.mesh.protocol import MAX_LIVES
from patience import PATIENCE


def talk(pair: Machines, count: int) -> None:
    for _ in range(count):
        pair["laptop"].send("Ada", "Jerry@desk")
    pair.settle()


def held(pair: Machines, machine: Machine) -> list[dict]:
    asked = machine.house.begin("local", "mesh.anchors")
    pair.settle()
    return asked.result()["anchors"]


def missing(machine: Machine, anchors: list[dict]) -> list[int]:
    there = {each["seq"]: each["hash"] for each in machine.house.ledger()}
    return [each["seq"] for each in anchors if there.get(each["seq"]) != each["head"]]


@pytest.mark.req("MESH-TICKET-8")
def test_an_end_that_was_cut_off_is_still_held_when_the_ledger_has_grown_past_it(pair: Machines) -> None:
    laptop = pair["laptop"]
    backup = laptop.snapshot()
    talk(pair, 5)
    (newest,) = held(pair, laptop)
    assert missing(laptop, [newest]) == []
    laptop.restore(backup)
    pair.settle()
    talk(pair, 20)
    anchors = held(pair, laptop)
    # The control: the newest end alone, which is all that was held before, fits.
    assert missing(laptop, anchors[-1:]) == []
    assert anchors[-1]["seq"] > newest["seq"]
    (lost,) = missing(laptop, anchors)
    # The question itself told a newer one.
    assert lost >= newest["seq"]


def test_the_ends_of_lives_that_nothing_was_cut_from_are_all_there(pair: Machines) -> None:
    laptop = pair["laptop"]
    for _ in range(3):
        talk(pair, 2)
        laptop.crash()
        pair.settle()
    anchors = held(pair, laptop)
    assert len(anchors) == 4
    assert missing(laptop, anchors) == []


def test_ends_survive_the_machine_that_holds_them(pair: Machines) -> None:
    laptop = pair["laptop"]
    backup = laptop.snapshot()
    talk(pair, 5)
    laptop.restore(backup)
    pair.settle()
    talk(pair, 20)
    pair.advance(SWEEP_EVERY_MS / 1000 + 1)
    pair.settle()
    pair["desk"].crash()
    pair.settle()
    assert len(missing(laptop, held(pair, laptop))) == 1


@pytest.mark.req("MESH-TICKET-8")
def test_of_many_lives_the_newest_are_held(pair: Machines) -> None:
    laptop = pair["laptop"]
    for _ in range(MAX_LIVES + 3):
        talk(pair, 1)
        laptop.crash()
        pair.settle()
    assert len(held(pair, laptop)) == MAX_LIVES + 1


def test_of_a_machine_with_another_key_nothing_is_held_that_one_before_it_said(pair: Machines) -> None:
    """It was set up anew under the same name: its ledger is another one."""
    laptop, desk = pair["laptop"], pair["desk"]
    talk(pair, 5)
    peers = desk.mesh.state.peers.rows
    peers["laptop"] = peers["laptop"].__class__(seq=500, head="0" * 64, anchor_life=1, anchor_key="another")
    talk(pair, 1)
    assert missing(laptop, held(pair, laptop)) == []


def verify(state: str, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "ledger", "verify", "--state-dir", state, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.req("MESH-TICKET-8")
def test_verify_with_peers_says_that_a_ledger_was_cut_which_is_whole_by_itself(tmp_path) -> None:
    with live_nodes("desk", "laptop") as (desk, laptop):
        code = desk.begin()
        laptop.join(code)
        desk.accept("laptop")
        laptop.await_reachable("desk")
        desk.call("agents.register", agentId="Jerry")

        def send(count: int) -> None:
            tickets = [
                laptop.call("messages.send", agentId="Jerry@desk", payload="hi")["ticketId"] for _ in range(count)
            ]
            for ticket in tickets:
                eventually(
                    lambda ticket=ticket: (
                        laptop.call("tickets.show", ticketId=ticket)["delivery"]["state"] == "arrived"
                    ),
                    f"{ticket} arrives",
                )

        send(1)
        laptop.kill()
        shutil.copytree(laptop.state, tmp_path / "before", ignore=shutil.ignore_patterns("*.sock"))
        laptop.start()
        laptop.await_reachable("desk")
        send(5)
        laptop.kill()
        # Whoever cuts the ledger cuts the anchors beside it as well.
        shutil.rmtree(laptop.state)
        shutil.copytree(tmp_path / "before", laptop.state)
        os.chmod(laptop.state, 0o700)
        laptop.start()
        laptop.await_reachable("desk")
        send(20)
        alone, with_peers = verify(laptop.state), verify(laptop.state, "--peers")
    assert (alone.returncode, alone.stdout.split(":")[0]) == (0, "ok")
    assert with_peers.returncode == 1
    assert "FAULT: desk says that it was told record" in with_peers.stdout


# Of the time that others have to answer.
_SOON = {"bascule.mesh.witnesses.WAIT_MS": 1_000}


def test_verify_with_peers_names_a_machine_that_does_not_answer_and_says_that_it_needs_a_daemon() -> None:
    with live_nodes("desk", "laptop", **_SOON) as (desk, laptop):
        laptop.join(desk.begin())
        desk.accept("laptop")
        desk.await_reachable("laptop")
        laptop.await_reachable("desk")
        answered = verify(desk.state, "--peers")
        assert answered.returncode == 0
        assert " 1 machines, head " in answered.stdout, "the control"
        # One that hangs, and one that has said good-bye.
        laptop.daemon.process.send_signal(signal.SIGSTOP)
        hangs = verify(desk.state, "--peers")
        laptop.daemon.process.send_signal(signal.SIGCONT)
        laptop.stop()
        eventually(lambda: not desk.reaches("laptop"), "desk has heard it")
        gone = verify(desk.state, "--peers")
        desk.stop()
        without_daemon, alone = verify(desk.state, "--peers"), verify(desk.state)
        desk.start()
    for done in (hangs, gone):
        assert (done.returncode, done.stdout.split(":")[0]) == (0, "ok"), done
        assert " 0 machines (laptop did not answer), head " in done.stdout
    assert without_daemon.returncode != 0
    assert "--peers needs a running daemon" in without_daemon.stderr
    assert "bascule up -d" in without_daemon.stderr
    assert alone.returncode == 0, alone
