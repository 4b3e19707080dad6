"""kill -9 at every point where it could hurt, and at any moment: nothing that was told is taken back.

Workload, nursery and checker are files of their own beside this one; `plants` shows that the checker sees.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
from checker import Checker
from living import eventually
from nursery import LATE, Forked, Nursery
from plants import PLANTS
from workload import SETTINGS, History, Workload

from bascule.foundation import paths
from bascule.foundation.errors import InvalidRequest
from bascule.testing.failpoints import PLACES, POINTS, arm
from patience import PATIENCE

LONG = bool(os.environ.get("BASCULE_LONG"))
# Each is a daemon that lives and dies, a second or more: with 25 of them the 80 points take less than an hour.
PASSES = 25 if LONG else 1
MOMENTS = 300 if LONG else 3
# Beyond this many passings of one point a crash finds nothing new; it only takes longer to get there.
DEEPEST = 60 if LONG else 5
# So often that work of a fraction of a second meets anchors and checkpoints, too.
CONSTANTS = {"bascule.kernel.journal.ANCHOR_EVERY": 7, "bascule.stores.sqlite.WAL_CHECKPOINT_PAGES": 8}
# The two secrets of a new state directory are written in the same way as tokens, and first.
SECRETS = 2
SHORT_TTL_MS = 100
REST_SOON = {"bascule.stores.sqlite.FOLD_AFTER_SECONDS": 0.1}


@pytest.fixture(scope="module")
def nursery():
    if not hasattr(os, "pidfd_open"):
        # Linux only; elsewhere a daemon that is not our child cannot be watched without polling.
        assert os.environ.get("CI") != "true", "the nursery needs pidfd_open"
        pytest.skip("needs pidfd_open (Linux)")
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def state():
    """Memory, where there is some: SIGKILL takes nothing from the page cache, and power cuts are tested elsewhere."""
    parent = "/dev/shm" if os.path.isdir("/dev/shm") and not LONG else None
    folder = tempfile.mkdtemp(prefix="bsc-", dir=parent)
    yield f"{folder}/s"
    shutil.rmtree(folder, ignore_errors=True)


class Story:
    """Lives and deaths in one state directory, and what their clients remember of all of them."""

    def __init__(self, nursery: Nursery, state: str, chance: random.Random, plant: str | None = None) -> None:
        self._nursery = nursery
        self._state = state
        self._chance = chance
        self._plant = plant
        self._settings = {**SETTINGS}
        self._constants = {**CONSTANTS}
        self.history = History()

    def expire_soon(self) -> None:
        self._settings["ticket_ttl_ms"] = SHORT_TTL_MS

    def live(self, failpoint: str | None = None) -> Forked:
        return Forked(
            self._nursery,
            self._state,
            failpoint=failpoint,
            plant=self._plant,
            constants=self._constants,
            **self._settings,
        )

    def work(self, daemon: Forked, seconds: float) -> bool:
        """Whether it died of it."""
        workload = Workload(self._state, self.history, self._chance)
        return asyncio.run(workload.run(daemon.gone, seconds))

    def die_working(self, failpoint: str) -> None:
        with self.live(failpoint) as daemon:
            if daemon.ready():
                assert self.work(daemon, PATIENCE), f"{failpoint} was never passed"
            assert daemon.wait() == -signal.SIGKILL, daemon.output()

    def die_at_any_moment(self) -> None:
        with self.live() as daemon:
            assert daemon.ready(), daemon.output()
            self.work(daemon, self._chance.uniform(0.01, 0.3))
            daemon.signal(signal.SIGKILL)
            daemon.wait()

    def die_starting(self, failpoint: str) -> None:
        with self.live(failpoint) as daemon:
            # Ready or not: what is behind the last failpoint of a start is a line of Python.
            daemon.ready()
            assert daemon.wait() == -signal.SIGKILL, daemon.output()

    def die_stopping(self, failpoint: str) -> None:
        with self.live(failpoint) as daemon:
            assert daemon.ready(), daemon.output()
            self.work(daemon, self._chance.uniform(0.05, 0.15))
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == -signal.SIGKILL, daemon.output()

    def die_resting(self, failpoint: str) -> None:
        self._constants |= REST_SOON
        with self.live(failpoint) as daemon:
            if daemon.ready():
                self.work(daemon, self._chance.uniform(0.05, 0.15))
            assert daemon.wait() == -signal.SIGKILL, daemon.output()

    def reckon(self) -> list[str]:
        """Start once more, unarmed and with no short leases, and hold it to everything that was told before."""
        checker = Checker(self._state, self.history, tickets_expire="ticket_ttl_ms" in self._settings)
        # No short leases: what is taken here must not be offered again meanwhile.
        with Forked(self._nursery, self._state, plant=self._plant) as daemon:
            assert daemon.ready(), daemon.output()
            asyncio.run(checker.check())
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0, daemon.output()
            assert "Traceback" not in daemon.output()
        return checker.check_stopped()


def test_there_are_at_least_thirty_points_and_each_is_somewhere():
    assert len(POINTS) >= 30
    for target, _ in PLACES.values():
        module, _, path = target.partition(":")
        command = f"import {module} as it; it.{path}"
        exec(command, {})


@pytest.mark.parametrize("number", range(PASSES))
# Effects outside the store need somebody who approves them, a resume needs the person: tests/approval kills there.
@pytest.mark.parametrize("point", [point for point in POINTS if not point.startswith(("effect.", "halt.", "mesh."))])
def test_a_daemon_killed_there_comes_back_and_has_lost_nothing(nursery, state, point, number):
    chance = random.Random(f"{point} {number} {os.environ.get('PYTEST_RANDOMLY_SEED', '')}")
    story = Story(nursery, state, chance)
    phase = point.partition(".")[0]
    match phase:
        case "first":
            story.die_starting(f"{point}@{chance.randint(1, 1 if 'schema' in point else SECRETS)}")
        case "start":
            story.die_at_any_moment()
            # Twice: the way back from a death may be a death, too.
            for _ in range(2):
                story.die_starting(point)
        case "rest":
            story.die_resting(point)
        case "stop":
            story.die_stopping(point)
        case _:
            if point.startswith("ticket.expire"):
                story.expire_soon()
            least = SECRETS + 1 if phase == "token" else 1
            story.die_working(f"{point}@{chance.randint(least, least + DEEPEST)}")
    assert story.reckon() == []


@pytest.mark.parametrize("number", range(MOMENTS))
def test_a_daemon_killed_at_any_moment_again_and_again_has_lost_nothing(nursery, state, number):
    chance = random.Random(f"{number} {os.environ.get('PYTEST_RANDOMLY_SEED', '')}")
    story = Story(nursery, state, chance)
    for _ in range(3):
        story.die_at_any_moment()
        # And while it gets up again, which takes some fifty milliseconds.
        with story.live() as daemon:
            asyncio.run(asyncio.sleep(chance.uniform(0.0, 0.08)))
            daemon.signal(signal.SIGKILL)
            daemon.wait()
    assert story.reckon() == []


def up(state: str, failpoint: str) -> "subprocess.CompletedProcess[str]":
    """`bascule up` as a user types it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("BASCULE_", "BRIDGE_"))}
    env |= {"BASCULE_MCP": "off", "BASCULE_CONFIG_DIR": f"{state}.config", "BASCULE_FAILPOINT": failpoint}
    command = [sys.executable, "-P", "-m", "bascule.cli.start", "up", "--port", "0", "--state-dir", state]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_an_armed_daemon_says_so_on_its_terminal_and_dies_there(state):
    done = up(state, "start.bind:after@2")
    assert done.returncode == -signal.SIGKILL
    assert "failpoint start.bind:after@2 is armed" in done.stderr


