"""What a command keeps for the next one, and what it cannot: /tmp, HOME, the disk of the store, approved files."""

import asyncio
import contextlib
import hashlib
import os
import signal
from pathlib import Path

import pytest

from adapters.sandbox.cells import Space, a_space, some_sandboxes
from bascule.workspace.machine.sandbox.limits import MIB, SandboxLimits
from bascule.workspace.ports import SandboxFault
from daemon.living import eventually
from patience import PATIENCE

# With the start of its first process: the kernel gives a namespace's number to the next one at once.
NAMESPACE = "readlink /proc/self/ns/mnt; cut -d ' ' -f 22 /proc/1/stat"
# Whatever the machine has free.
ENDLESS = 1 << 60


def test_tmp_is_emptied_after_each_command(outside: Path):
    async def story():
        async with a_space(outside) as space:
            first = await space.output_of(NAMESPACE)
            await space.output_of(
                "mkdir -p /tmp/a/b; echo x > /tmp/a/b/c; chmod 0 /tmp/a/b; ln -s / /tmp/l; echo x > ~/kept"
            )
            # The workspace of this test lies below /tmp as well.
            await space.output_of(f"echo x > {outside}/beside")
            assert await space.output_of(f"ls -A /tmp {outside}; cat ~/kept") == (
                f"/tmp:\n{outside.name}\nhome\n\n{outside}:\nwork\nx\n"
            )
            assert await space.output_of(NAMESPACE) == first, "the same cell"
            many = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); : > /tmp/$i; done"
            await space.output_of(many)
            assert await space.output_of("ls /tmp | wc -l") == "2\n"

    asyncio.run(story())


def test_a_workspace_that_was_moved_below_tmp_is_not_emptied(outside: Path):
    async def story():
        async with a_space(outside) as space:
            await space.output_of("mkdir kept; echo x > kept/file; echo x > ~/file")
            first = await space.output_of(NAMESPACE)
            # Allowed, for the directory itself is not mounted, only what is in it.
            await space.output_of(f"mkdir /tmp/elsewhere; mv {outside} /tmp/elsewhere/moved")
            assert await space.output_of("cat kept/file ~/file") == "x\nx\n"
            assert await space.output_of(NAMESPACE) != first, "that cell is not used again"
            assert (space.path / "kept" / "file").read_text() == "x\n"

    asyncio.run(story())


def test_tmp_has_a_limit_and_no_place_on_a_disk(outside: Path):
    async def story():
        async with a_space(outside, limits=SandboxLimits(tmp_bytes=16 * MIB)) as space:
            outcome = await space.run("head -c 100000000 /dev/zero > /tmp/large")
            assert "No space left on device" in outcome.stderr.text
            assert await space.output_of("stat -f -c %T /tmp") == "tmpfs\n"

    asyncio.run(story())


def test_home_belongs_to_one_principal(outside: Path):
    planted = "mkdir -p ~/.local/lib/python3/site-packages; echo evil > ~/.local/lib/python3/site-packages/planted"
    look = "find / -xdev -name planted 2>/dev/null; find $HOME -name planted"

    async def story():
        async with a_space(outside) as space:
            await space.output_of(planted, principal="agent:Tom")
            sleeper = await space.start("exec sleep 60", timeout=None, principal="agent:Tom")
            for other in ("agent:Jerry", "agent:tom", "local", "person"):
                assert await space.output_of(look, principal=other) == "", other
            assert await space.output_of("ls ~/.local/lib/python3/site-packages", principal="agent:Tom") == "planted\n"
            sleeper.stop()
            await sleeper.wait()

    asyncio.run(story())


def test_a_home_that_grows_too_large_ends_its_command(outside: Path):
    async def story():
        async with a_space(outside, limits=SandboxLimits(home_bytes=48 * MIB)) as space:
            many = "i=0; while :; do i=$((i+1)); head -c 8000000 /dev/zero > ~/f$i; sync ~/f$i; done"
            outcome = await space.run(many)
            assert outcome.ended_by == "disk", outcome
            assert "48 MiB in its home directory" in (outcome.note or "")

    asyncio.run(story())


def test_a_command_that_writes_is_ended_before_the_stores_disk_is_full(outside: Path):
    async def story():
        async with a_space(outside, limits=SandboxLimits(keep_free_bytes=ENDLESS, blame_bytes=8 * MIB)) as space:
            assert await space.output_of("echo little > ~/file; cat ~/file") == "little\n"
            outcome = await space.run("head -c 100000000 /dev/zero > ~/large; sync ~/large; exec sleep 60")
            assert outcome.ended_by == "disk", outcome

    asyncio.run(story())


def test_no_command_starts_when_the_stores_disk_is_nearly_full(outside: Path):
    async def story():
        async with a_space(outside, limits=SandboxLimits(store_free_bytes=ENDLESS)) as space:
            with pytest.raises(SandboxFault, match="MiB are free on the disk of Bascule's store"):
                await space.start("true")

    asyncio.run(story())


# -- files that a person approved

