"""`bascule backup` and `bascule restore`, on a running and on a stopped daemon."""

import argparse
import errno
import json
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from living import Living, forked, run_command
from wires import LinkWire

from bascule.cli import backup
from bascule.daemon import restoring
from bascule.foundation.errors import StorageFull

# However long a command takes to start, what was written is in the write-ahead log alone.
NO_REST = {"bascule.stores.sqlite.FOLD_AFTER_SECONDS": 3_600.0}


def send(link, number):
    link.call("messages.send", {"agentId": "Jerry", "payload": f"hello {number}", "ticketId": f"t{number}"})


def tickets(daemon):
    with LinkWire(daemon.link_socket) as link:
        return {each["ticketId"] for each in link.hello().call("tickets.list", {"limit": 1000})}


def verified(state):
    return json.loads(forked("ledger", "verify", "--json", "--state-dir", state).output)["faults"]


def count(path, table):
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    finally:
        connection.close()


@pytest.fixture
def copy(tmp_path):
    return os.fspath(tmp_path / "copy.db")


@pytest.fixture
def running(state, copy):
    """A daemon with a copy of when it had three tickets, and two more since."""
    with Living(state, port=0, constants=NO_REST) as daemon, LinkWire(daemon.link_socket) as link:
        link.hello().call("agents.register", {"agentId": "Jerry"})
        for number in range(3):
            send(link, number)
        done = forked("backup", copy, "--state-dir", state)
        assert (done.code, f"wrote {copy}" in done.output) == (0, True), done.output
        for number in range(3, 5):
            send(link, number)
        yield daemon


FIRST = {"t0", "t1", "t2"}


def test_a_copy_of_a_running_daemon_has_what_is_in_the_log_alone(running, state, copy):
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o600
    assert count(copy, "tickets") == len(FIRST)
    assert os.listdir(os.path.join(state, "backups")) == []
    assert tickets(running) == FIRST | {"t3", "t4"}
    with LinkWire(running.link_socket) as link:
        (record,) = link.hello().call("ledger.show", {"what": "daemon.backup"})
    assert (record["principal"], record["subject"]) == ("local", "backup")


def test_a_restore_brings_back_what_was_there_then_and_keeps_what_was_there_since(running, state, copy):
    assert running.stop() == 0
    before = Path(copy).read_bytes()
    done = run_command("restore", copy, "--state-dir", state)
    assert done.returncode == 0, done.stderr
    assert Path(copy).read_bytes() == before
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == FIRST
        status = json.loads(forked("status", "--json", "--state-dir", state).output)
        assert status.get("ledgerProblem") is None
        with LinkWire(daemon.link_socket) as link:
            (record,) = link.hello().call("ledger.show", {"what": "daemon.restore"})
        assert set(record["details"]) == {"process", "sha256", "after"}
        daemon.stop()
    assert verified(state) == []
    # And forward again, from what the restore kept.
    (replaced,) = [name for name in os.listdir(state) if name.startswith("replaced-")]
    assert set(os.listdir(os.path.join(state, replaced))) == {"bascule.db", "anchors.jsonl"}
    assert forked("restore", os.path.join(state, replaced, "bascule.db"), "--state-dir", state).code == 0
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == FIRST | {"t3", "t4"}


def test_a_copy_can_be_restored_where_no_daemon_ever_was(running, copy, tmp_path):
    state = os.fspath(tmp_path / "s")
    done = forked("restore", copy, "--state-dir", state)
    assert (done.code, "what was there" in done.output) == (0, False), done.output
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == FIRST


def test_a_restore_after_a_crash_keeps_what_the_crash_left(running, state, copy):
    running.kill()
    assert forked("restore", copy, "--state-dir", state).code == 0
    (replaced,) = [name for name in os.listdir(state) if name.startswith("replaced-")]
    assert count(os.path.join(state, replaced, "bascule.db"), "tickets") == 5
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == FIRST


def test_a_stopped_daemon_is_copied_too(running, state, tmp_path):
    running.stop()
    second = os.fspath(tmp_path / "second.db")
    assert forked("backup", second, "--state-dir", state).code == 0
    assert count(second, "tickets") == 5


def test_a_restore_refuses_while_a_daemon_runs(running, state, copy):
    done = forked("restore", copy, "--state-dir", state)
    assert done.code != 0
    assert "bascule down" in done.output
    assert tickets(running) == FIRST | {"t3", "t4"}


def test_a_backup_replaces_no_file(running, state, copy):
    before = Path(copy).read_bytes()
    done = forked("backup", copy, "--state-dir", state)
    assert (done.code != 0, "exists already" in done.output) == (True, True)
    assert Path(copy).read_bytes() == before


