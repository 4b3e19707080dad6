"""A command's way through a cell: what it says, how it ends, what is left of it."""

import asyncio
from pathlib import Path

import pytest

from adapters.sandbox.cells import a_space
from bascule.workspace.ports import SandboxFault

KINDS = pytest.mark.parametrize("kind", ["bubblewrap", "none"])


@KINDS
def test_a_command_says_what_it_says_and_its_exit_code_is_told(tmp_path: Path, kind: str):
    async def story():
        async with a_space(tmp_path, kind=kind) as space:
            outcome = await space.run("echo out; echo err >&2; exit 7")
            assert (outcome.exit_code, outcome.ended_by) == (7, "exit")
            assert (outcome.stdout.text, outcome.stderr.text) == ("out\n", "err\n")
            assert outcome.note is None
            assert (await space.output_of("pwd")).strip() == str(space.path)

    asyncio.run(story())


@KINDS
def test_what_was_said_before_a_timeout_is_kept(tmp_path: Path, kind: str):
    async def story():
        async with a_space(tmp_path, kind=kind) as space:
            outcome = await space.run("echo begun; sleep 60", timeout=0.3)
            assert (outcome.exit_code, outcome.ended_by) == (124, "timeout")
            assert outcome.stdout.text == "begun\n"
            assert 0.3 <= outcome.duration.total_seconds() < 30

    asyncio.run(story())


@KINDS
def test_a_stopped_command_ends_at_once_with_137(tmp_path: Path, kind: str):
    async def story():
        async with a_space(tmp_path, kind=kind) as space:
            seen = asyncio.Event()
            running = await space.start("echo begun; sleep 60", on_output=lambda *_: seen.set())
            await seen.wait()
            running.stop()
            outcome = await running.wait()
            assert (outcome.exit_code, outcome.ended_by) == (137, "cancelled")

    asyncio.run(story())


def test_a_waiter_that_leaves_does_not_end_the_command(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            running = await space.start("sleep 0.2; echo done")
            waiter = asyncio.ensure_future(running.wait())
            await asyncio.sleep(0)
            waiter.cancel()
            assert (await running.wait()).stdout.text == "done\n"

    asyncio.run(story())


def test_a_directory_that_is_not_there_is_said(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            outcome = await space.run("true", cwd="nowhere")
            assert outcome.exit_code == 126
            assert "nowhere: No such file or directory; cwd must be a directory of the workspace" in outcome.note
            (space.path / "deep" / "er").mkdir(parents=True)
            assert (await space.output_of("pwd", cwd="deep/er")).endswith("/deep/er\n")

    asyncio.run(story())


def test_what_cannot_be_a_command_is_refused_with_what_to_do(tmp_path: Path):
    async def story():
        async with a_space(tmp_path) as space:
            with pytest.raises(SandboxFault, match="null bytes"):
                await space.start("echo \0")
            with pytest.raises(SandboxFault, match="put the rest into a file"):
                await space.start("true", env={"LARGE": "x" * 200_000})
            assert await space.output_of("echo $SMALL", env={"SMALL": "yes"}) == "yes\n"

    asyncio.run(story())
