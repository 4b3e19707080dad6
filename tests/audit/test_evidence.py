"""Evidence on disk: within its root whatever is planted, within its quota, whole or not there."""

import json
import os
import threading
import time
import uuid

import pytest

from bascule.kernel.evidence import Evidence, EvidenceRoot, WorkspaceForbidden
from bascule.testing.clock import FakeClock
from patience import PATIENCE


@pytest.fixture
def root(tmp_path):
    base = tmp_path / "root"
    base.mkdir()
    (base / "ws").mkdir()
    root = EvidenceRoot(str(base))
    yield root
    root.close()


def evidence(root, **limits):
    return Evidence(root, root.resolve(f"{root.path}/ws"), FakeClock(), **limits)


def execute(store, size=100):
    folder = store.folder(str(uuid.uuid4()))
    folder.write("observe.png", b"x" * size)
    folder.finish({"ok": True}, [{"step": "a"}], {"executionId": folder.execution_id, "outcome": "ok"})
    return folder


def index(root):
    with open(f"{root.path}/ws/artifacts/desktop/index.ndjson") as file:
        return [json.loads(line) for line in file]


def test_an_execution_leaves_its_files_and_a_line(root):
    store = evidence(root)
    folder = execute(store)
    assert sorted(os.listdir(folder.path)) == ["observe.png", "result.json", "trace.jsonl"]
    (line,) = index(root)
    assert line["folder"].endswith(folder.execution_id)


def test_the_oldest_executions_go_when_the_space_is_used_up(root):
    store = evidence(root, max_bytes=2_000)
    folders = [execute(store, 500) for _ in range(8)]
    left = [os.path.exists(each.path) for each in folders]
    assert left == sorted(left), "the oldest went first"
    assert 1 <= sum(left) <= 3
    lines = index(root)
    assert len(lines) == 8
    assert sum(line.get("removedOldest", 0) for line in lines) == 8 - sum(left)


def test_what_was_there_before_this_host_counts_too(root):
    first = execute(evidence(root), 500)
    second = execute(evidence(root, max_executions=1), 500)
    assert not os.path.exists(first.path)
    assert os.path.exists(second.path)


def test_what_others_put_into_a_folder_is_not_removed(root):
    first = execute(evidence(root))
    with open(first.path + "notes.txt", "w") as file:
        file.write("mine")
    execute(evidence(root, max_executions=1))
    assert os.listdir(first.path) == ["notes.txt"]


def test_a_file_is_written_once_and_only_by_names_of_ours(root):
    folder = evidence(root).folder(str(uuid.uuid4()))
    folder.write("ax.json", b"{}")
    with pytest.raises(FileExistsError):
        folder.write("ax.json", b"{}")
    with pytest.raises(ValueError, match="not a file of evidence"):
        folder.write("../ax.json", b"{}")


@pytest.mark.parametrize("planted", ["link", "file", "pipe"])
@pytest.mark.parametrize("where", ["artifacts", "artifacts/desktop", "artifacts/desktop/index.ndjson"])
def test_what_is_planted_in_the_way_is_not_followed_nor_waited_for(root, tmp_path, where, planted):
    outside = tmp_path / "outside"
    outside.mkdir()
    path = f"{root.path}/ws/{where}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if planted == "link":
        os.symlink(outside, path)
    elif planted == "pipe":
        os.mkfifo(path)
    else:
        with open(path, "w") as file:
            file.write("")
    if where.endswith("ndjson") and planted == "file":
        execute(evidence(root))
    else:
        with pytest.raises(WorkspaceForbidden):
            execute(evidence(root))
    assert list(outside.iterdir()) == []


def naive_open(real):
    """Check, then open by name: what the descriptor walk is there to replace."""
    return os.open(real, os.O_RDONLY | os.O_DIRECTORY)


@pytest.mark.parametrize("careful", [True, False])
def test_a_workspace_that_becomes_a_link_after_the_check_is_not_entered(root, tmp_path, careful):
    """The control is the naive way, which ends up outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    real = root.resolve(f"{root.path}/ws")
    os.rename(real, real + "-moved")
    os.symlink(outside, real)
    if careful:
        with pytest.raises(WorkspaceForbidden):
            root.open(real)
    else:
        descriptor = naive_open(real)
        assert os.fstat(descriptor).st_ino == outside.stat().st_ino
        os.close(descriptor)


def test_a_workspace_swapped_for_a_link_all_the_time_never_leads_outside(root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    path = f"{root.path}/ws"
    stop = threading.Event()

    def swap():
        os.symlink(outside, path + "-link")
        while not stop.is_set():
            os.rename(path, path + "-dir")
            os.rename(path + "-link", path)
            os.rename(path, path + "-link")
            os.rename(path + "-dir", path)

    thread = threading.Thread(target=swap)
    thread.start()
    written = refused = 0
    try:
        end = time.monotonic() + PATIENCE
        # Until both have happened often: who is faster depends on the machine.
        while time.monotonic() < end and min(written, refused) < 20:
            try:
                store = Evidence(root, root.resolve(path), FakeClock())
                store.folder(str(uuid.uuid4())).write("ax.json", b"{}")
                written += 1
            except (WorkspaceForbidden, OSError):
                refused += 1
    finally:
        stop.set()
        thread.join()
    assert list(outside.iterdir()) == []
    assert written
    assert refused


def test_the_root_stays_the_directory_it_was_when_it_was_opened(root, tmp_path):
    moved = tmp_path / "moved"
    os.rename(root.path, moved)
    os.mkdir(root.path)
    os.mkdir(root.path + "/ws")
    Evidence(root, root.path + "/ws", FakeClock()).folder(str(uuid.uuid4())).write("ax.json", b"{}")
    assert (moved / "ws/artifacts").exists()
    assert not os.path.exists(root.path + "/ws/artifacts")
