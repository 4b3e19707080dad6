"""Commands that take all they can get are contained and named, and the loop goes on meanwhile."""

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest

from adapters.sandbox.cells import a_space
from bascule.workspace.machine.sandbox.groups import Groups, find_groups
from bascule.workspace.machine.sandbox.limits import MIB, SandboxLimits
from bascule.workspace.machine.sandbox.sandboxes import Sandboxes
from faults.lacking import missing_here

# A loop that reads a bomb in one go would stand for seconds.
MOST_LAG = 1.0
SMALL = SandboxLimits(
    memory_bytes=256 * MIB,
    processes=64,
    cpu_seconds=20,
    disk_bytes=48 * MIB,
    file_bytes=32 * MIB,
    spool_bytes=2 * MIB,
    shm_bytes=16 * MIB,
)
BIG = 1_000_000_000


async def lag_beside(work) -> tuple[object, float]:
    """What comes of it, and the longest that the loop worked without a pause, in CPU time."""
    worst, task = 0.0, asyncio.ensure_future(work)
    while not task.done():
        before = time.thread_time()
        await asyncio.sleep(0.005)
        worst = max(worst, time.thread_time() - before)
    return await task, worst


@pytest.fixture(params=["groups", "rlimits"])
def sandboxes(request: pytest.FixtureRequest, tmp_path: Path) -> Sandboxes:
    """Once with what the kernel's groups offer here, once as where there are none."""
    made = Sandboxes(str(tmp_path / "ours"), log=lambda *_, **__: None, limits=SMALL)
    if request.param == "rlimits":
        made._machine = made._found()._replace(groups=Groups({}, 0))
    elif not find_groups(SMALL).kept:
        missing_here("no control groups for us here")
    return made


MEMORY = '/usr/bin/python3 -S -c "b=[]\nwhile 1: b.append(bytearray(1<<24))"'
FORKS = "bomb() { bomb | bomb & }; bomb; sleep 300"
FORKS_THAT_STAY = """/usr/bin/python3 -S -c 'import os, time
while 1:
  try: os.fork() or time.sleep(300)
  except OSError: time.sleep(300)'"""


def test_a_memory_bomb_is_ended_and_named(tmp_path: Path, sandboxes: Sandboxes):
    async def story():
        async with a_space(tmp_path, sandboxes=sandboxes, limits=SMALL) as space:
            outcome, lag = await lag_beside(space.run(MEMORY))
            assert outcome.exit_code != 0
            if "memory" in sandboxes._found().groups.kept:
                assert outcome.ended_by == "memory"
                assert "limit of 256 MiB of memory" in outcome.note
            else:
                assert "MemoryError" in outcome.stderr.text
            assert lag < MOST_LAG
            assert await space.output_of("echo fine") == "fine\n"

    asyncio.run(story())


@pytest.mark.parametrize("bomb", [FORKS, FORKS_THAT_STAY], ids=["breeding", "staying"])
def test_a_fork_bomb_is_contained(outside: Path, sandboxes: Sandboxes, bomb: str):
    async def story():
        # RLIMIT_NPROC does not count root's processes: there the workspace is somebody's.
        owner = 65534 if os.getuid() == 0 else None
        async with a_space(outside, sandboxes=sandboxes, limits=SMALL, owner=owner) as space:
            outcome, lag = await lag_beside(space.run(bomb, timeout=1.5))
            # The last: the shell itself found no room for its own last command, and what it had begun ended with it.
            ends = (("processes", None), ("timeout", None), ("cpu", None), ("exit", 2))
            assert (outcome.ended_by, outcome.exit_code if outcome.ended_by == "exit" else None) in ends
            if "pids" in sandboxes._found().groups.kept:
                assert "limit of 64 processes" in outcome.note
            assert lag < MOST_LAG
            # The spawner, the shell, and what it asks with.
            assert int(await space.output_of("ls -d /proc/[0-9]* | wc -l")) <= 4

    asyncio.run(story())


def test_a_root_fork_bomb_is_ended_even_where_the_kernel_does_not_count(tmp_path: Path):
    made = Sandboxes(str(tmp_path / "ours"), log=lambda *_, **__: None, limits=SMALL)
    made._machine = made._found()._replace(groups=Groups({}, 0))

    async def story():
        async with a_space(tmp_path, sandboxes=made, limits=SMALL) as space:
            many = "for i in $(seq 200); do sleep 300 & done; wait"
            outcome = await space.run(many)
            assert outcome.exit_code != 0
            assert os.getuid() != 0 or outcome.ended_by == "processes"

    asyncio.run(story())


def test_one_file_and_all_files_have_their_limits(tmp_path: Path, sandboxes: Sandboxes):
    async def story():
        async with a_space(tmp_path, sandboxes=sandboxes, limits=SMALL) as space:
            one = await space.run("exec head -c 100000000 /dev/zero > large")
            assert (one.exit_code, one.ended_by) == (153, "disk")
            assert (space.path / "large").stat().st_size == 32 * MIB
            many = "i=0; while :; do i=$((i+1)); head -c 8000000 /dev/zero > f$i; sync f$i; done"
            outcome, lag = await lag_beside(space.run(many))
            assert outcome.ended_by == "disk", outcome
            assert "it wrote too much" in outcome.note
            assert lag < MOST_LAG
            memory = await space.run("head -c 100000000 /dev/zero > /dev/shm/x")
            assert memory.exit_code != 0

    asyncio.run(story())


def test_processor_time_is_counted_over_the_whole_tree(tmp_path: Path):
    async def story():
        async with a_space(tmp_path, limits=msgspec.structs.replace(SMALL, cpu_seconds=1)) as space:
            # No process of it lives long enough to be noticed by itself.
            spin = "while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done"
            outcome = await space.run(spin)
            assert (outcome.ended_by, outcome.exit_code) == ("cpu", 137)
            assert "more than 1 seconds of processor time" in outcome.note

    asyncio.run(story())


def test_a_gigabyte_of_output_neither_fills_memory_nor_stops_the_loop(tmp_path: Path):
    async def story():
        async with a_space(tmp_path, limits=SMALL) as space:
            received = 0

            def receive(_: str, data: bytes) -> None:
                nonlocal received
                received += len(data)

            before = resident()
            outcome, lag = await lag_beside(space.run(f"yes | head -c {BIG}", on_output=receive))
            assert (outcome.exit_code, outcome.stdout.size, received) == (0, BIG, BIG)
            assert outcome.stdout.truncated
            assert len(outcome.stdout.text) < SMALL.shown_bytes + 200
            assert resident() - before < 64 * MIB
            assert lag < MOST_LAG
            page = space.sandboxes.logs(space.process_id, "stdout", 0, 10)
            assert (page.data, page.size, page.dropped) == (b"y\n" * 5, 2 * MIB, BIG - 2 * MIB)

    asyncio.run(story())


def resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
