"""A script that a person approved, and commands of spaces that lie above or below the one where it runs."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.sandbox.cells import Space, a_space, some_sandboxes
from adapters.sandbox.test_private import EVIL, GOOD, digest
from bascule.workspace.machine.files.extents import extent_of
from bascule.workspace.machine.sandbox.sandboxes import Sandboxes
from bascule.workspace.ports import Outcome, RunningCommand, SandboxFault, overlap
from patience import PATIENCE

# The space of the script is `above/repo`. Each is a way to exchange `dir/x.sh` from another space.
WAYS = {
    "a rename from below": ("above/repo/dir", "printf 'echo evil\\n' > n.sh; mv n.sh x.sh"),
    "a rename from above": ("above", "printf 'echo evil\\n' > repo/n.sh; mv repo/n.sh repo/dir/x.sh"),
    "its directory moved from above": (
        "above",
        "mv repo/dir repo/dir2; mkdir repo/dir; printf 'echo evil\\n' > repo/dir/x.sh",
    ),
    "a rename from a space beside it": ("above/repo", "printf 'echo evil\\n' > n.sh; mv n.sh dir/x.sh"),
}
ways = pytest.mark.parametrize(("place", "exchange"), WAYS.values(), ids=list(WAYS))
APPROVED = {"sealed": {"dir/x.sh": digest(GOOD)}}
WAITS = "echo began; read x < go; sh dir/x.sh"


@contextlib.asynccontextmanager
async def two_spaces(outside: Path, place: str, *, apart: bool = False) -> AsyncIterator[tuple[Space, Space]]:
    """The one of the script, and another. `apart`: as if the other were a program that is not ours to stop."""
    repo = outside / "above" / "repo"
    (repo / "dir").mkdir(parents=True)
    (repo / "dir" / "x.sh").write_text(GOOD)
    os.mkfifo(repo / "go")
    ours = some_sandboxes(outside)
    theirs = some_sandboxes(outside / "apart") if apart else ours
    async with a_space(outside, "above/repo", sandboxes=ours) as one, another(outside, place, theirs) as other:
        yield one, other


def another(outside: Path, place: str, sandboxes: Sandboxes) -> contextlib.AbstractAsyncContextManager[Space]:
    return a_space(outside, place, sandboxes=sandboxes)


async def begun(space: Space, command: str, **more: object) -> RunningCommand:
    """Once it has said something."""
    spoke = asyncio.Event()
    running = await space.start(command, on_output=lambda *_: spoke.set(), **more)
    async with asyncio.timeout(PATIENCE):
        await spoke.wait()
    return running


async def release(space: Space, running: RunningCommand) -> Outcome:
    """It waits for this word before it runs the script."""
    with contextlib.suppress(OSError):
        gate = await asyncio.to_thread(os.open, space.path / "go", os.O_RDWR | os.O_NONBLOCK)
        os.write(gate, b"\n")
        outcome = await running.wait()
        os.close(gate)
        return outcome
    raise AssertionError("nobody waits")


@ways
def test_commands_of_overlapping_spaces_wait_until_an_approved_one_has_ended(outside: Path, place: str, exchange: str):
    async def story():
        async with two_spaces(outside, place) as (one, other):
            running = await begun(one, WAITS, **APPROVED)
            evil = asyncio.ensure_future(other.run(exchange))
            # It would have happened by then: a command elsewhere comes and goes meanwhile.
            async with a_space(outside, "elsewhere", sandboxes=one.sandboxes) as third:
                assert await third.output_of("echo free") == "free\n"
            outcome = await release(one, running)
            assert outcome.stdout.text == "began\ngood\n", outcome
            assert (await evil).exit_code == 0
            assert (one.path / "dir" / "x.sh").read_text() == EVIL, "afterwards it is done"

    asyncio.run(story())


@ways
def test_a_command_whose_script_is_exchanged_by_somebody_out_of_reach_is_ended(
    outside: Path, place: str, exchange: str
):
    async def story():
        async with two_spaces(outside, place, apart=True) as (one, other):
            running = await begun(one, WAITS, **APPROVED)
            await other.output_of(exchange)
            # Before it comes to its script: it waits, and nobody releases it.
            outcome = await running.wait()
            assert (outcome.stdout.text, outcome.ended_by) == ("began\n", "exchanged"), outcome
            assert "another file was put in the place of a script that was approved" in (outcome.note or "")

    asyncio.run(story())


@ways
def test_where_nobody_waits_and_nobody_looks_each_way_runs_the_other_script(outside: Path, place: str, exchange: str):
    """The control: a command in the background excludes nobody, and goes on when its script is exchanged."""

    async def story():
        async with two_spaces(outside, place, apart=True) as (one, other):
            running = await begun(one, WAITS, **APPROVED, timeout=None)
            await other.output_of(exchange)
            outcome = await release(one, running)
            assert outcome.stdout.text == "began\nevil\n", outcome

    asyncio.run(story())


def test_a_directory_that_was_moved_away_and_back_is_named(outside: Path):
    async def story():
        async with two_spaces(outside, "above", apart=True) as (one, other):
            running = await begun(one, WAITS, **APPROVED)
            await other.output_of("mv repo/dir repo/dir2; mv repo/dir2 repo/dir")
            outcome = await release(one, running)
            assert outcome.stdout.text == "began\ngood\n"
            assert "moved or made anew while the command ran" in (outcome.note or "")
            again = await begun(one, WAITS, **APPROVED)
            await other.output_of("mkdir repo/other; echo x > repo/other/x.sh; echo x > repo/dir/y.sh")
            assert (await release(one, again)).note is None, "what lies beside it is nobody's business"

    asyncio.run(story())


MOVER = """
while :; do
    mv repo/dir repo/dir2; mkdir repo/dir; printf 'echo evil\\n' > repo/dir/x.sh
    rm -r repo/dir; mv repo/dir2 repo/dir; echo back
