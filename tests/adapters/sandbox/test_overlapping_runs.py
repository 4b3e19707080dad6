"""Runs in spaces that overlap: with real files, checkpoints and sandboxes, through the gate and a person's answer."""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bascule.kernel.bridge import Bridge, KernelServices, Ports
from bascule.testing.fakes import FakeConnection
from bascule.testing.house import House, Pending
from bascule.testing.machine import NoGitStates, NothingOutside
from bascule.workspace.exclusive import Exclusive, Turns
from bascule.workspace.machine.callers import standing_of
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.machine.sandbox.sandboxes import Sandboxes
from bascule.workspace.machine.scratch import ScratchDirectory
from bascule.workspace.service import Workspace
from faults.lacking import missing_here
from patience import PATIENCE

ADA, BEN = "agent:Ada", "agent:Ben"
GOOD, EVIL = "echo GOOD\n", "echo EVIL\n"
APPROVED = "rm -rf build; : > began; read x < go; sh dir/x.sh"


class RealHouse(House):
    """A house whose workspace is real."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__()

    def _make_workspace(self, kernel: KernelServices, _ports: Ports) -> Bridge:
        ours = self.folder / "ours"
        sandboxes = Sandboxes(str(ours / "sandbox"), log=kernel.log)
        if (problem := sandboxes.problem()) is not None:
            missing_here(problem)
        self.workspace = Workspace(
            store=kernel.store,
            journal=kernel.journal,
            clock=kernel.clock,
            gate=kernel.gate,
            files=WorkspaceFiles((str(ours),)),
            sandboxes=sandboxes,
            checkpoints=GitCheckpoints(str(ours / "checkpoints")),
            scratch=ScratchDirectory(str(ours / "copies")),
            git=NoGitStates(),
            outside=NothingOutside(),
            standing_of=standing_of,
            log=kernel.log,
            key=kernel.key,
            events=kernel.events,
        )
        return self.workspace.bridge()

    def until(self, look: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := look()):
            assert time.monotonic() < deadline, f"never came: {what}"
            time.sleep(0.001)
            self.run(lambda: None)
        return found

    def answer(self, pending: Pending) -> Any:
        self.until(lambda: pending.done, "an answer")
        return pending.result()

    def open(self, who: str, path: Path) -> str:
        found: str = self.answer(self.begin(who, "spaces.open", {"path": str(path)}))["spaceId"]
        return found

    def start(self, who: str, space: str, **operation: Any) -> Pending:
        params = {"spaceId": space, "protocolVersion": "1.0", "operations": [operation]}
        return self.begin(who, "runs.start", params)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[RealHouse]:
    repo = tmp_path / "above" / "repo"
    (repo / "dir").mkdir(parents=True)
    (repo / "dir" / "x.sh").write_text(GOOD)
    os.mkfifo(repo / "go")
    with RealHouse(tmp_path) as made:
        yield made
        assert [fields for event, fields in made.log if event == "fault"] == []


def approved(house: RealHouse) -> Pending:
    """The command of Ada's runs, and waits at its gate before it runs the script."""
    repo = house.folder / "above" / "repo"
    space = house.open(ADA, repo)
    run = house.answer(house.start(ADA, space, type="shell", command=APPROVED))
    event = run["events"][-1]
    assert event["type"] == "approvalRequired", run
    shown = house.call("local", "approvals.show", {"approvalId": event["details"]["approvalId"]})
    assert "dir/x.sh  sha256" in shown["preview"]
    waiting = house.begin(
        "person",
        "runs.resume",
        {
            "spaceId": space,
            "runId": run["runId"],
            "approval": {"operationId": event["operationId"], "decision": "approved"},
        },
        connection=FakeConnection(house.clock),
    )
    house.until((repo / "began").exists, "the approved command")
    return waiting


def release(house: RealHouse) -> int:
    gate = os.open(house.folder / "above" / "repo" / "go", os.O_RDWR | os.O_NONBLOCK)
    os.write(gate, b"\n")
    return gate


def shell(command: str) -> dict[str, Any]:
    return {"type": "shell", "command": command}


WRITE = "printf 'echo EVIL\\n'"
EDIT = {"type": "editFile", "edits": [{"oldContent": "GOOD", "newContent": "EVIL"}]}
WAYS = {
    "a rename from below": ("above/repo/dir", shell(f"{WRITE} > n.sh; mv n.sh x.sh")),
    "a rename from above": ("above", shell(f"{WRITE} > repo/n.sh; mv repo/n.sh repo/dir/x.sh")),
    "the directory moved from above": (
        "above",
        shell(f"mv repo/dir repo/dir2; mkdir repo/dir; {WRITE} > repo/dir/x.sh"),
    ),
    "an edit from below": ("above/repo/dir", {**EDIT, "path": "x.sh"}),
    "an edit from above": ("above", {**EDIT, "path": "repo/dir/x.sh"}),
}
ways = pytest.mark.parametrize(("place", "exchange"), WAYS.values(), ids=list(WAYS))