GOOD, EVIL = "echo good\n", "echo evil\n"
SWAPPER = """
import os
contents = ["echo good\\n", "echo evil\\n"]
print("going", flush=True)
for turn in range(10**9):
    with open("new", "w") as file:
        file.write(contents[turn % 2])
    os.rename("new", "run.sh")
"""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def written(space: Space) -> int:
    try:
        return os.stat(space.path / "run.sh").st_mtime_ns
    except FileNotFoundError:
        return 0


async def exchanged(space: Space, **more: object) -> list[str]:
    """What a script said in twenty runs while another command exchanged it all the time."""
    (space.path / "run.sh").write_text(GOOD)
    (space.path / "swap.py").write_text(SWAPPER)
    going = asyncio.Event()
    swapper = await space.start("exec python3 swap.py", timeout=None, on_output=lambda *_: going.set())
    async with asyncio.timeout(PATIENCE):
        await going.wait()
    notes = []
    for _ in range(20):
        with contextlib.suppress(SandboxFault):
            notes.append((await space.run("sh ./run.sh", **more)).stdout.text)
    # It goes on as if nothing had happened.
    before = written(space)
    await asyncio.to_thread(eventually, lambda: written(space) != before, "the next exchange", 60.0)
    swapper.stop()
    await swapper.wait()
    return notes


def test_a_script_that_is_exchanged_all_the_time_runs_as_approved_or_not_at_all(outside: Path):
    async def story():
        async with a_space(outside) as space:
            notes = await exchanged(space, sealed={"run.sh": digest(GOOD)})
            assert set(notes) == {"good\n"}

    asyncio.run(story())


def test_a_script_that_is_not_sealed_can_be_exchanged(outside: Path):
    """The control."""

    async def story():
        async with a_space(outside) as space:
            assert "evil\n" in await exchanged(space)

    asyncio.run(story())


@pytest.mark.parametrize(("sealed", "expected"), [(True, "good\n"), (False, "evil\n")])
def test_a_script_that_is_written_after_its_command_began(outside: Path, sealed: bool, expected: str):
    async def story():
        async with a_space(outside) as space:
            script = space.path / "run.sh"
            script.write_text(GOOD)
            os.mkfifo(space.path / "go")
            more = {"sealed": {"run.sh": digest(GOOD)}} if sealed else {}
            running = await space.start("read x < go; sh ./run.sh", **more)
            # Opened when the command waits.
            gate = await asyncio.to_thread(os.open, space.path / "go", os.O_WRONLY)
            script.write_text(EVIL)
            os.write(gate, b"\n")
            os.close(gate)
            outcome = await running.wait()
            assert outcome.stdout.text == expected, outcome
            assert script.read_text() == EVIL, "the file itself is as it was written"

    asyncio.run(story())


@pytest.mark.parametrize("name", ["{path}/run.sh", "/proc/self/cwd/run.sh", "../{name}/run.sh"])
def test_a_sealed_script_is_the_approved_one_by_whichever_path_it_is_reached(outside: Path, name: str):
    async def story():
        async with a_space(outside) as space:
            line = f"cp evil run.sh 2>&1; sh {name.format(path=space.path, name=space.path.name)}"
            (space.path / "run.sh").write_text(GOOD)
            (space.path / "evil").write_text(EVIL)
            held = await space.run(line, sealed={"run.sh": digest(GOOD)})
            assert held.stdout.text.endswith("good\n"), held
            # The control: without the seal the command itself exchanges it.
            (space.path / "run.sh").write_text(GOOD)
            assert (await space.run(line)).stdout.text == "evil\n"

    asyncio.run(story())


def test_a_sealed_script_can_be_executed_and_its_cell_is_used_once(outside: Path):
    async def story():
        async with a_space(outside) as space:
            (space.path / "bin").mkdir()
            text = f"#!/bin/sh\n{NAMESPACE}\n"
            (space.path / "bin" / "tool").write_text(text)
            (space.path / "bin" / "tool").chmod(0o755)
            first = await space.output_of("bin/tool", sealed={"bin/tool": digest(text)})
            assert await space.output_of(NAMESPACE) != first

    asyncio.run(story())


# -- signals


def test_an_interrupt_does_not_end_the_spawner(outside: Path):
    async def story():
        async with a_space(outside) as space:
            first = await space.output_of(NAMESPACE)
            assert (await space.run("kill -INT 1; echo on")).stdout.text == "on\n"
            running = await space.start("echo up; exec sleep 60", on_output=lambda *_: up.set())
            async with asyncio.timeout(PATIENCE):
                await up.wait()
            (cell,) = space.sandbox._running
            spawner = cell._inner
            assert spawner is not None
            signal.pidfd_send_signal(spawner, signal.SIGINT)
            running.stop()
            assert (await running.wait()).ended_by == "cancelled"
            assert await space.output_of(NAMESPACE) == first, "the same cell"
            # Commands have the signal as it is for every program.
            assert (await space.run("sh -c 'kill -INT $$; echo on'")).stdout.text == ""

    up = asyncio.Event()
    asyncio.run(story())


def test_homes_are_gone_when_the_space_is_closed(tmp_path: Path):
    sandboxes = some_sandboxes(tmp_path)

    async def story():
        async with a_space(tmp_path, sandboxes=sandboxes) as space:
            await space.output_of("echo x > ~/file")

    asyncio.run(story())
    assert list((tmp_path / "ours" / "tmp").iterdir()) == []