done
"""
# Of this many runs each must have met a script that was there and the one that was approved.
RUNS = 5


def test_a_background_command_of_a_space_above_stands_still_meanwhile(outside: Path):
    async def story():
        async with two_spaces(outside, "above") as (one, other):
            back = asyncio.Event()
            mover = await other.start(MOVER, timeout=None, on_output=lambda *_: back.set())
            shown: list[str] = []
            async with asyncio.timeout(PATIENCE):
                while len(shown) < RUNS:
                    back.clear()
                    # It goes on when the run has ended.
                    await back.wait()
                    # Often the script is not there, or is another: nothing runs then.
                    with contextlib.suppress(SandboxFault):
                        shown.append((await one.run("sh dir/x.sh; cat dir/x.sh | sh", **APPROVED)).stdout.text)
            assert set(shown) == {"good\ngood\n"}
            mover.stop()
            await mover.wait()

    asyncio.run(story())


# Stopped like every other, it has the kernel wake it: when a name is made in that directory.
SLEEPLESS = """
import fcntl, os, signal
watched = os.open("repo", os.O_RDONLY)
fcntl.fcntl(watched, fcntl.F_SETSIG, signal.SIGCONT)
fcntl.fcntl(watched, fcntl.F_NOTIFY, fcntl.DN_CREATE | fcntl.DN_MULTISHOT)
print("ready", flush=True)
while not os.path.exists("repo/began"):
    pass
os.rename("n.sh", "repo/dir/x.sh")
"""


def test_a_process_that_does_not_stay_stopped_cannot_exchange_the_script_unseen(outside: Path):
    async def story():
        async with two_spaces(outside, "above") as (one, other):
            (other.path / "n.sh").write_text(EVIL)
            (other.path / "sleepless.py").write_text(SLEEPLESS)
            sleepless = await begun(other, "exec python3 sleepless.py", timeout=None)
            running = await one.start(": > began; read x < go; sh dir/x.sh", **APPROVED)
            outcome = await running.wait()
            assert (outcome.stdout.text, outcome.ended_by) == ("", "exchanged"), outcome
            sleepless.stop()
            await sleepless.wait()

    asyncio.run(story())


# -- which directories overlap


def test_directories_overlap_by_what_they_are_and_not_by_their_names(outside: Path):
    for place in ("a/b/c", "a/bb", "z"):
        (outside / place).mkdir(parents=True)
    (outside / "link").symlink_to("a/b")
    opened = {place: os.open(outside / place, os.O_RDONLY) for place in ("a", "a/b", "a/b/c", "a/bb", "z", "link")}
    extents = {place: extent_of(descriptor, place) for place, descriptor in opened.items()}
    pairs = {(one, other) for one in extents for other in extents if overlap(extents[one], extents[other])}
    inside = {("a", "a/b"), ("a", "a/b/c"), ("a/b", "a/b/c"), ("a", "a/bb")}
    inside |= {("link", "a/b"), ("link", "a/b/c"), ("link", "a")}
    assert pairs == {*inside, *((other, one) for one, other in inside), *((each, each) for each in extents)}
    os.rename(outside / "z", outside / "a" / "z")
    assert overlap(extent_of(opened["z"], "z"), extents["a"]), "it lies there now"
    for descriptor in opened.values():
        os.close(descriptor)


MOUNTED = """
import os, sys
from bascule.workspace.machine.files.extents import extent_of
from bascule.workspace.ports import overlap
one, other = (extent_of(os.open(path, os.O_RDONLY), path) for path in sys.argv[1:])
print(overlap(one, other))
"""


@pytest.mark.parametrize(
    ("mount", "one", "other", "expected"),
    [
        ("a/b m", "m", "a", "True"),
        ("a/b m", "m/c", "a", "True"),
        ("a/b m", "m", "a/b/c", "True"),
        ("a/b m", "m", "a/bb", "False"),
        # What is mounted in a workspace is in its sandbox as well.
        ("a/b w/x", "w", "a/b/c", "True"),
        ("a/b w/x", "w/x", "a", "True"),
        ("a/b w/x", "w", "a/bb", "False"),
    ],
)
def test_a_directory_that_is_mounted_twice_overlaps_with_itself(
    outside: Path, mount: str, one: str, other: str, expected: str
):
    for place in ("a/b/c", "a/bb", "m", "w/x"):
        (outside / place).mkdir(parents=True)
    script = f"mount --bind {mount} && exec {sys.executable} -c '{MOUNTED}' {one} {other}"
    command = ["unshare", "-Urm", "sh", "-c", script]
    done = subprocess.run(command, cwd=outside, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.stdout == f"{expected}\n", done