def test_a_disk_without_room_is_named_and_nothing_half_made_is_left(running, state, copy, tmp_path, monkeypatch):
    running.stop()
    target = os.fspath(tmp_path / "second.db")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(backup.shutil, "copyfileobj", full)
        with pytest.raises(StorageFull, match=r"second\.db cannot be written: No space left"):
            backup.run_backup(argparse.Namespace(state_dir=state, file=target))
    assert not os.path.exists(target)
    assert os.listdir(os.path.join(state, "backups")) == []
    before = sorted(os.listdir(state))
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "_keep", full)
        with pytest.raises(StorageFull, match="No space left on device; the database is as it was"):
            backup.run_restore(argparse.Namespace(state_dir=state, file=copy))
    assert sorted(os.listdir(state)) == before
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == FIRST | {"t3", "t4"}


@pytest.mark.parametrize("place", ["nowhere/copy.db", "dangling"], ids=["no directory", "a link"])
def test_a_backup_goes_to_a_new_file_or_nowhere(running, state, tmp_path, place):
    os.symlink(tmp_path / "elsewhere", tmp_path / "dangling")
    before = sorted(os.listdir(tmp_path))
    done = forked("backup", os.fspath(tmp_path / place), "--state-dir", state)
    assert done.code != 0
    assert sorted(os.listdir(tmp_path)) == before


def test_where_no_daemon_ever_ran_there_is_nothing_to_copy(tmp_path, copy):
    state = os.fspath(tmp_path / "never")
    done = forked("backup", copy, "--state-dir", state)
    assert (done.code != 0, "there is no database" in done.output) == (True, True), done.output
    assert not os.path.exists(state)
    assert not os.path.exists(copy)


def test_a_daemon_that_keeps_nothing_on_disk_says_so(state, copy):
    with Living(state, port=0, durability="memory"):
        done = forked("backup", copy, "--state-dir", state)
    assert (done.code != 0, "durability memory" in done.output) == (True, True), done.output
    assert not os.path.exists(copy)


def test_what_killed_commands_left_is_gone_at_the_next_start(running, state):
    running.stop()
    left = [os.path.join(state, name) for name in ("bascule.db.restoring", "backups/bascule-copy-1.db")]
    kept = os.path.join(state, "backups", "bascule-schema3-1.db")
    for path in (*left, kept):
        Path(path).write_bytes(b"what agents wrote")
        os.chmod(path, 0o600)
    with Living(state, port=0):
        assert [path for path in left if os.path.exists(path)] == []
        assert os.path.exists(kept)


# Each before or after it ran; the one coroutine among them before.
STEPS = [(name, side) for name in ("_copy", "_check", "_put_in_place", "_keep") for side in ("before", "after")]


@pytest.mark.parametrize("where", [*STEPS, ("_record", "before")], ids=" ".join)
def test_a_restore_that_ends_at_any_step_leaves_a_whole_database(running, state, copy, monkeypatch, where):
    running.stop()
    step, side = where
    function = getattr(restoring, step)

    def dies(*args):
        if side == "after":
            function(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(restoring, step, dies)
        # As a kill does: nothing is cleaned up.
        patch.setattr(restoring, "remove_copies", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            restoring.restore(state, copy)
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == (FIRST if where == ("_put_in_place", "after") else FIRST | {"t3", "t4"})
        daemon.stop()
    restoring.restore(state, copy)
    assert verified(state) == []
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == FIRST


DAMAGE = {
    "a row": ("UPDATE agents SET body = x'7b7d'", "agents row 'Jerry' does not match its checksum"),
    "a record": ("UPDATE ledger SET body = x'7b7d' WHERE seq = 2", "record 2"),
    "a missing record": ("DELETE FROM ledger WHERE seq = 2", "records 2 to 2 are gone"),
    "no record": ("DELETE FROM ledger", "it has no record at all"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_copy_that_is_not_whole_changes_nothing(running, state, copy, tmp_path, how):
    running.stop()
    whole = os.fspath(tmp_path / "whole.db")
    assert forked("backup", whole, "--state-dir", state).code == 0
    statement, words = DAMAGE[how]
    connection = sqlite3.connect(whole)
    with connection:
        connection.execute(statement)
    connection.close()
    before = sorted(os.listdir(state))
    done = forked("restore", whole, "--state-dir", state)
    assert done.code != 0
    assert words in done.output
    assert "nothing was changed" in done.output
    assert sorted(os.listdir(state)) == before
    with Living(state, port=0) as daemon:
        assert tickets(daemon) == FIRST | {"t3", "t4"}


@pytest.mark.parametrize("text", [b"", b"not a database at all" * 500], ids=["empty", "something else"])
def test_a_file_that_is_no_copy_changes_nothing(running, state, copy, text):
    running.stop()
    with open(copy, "wb") as file:
        file.write(text)
    done = forked("restore", copy, "--state-dir", state)
    assert (done.code != 0, "nothing was changed" in done.output) == (True, True), done.output
    assert verified(state) == []
