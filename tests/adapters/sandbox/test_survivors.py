"""Nothing of a command is left when its outcome is told, however it tried to get away and however it ended."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from adapters.sandbox.cells import a_space, some_sandboxes
from adapters.sandbox.survivors import children_of, with_word
from bascule.workspace.machine.sandbox.groups import Groups
from descriptors import Descriptors
from faults.lacking import missing_here
from patience import PATIENCE

RUNS = 2_000 if os.environ.get("BASCULE_LONG") else 200
AT_ONCE = 6
# Each starts processes that mean to stay; %s is how long the command itself stays.
FLIGHTS = (
    "sleep 300 & sleep {0}",
    "setsid sleep 300 & sleep {0}",
    "setsid sh -c 'setsid sleep 300 & setsid sleep 300 &' & sleep {0}",
    "(sh -c '(trap \"\" TERM HUP INT; setsid sleep 300 >/dev/null 2>&1 </dev/null &) &' &) & sleep {0}",
    "nohup sh -c 'while :; do sleep 0.01; done' >/dev/null 2>&1 & sleep {0}",
    "/usr/bin/python3 -S -c 'import os, time; os.fork() or os.setsid() or os.fork() or time.sleep(300)' & sleep {0}",
    "echo short; exit 3",
    "kill -9 $$",
    "kill -9 -1; sleep {0}",
    "cat /dev/zero & sleep {0}",
)


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
def test_nothing_survives_timeouts_aborts_and_escapes(tmp_path: Path, kind: str):
    word = f"BSC_MARK={os.urandom(8).hex()}"
    name, value = word.split("=")
    chance = random.Random(5)
    flights = [flight for flight in FLIGHTS if kind == "bubblewrap" or "kill -9 -1" not in flight]
    runs = RUNS if kind == "bubblewrap" else RUNS // 5

    async def one(space) -> None:
        command = chance.choice(flights).format(chance.choice(("0", "0.01", "0.05", "300")))
        how = chance.choice(("timeout", "stop", "end"))
        running = await space.start(
            command, env={name: value}, timeout=chance.uniform(0.001, 0.08) if how == "timeout" else 0.5
        )
        if how == "stop":
            await asyncio.sleep(chance.uniform(0, 0.05))
            running.stop()
        outcome = await running.wait()
        assert outcome.ended_by in ("exit", "timeout", "cancelled"), (command, outcome)

    async def story() -> None:
        waiting = asyncio.Semaphore(AT_ONCE)

        async def in_turn(space) -> None:
            async with waiting:
                await one(space)

        async with a_space(tmp_path, kind=kind) as space:
            async with asyncio.timeout(10 * PATIENCE), asyncio.TaskGroup() as group:
                for _ in range(runs):
                    group.create_task(in_turn(space))
            assert with_word(word) == []

    before, children = Descriptors(), set(children_of(os.getpid()))
    asyncio.run(story())
    # The supervisor closes what is its own when the kernel says that a cell is gone, but for one epoll for all cells.
    wait_for(lambda: all("eventpoll" in name for name in before.left()))
    assert set(children_of(os.getpid())) <= children, "no zombie of ours is left"


def test_a_process_that_leaves_its_group_would_survive_killpg(tmp_path: Path):
    """The control: what is usually done is not enough."""
    word = f"BSC_MARK={os.urandom(8).hex()}"
    name, value = word.split("=")
    shell = subprocess.Popen(
        ["sh", "-c", "setsid sleep 300 & sleep 300"], env={"PATH": os.defpath, name: value}, start_new_session=True
    )
    try:
        # Its own session: it has left.
        wait_for(lambda: any(os.getsid(pid) == pid != shell.pid for pid in with_word(word)))
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        wait_for(lambda: len(with_word(word)) == 1)
    finally:
        for pid in with_word(word):
            os.kill(pid, signal.SIGKILL)


OWNER = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from adapters.sandbox.cells import a_space
async def story():
    async with a_space(Path(sys.argv[2]), kind=sys.argv[3]) as space:
        env = dict([sys.argv[4].split("=")])
        for _ in range(3):
            await space.start("setsid sleep 300 & setsid sh -c 'setsid sleep 300 & sleep 300' & sleep 300",
                              env=env, timeout=None)
        print("running", flush=True)
        await asyncio.sleep(300)
asyncio.run(story())
"""


@pytest.mark.parametrize("kind", ["bubblewrap", "none"])
def test_the_daemons_death_ends_everything(tmp_path: Path, kind: str):
    word = f"BSC_MARK={os.urandom(8).hex()}"
    tests = str(Path(__file__).parents[2])
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), tests, str(tmp_path), kind, word], stdout=subprocess.PIPE
    )
    try:
        assert owner.stdout.readline() == b"running\n"
        wait_for(lambda: len(with_word(word)) >= 12)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    wait_for(lambda: with_word(word) == [])


def test_a_cell_that_is_killed_takes_its_command_with_it(tmp_path: Path):
    word = f"BSC_MARK={os.urandom(8).hex()}"
    name, value = word.split("=")

    async def story():
        async with a_space(tmp_path) as space:
            running = await space.start("setsid sleep 300 & sleep 300", env={name: value})
            await asyncio.to_thread(wait_for, lambda: len(with_word(word)) == 3)
            (cell,) = space.sandbox._cells
            os.kill(cell._child.pid, signal.SIGKILL)
            outcome = await running.wait()
            assert (outcome.exit_code, outcome.ended_by) == (255, "lost")
            assert with_word(word) == []
            assert await space.output_of("echo again") == "again\n"

    asyncio.run(story())


@pytest.mark.parametrize("grouped", [True, False])
def test_without_a_sandbox_a_command_that_kills_its_keeper_leaves_nothing_where_there_are_groups(
    tmp_path: Path, grouped: bool
):
    word = f"BSC_MARK={os.urandom(8).hex()}"
    name, value = word.split("=")
    made = some_sandboxes(tmp_path)
    if not grouped:
        # The control, and what the documentation says of machines without them.
        made._machine = made._found()._replace(groups=Groups({}, 0))
    elif not made._found().groups.kept:
        missing_here("no control groups for us here")

    async def story():
        async with a_space(tmp_path, sandboxes=made, kind="none") as space:
            running = await space.start("setsid sleep 300 & sleep 0.01; kill -9 $PPID; sleep 300", env={name: value})
            outcome = await running.wait()
            assert (outcome.exit_code, outcome.ended_by) == (255, "lost")
            left = with_word(word)
            assert bool(left) is not grouped
            for pid in left:
                os.kill(pid, signal.SIGKILL)

    asyncio.run(story())


def test_closing_a_space_ends_its_background_commands(tmp_path: Path):
    word = f"BSC_MARK={os.urandom(8).hex()}"
    name, value = word.split("=")

    async def story():
        async with a_space(tmp_path) as space:
            background = [await space.start("setsid sleep 300 & sleep 300", env={name: value}, timeout=None)
                          for _ in range(3)]  # fmt: skip
            assert await space.output_of("echo beside them") == "beside them\n"
        assert with_word(word) == []
        assert {(await running.wait()).ended_by for running in background} == {"cancelled"}

    asyncio.run(story())


def wait_for(what) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