def test_the_address_of_a_daemon_is_written_down_before_anybody_is_served_there(state):
    """Else a command that was given this address takes it for somebody else's broker, and shows it no token."""
    assert up(state, "start.listen:after").returncode == -signal.SIGKILL
    with open(paths.lock_file(state), encoding="utf-8") as file:
        assert json.load(file)["doors"]["http"] == paths.http_socket(state)


def test_an_armed_daemon_says_so_in_its_log(nursery, state):
    def entries():
        with open(paths.log_file(state), encoding="utf-8") as file:
            return [line for line in map(json.loads, file) if line["event"] == "failpoint"]

    with Forked(nursery, state, failpoint="stop.log:before") as daemon:
        assert daemon.ready()
        # Lines are written a moment later, and this daemon dies before it would write the rest.
        eventually(entries, "the line is in the log")
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == -signal.SIGKILL
    (entry,) = entries()
    assert (entry["level"], entry["armed"]) == ("warning", "stop.log:before")


def test_a_failpoint_that_does_not_exist_is_refused_with_a_list_of_those_that_do(state):
    done = up(state, "nowhere:after")
    assert done.returncode == 2
    assert "BASCULE_FAILPOINT='nowhere:after' is not a failpoint" in done.stderr
    assert all(point in done.stderr.splitlines()[1] for point in POINTS)
    assert not os.path.exists(state)


@pytest.mark.parametrize("text", ["", "store.commit", "store.commit:later", "store.commit:after@0", "sweep:after@x"])
def test_half_a_failpoint_is_none(text):
    with pytest.raises(InvalidRequest, match="is not a failpoint"):
        arm(text)


def test_an_unarmed_daemon_knows_nothing_of_failpoints():
    program = "import sys, bascule.cli.life, bascule.daemon.lifecycle; sys.exit('bascule.testing' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", program], check=False, timeout=PATIENCE).returncode == 0


# -- the checker itself --

# What is wrong with the daemon, where it is killed, and the word the checker has for it.
BLIND = [
    ("answer_before_it_is_durable", "store.commit:before@12", "send"),
    ("hand_over_before_it_is_durable", "store.commit:before@25", "handed"),
    ("forget_acknowledgements", "store.commit:after@40", "inbox"),
    ("keep_only_the_newest_reply", "store.commit:after@60", "reply"),
    ("take_a_retry_for_new_words", "ticket.replied:after@3", "again"),
    ("leave_out_a_record", "store.commit:after@30", "ledger"),
    ("record_another_story", "store.commit:after@30", "record"),
]
# A planted bug shows only when the crash finds somebody in the middle of the right thing.
TRIES = 10


@pytest.mark.parametrize(("plant", "point", "word"), BLIND, ids=[each[0] for each in BLIND])
def test_the_checker_sees_a_daemon_that_would(nursery, state, plant, point, word):
    seen: set[str] = set()
    for number in range(TRIES):
        story = Story(nursery, f"{state}{number}", random.Random(number), plant)
        story.die_working(point)
        seen |= {complaint.partition(":")[0] for complaint in story.reckon()}
        if word in seen:
            return
    raise AssertionError(f"in {TRIES} crashes it was never seen, only {seen}")


def test_a_forked_daemon_has_nothing_left_to_import(nursery, state):
    """Else each of hundreds imports it again, and that takes longer than all else that they do."""
    with Forked(nursery, state) as daemon:
        assert daemon.ready(), daemon.output()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0, daemon.output()
        assert LATE not in daemon.output()


def test_every_planted_bug_is_looked_for():
    assert {each[0] for each in BLIND} == set(PLANTS)
