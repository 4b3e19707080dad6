"""Spaces through both clients, with a real daemon, real files and a real sandbox."""

import asyncio
import os
import shutil

import pytest

from bascule.client import Client, OperationFailed, SyncClient
from bascule.foundation.errors import NotFound
from bascule.workspace.protocol import ApprovalRequiredEvent, PolicyDeniedEvent
from patience import PATIENCE

if shutil.which("bwrap") is None and os.environ.get("CI") != "true":
    pytest.skip("bubblewrap is not installed", allow_module_level=True)


@pytest.fixture
def space(shared, tmp_path):
    with SyncClient.connect(shared.state_dir) as client:
        yield client.space(str(tmp_path))


def on_loop(shared, tmp_path, story):
    """Run `story(space)` with the asyncio client."""

    async def whole():
        async with asyncio.timeout(PATIENCE), Client.connect(shared.state_dir) as client:
            return await story(await client.space(str(tmp_path)))

    return asyncio.run(whole())


def test_files_are_written_read_edited_and_deleted(space, tmp_path):
    space.create_file("a/text.txt", "héllo\n")
    space.create_file("a/bytes", b"\x00\xff")
    assert space.read_file("a/text.txt").decode() == "héllo\n"
    assert space.read_file("a/bytes") == b"\x00\xff"
    space.edit_file("a/text.txt", [("héllo", "goodbye")])
    assert (tmp_path / "a" / "text.txt").read_text() == "goodbye\n"
    space.delete_file("a/bytes")
    assert not (tmp_path / "a" / "bytes").exists()


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda space: space.create_file("a", "again"), "File already exists"),
        (lambda space: space.read_file("nope"), "No such file"),
        (lambda space: space.edit_file("a", [("absent", "x")]), "closest"),
        (lambda space: space.exec("sudo id"), "Command 'sudo' is blocked"),
        (lambda space: space.create_file("../out", "x"), "parents are out of reach"),
    ],
)
def test_what_did_not_succeed_is_raised_with_what_to_do(space, act, words):
    space.create_file("a", "present\n")
    with pytest.raises(OperationFailed) as failed:
        act(space)
    assert words in failed.value.message


def test_a_denial_carries_its_event_and_its_suggestion(space):
    with pytest.raises(OperationFailed) as failed:
        space.exec("sudo id")
    assert isinstance(failed.value.event, PolicyDeniedEvent)
    assert failed.value.hint == "Remove sudo from command"


def test_a_command_is_answered_with_its_event_whatever_its_exit_code(space):
    event = space.exec("echo $A; exit 3", env={"A": "b"})
    assert (event.exit_code, event.success, event.stdout) == (3, False, "b\n")
    assert space.exec("sleep 60", timeout=0.2).timed_out


def test_what_asks_names_the_approval_and_the_run(space):
    with pytest.raises(OperationFailed) as failed:
        space.exec("rm -rf x")
    assert isinstance(failed.value.event, ApprovalRequiredEvent)
    assert "bascule approvals approve apr_" in failed.value.hint
    space.cancel(failed.value.run_id)
    assert space.show(failed.value.run_id).status in ("error", "completed")


def test_a_run_is_followed_to_its_end(space):
    run = space.start([{"type": "shell", "command": "for i in 1 2 3; do echo $i; done; echo e >&2"}])
    items = list(space.follow(run))
    assert "".join(item.text for item in items if item.kind == "stdout") == "1\n2\n3\n"
    assert "".join(item.text for item in items if item.kind == "stderr") == "e\n"
    assert items[-1].status == "completed"
    assert [item.seq for item in items] == sorted(item.seq for item in items)
    assert space.wait(run).events[0].exit_code == 0
    # From the beginning again, for whoever comes later.
    assert list(space.follow(run))[-1].status == "completed"


def test_a_run_is_shown_and_taken_back(space, tmp_path):
    (tmp_path / "kept").write_text("old\n")
    result = space.run([{"type": "shell", "command": "echo new > kept; echo x > made"}])
    diff = space.diff(result.run_id)
    assert {change.path: change.change for change in diff.changes} == {"kept": "modified", "made": "added"}
    assert space.undo(result.run_id, dry_run=True).changes
    space.undo(result.run_id)
    assert [each.kind for each in space.log(limit=2)] == ["undo", "run"]
    assert space.redo(dry_run=True).operations == [space.log()[0].operation_id]
    assert (tmp_path / "kept").read_text() == "old\n"
    assert not (tmp_path / "made").exists()
    assert space.runs()[0].undone


def test_a_copy_is_taken_over(space, tmp_path):
    result = space.run([{"type": "createFile", "path": "c", "content": "x"}], on_copy=True)
    assert not (tmp_path / "c").exists()
    space.commit(result.run_id)
    assert (tmp_path / "c").read_text() == "x"


def test_a_command_in_the_background_is_read_and_stopped(space):
    process = space.spawn("echo up; exec sleep 600")
    page = space.logs(process.process_id, wait_ms=30_000)
    assert (page.text, page.running) == ("up\n", True)
    assert space.stop(process.process_id).running is False
    assert [each.process_id for each in space.processes() if each.running] == []


def test_a_run_of_another_space_is_not_found(space):
    with pytest.raises(NotFound):
        space.diff("run_unknown")


def test_a_space_works_the_same_through_asyncio(shared, tmp_path):
    async def story(space):
        await space.create_file("a", "one\n")
        await space.edit_file("a", [("one", "two")])
        assert await space.read_file("a") == b"two\n"
        assert (await space.exec("cat a")).stdout == "two\n"
        run = await space.start([{"type": "shell", "command": "echo hi"}])
        kinds = [item.kind async for item in space.follow(run)]
        assert kinds[-1] == "status"
        assert "stdout" in kinds
        assert (await space.wait(run)).status == "completed"
        assert (await space.show(run)).run_id == run
        deleted = await space.run([{"type": "deleteFile", "path": "a"}])
        assert (await space.diff(deleted.run_id)).changes[0].change == "deleted"
        await space.undo(deleted.run_id)
        copied = await space.run([{"type": "createFile", "path": "b", "content": ""}], on_copy=True)
        await space.commit(copied.run_id)
        process = await space.spawn("exec sleep 600")
        assert (await space.logs(process.process_id)).running
        assert not (await space.stop(process.process_id)).running
        waiting = await space.start([{"type": "shell", "command": "sleep 600"}])
        await space.cancel(waiting)
        assert len(await space.runs()) >= 5
        assert await space.processes()
        await space.delete_file("a")

    on_loop(shared, tmp_path, story)
    assert sorted(os.listdir(tmp_path)) == ["b"]


def test_a_client_that_leaves_takes_its_run_along(shared, tmp_path):
    async def leave(space):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await space.run([{"type": "shell", "command": "sleep 600"}])

    on_loop(shared, tmp_path, leave)

    async def look(space):
        (run,) = await space.runs()
        async for _ in space.follow(run.run_id):
            pass
        return (await space.runs())[0].status

    assert on_loop(shared, tmp_path, look) == "cancelled"