@ways
def test_an_approved_script_is_exchanged_after_its_command_and_not_before(
    house: RealHouse, place: str, exchange: dict[str, Any]
) -> None:
    waiting = approved(house)
    other = house.open(BEN, house.folder / place)
    evil = house.start(BEN, other, **exchange)
    # Whatever is free to go on goes on: a run of a space elsewhere comes and goes meanwhile.
    (house.folder / "elsewhere").mkdir()
    free = house.open(BEN, house.folder / "elsewhere")
    assert house.answer(house.start(BEN, free, **shell("echo free")))["status"] == "completed"
    gate = release(house)
    run = house.answer(waiting)
    os.close(gate)
    assert run["events"][-1]["stdout"] == "GOOD\n", run
    assert house.answer(evil)["events"][-1]["success"]
    assert (house.folder / "above/repo/dir/x.sh").read_text() == EVIL, "its turn came"


@ways
def test_without_turns_by_directory_each_way_is_at_least_noticed(
    house: RealHouse, place: str, exchange: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a space excludes only itself, as if the exchange were a program's that is not ours."""
    _only_ourselves(monkeypatch)
    waiting = approved(house)
    other = house.open(BEN, house.folder / place)
    assert house.answer(house.start(BEN, other, **exchange))["events"][-1]["success"]
    # It still waits before its script.
    event = house.answer(waiting)["events"][-1]
    assert (event["stdout"], event["endedBy"]) == ("", "exchanged"), event
    assert "another file was put in the place of a script" in json.dumps(event)


@ways
def test_without_any_guard_each_way_runs_what_nobody_was_shown(
    house: RealHouse, place: str, exchange: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of both."""
    _only_ourselves(monkeypatch)
    monkeypatch.setattr("bascule.workspace.machine.sandbox.cell_plan.CellPlan.guarded", property(lambda _: False))
    waiting = approved(house)
    other = house.open(BEN, house.folder / place)
    assert house.answer(house.start(BEN, other, **exchange))["events"][-1]["success"]
    gate = release(house)
    assert house.answer(waiting)["events"][-1]["stdout"] == "EVIL\n"
    os.close(gate)


def _only_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("exclusive", "machine.sandbox.standstill"):
        monkeypatch.setattr(f"bascule.workspace.{place}.overlap", lambda one, other: one == other)


# -- turns


def test_an_undo_waits_for_a_run_of_a_space_above(house: RealHouse) -> None:
    below = house.open(BEN, house.folder / "above/repo/dir")
    run = house.answer(house.start(BEN, below, **EDIT, path="x.sh"))
    above = house.open(ADA, house.folder / "above")
    busy = house.start(ADA, above, **shell("read x < repo/go; cat repo/dir/x.sh"))
    house.until(lambda: house.workspace.processes.running_in(above), "the command above")
    undo = house.begin(BEN, "runs.undo", {"runId": run["runId"]})
    (house.folder / "elsewhere").mkdir()
    free = house.open(BEN, house.folder / "elsewhere")
    house.answer(house.start(BEN, free, **shell("true")))
    gate = release(house)
    assert house.answer(busy)["events"][-1]["stdout"] == EVIL
    os.close(gate)
    house.answer(undo)
    assert (house.folder / "above/repo/dir/x.sh").read_text() == GOOD


def test_turns_are_had_in_the_order_of_asking_by_those_whom_nobody_before_them_excludes() -> None:
    turns = Turns()

    def space(path: str) -> Exclusive:
        return Exclusive(turns, lambda: frozenset({("", path)}), 2)

    above, below, beside = space("/w"), space("/w/repo"), space("/x")
    first, second, third, fourth = below.take(), above.take(), beside.take(), below.take()
    assert [turn.done() for turn in (first, second, third, fourth)] == [True, False, True, False]
    below.give_back()
    assert [turn.done() for turn in (second, fourth)] == [True, False]
    fifth = above.take()
    assert fourth.cancel()
    above.give_back()
    assert fifth.done(), "nobody waits for one that was given up"
    sixth, seventh = below.take(), space("/w/other").take()
    assert not sixth.done()
    assert not seventh.done()
    above.give_back()
    assert sixth.done()
    assert seventh.done(), "two below do not exclude each other"


def test_one_that_gives_up_its_place_lets_those_go_who_waited_for_it_alone() -> None:
    turns = Turns()
    left, right, above = (
        Exclusive(turns, lambda path=path: frozenset({("", path)}), 2) for path in ("/w/a", "/w/b", "/w")
    )
    left.take()
    both = above.take()
    late = right.take()
    assert not late.done()
    both.cancel()
    assert late.done()
