"""Objects on disk: damage is found out, collecting drops only what nobody needs, a crash takes nothing."""

import os
import random
import resource
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import trees

from bascule.workspace.lines import Budget, changes
from bascule.workspace.machine.checkpoints import store as store_module
from bascule.workspace.machine.checkpoints.objects import BLOB, TREE, BadObject, Entry, object_id, read_tree, write_tree
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.ports import CheckpointFault
from undo_of import undo

FLIPS = 400 if os.environ.get("BASCULE_LONG") else 40
KILLS = 60 if os.environ.get("BASCULE_LONG") else 6


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def root(workspace):
    root = WorkspaceFiles(()).open_root(os.fspath(workspace))
    yield root
    root.close()


def fresh(tmp_path, root):
    """As after a restart of the daemon and the machine: nothing is remembered."""
    for path in (tmp_path / "state").glob("spc_1/stats-*"):
        path.unlink()
    return GitCheckpoints(os.fspath(tmp_path / "state")).open("spc_1", root)


def objects(tmp_path) -> list[Path]:
    return sorted(path for path in (tmp_path / "state/spc_1/objects").rglob("*") if path.is_file())


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [3, 300], ids=["single files", "a pack"])
def test_no_flipped_bit_is_ever_restored(tmp_path, workspace, root, files):
    """Every restore is right to the byte, or refused and changes nothing."""
    generator = random.Random(7)
    before = {b"f%d" % number: ("file", 0o644, generator.randbytes(40)) for number in range(files)}
    trees.write(workspace, before)
    first = fresh(tmp_path, root).take()
    trees.write(workspace, {})
    second = fresh(tmp_path, root).take()
    refused = 0
    for _ in range(FLIPS):
        path = generator.choice(objects(tmp_path))
        sound = path.read_bytes()
        at = generator.randrange(len(sound))
        path.chmod(0o600)
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << generator.randrange(8)]) + sound[at + 1 :])
        try:
            undo(fresh(tmp_path, root), first, second, dry_run=False)
            assert trees.read(workspace) == before
        except CheckpointFault:
            refused += 1
            assert trees.read(workspace) == {}
        path.write_bytes(sound)
        trees.write(workspace, {})
    assert refused > FLIPS // 10
    undo(fresh(tmp_path, root), first, second, dry_run=False)
    assert trees.read(workspace) == before


@pytest.mark.parametrize("files", [3, 300], ids=["single files", "a pack"])
def test_a_damaged_object_is_written_again_by_the_next_checkpoint(tmp_path, workspace, root, files):
    """After a power cut a file may be there with its name and without its content."""
    trees.write(workspace, {b"f%d" % number: ("file", 0o644, b"%d" % number) for number in range(files)})
    tree = fresh(tmp_path, root).take()
    for path in objects(tmp_path):
        path.chmod(0o600)
        path.write_bytes(b"")
    with pytest.raises(CheckpointFault):
        fresh(tmp_path, root).copy_out(tree, os.fspath(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()
    assert fresh(tmp_path, root).take() == tree
    fresh(tmp_path, root).copy_out(tree, os.fspath(tmp_path / "copy"))
    assert trees.read(tmp_path / "copy") == trees.read(workspace)


def test_of_two_copies_in_packs_the_sound_one_is_read_and_kept(tmp_path):
    """The damaged one is there because it was there first: it must neither hide the other nor outlive it."""
    place = os.fspath(tmp_path / "store")
    contents = [b"content %d" % number for number in range(store_module.MAX_LOOSE_AT_ONCE + 1)]

    def pack(*more):
        store = store_module.ObjectStore(place)
        names = [store.add(BLOB, content) for content in (*contents, *more)]
        tree = store.add(TREE, write_tree({b"%d" % at: Entry(0o100644, name) for at, name in enumerate(names)}))
        store.flush()
        return names, tree

    names, _ = pack()
    (first,) = (tmp_path / "store/objects/pack").glob("*.pack")
    first.chmod(0o600)
    offset = store_module.Pack(os.fspath(first.with_suffix(""))).find(names[0])
    with first.open("r+b") as file:
        file.seek(offset + 4)
        file.write(b"\xff\xff")
    with pytest.raises(CheckpointFault, match="is damaged"):
        store_module.ObjectStore(place).blob(names[0])
    names, tree = pack(*(b"more %d" % number for number in range(store_module.MAX_LOOSE_AT_ONCE + 1)))
    assert len(list((tmp_path / "store/objects/pack").glob("*.pack"))) == 2
    # Whichever of the two is looked at first.
    for order in (1, -1):
        store = store_module.ObjectStore(place)
        store._packs = store._all_packs()[::order]
        assert store.blob(names[0]) == contents[0]
    for order in (1, -1):
        store = store_module.ObjectStore(place)
        store._packs = store._all_packs()[::order]
        store._repack(store._needed([tree]), [])
        assert store_module.ObjectStore(place).blob(names[0]) == contents[0]


def test_a_pack_that_finds_no_room_leaves_nothing_behind(tmp_path, workspace, root):
    checkpoints = fresh(tmp_path, root)
    trees.write(workspace, {b"f%d" % number: ("file", 0o644, os.urandom(8_000)) for number in range(300)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A pack of 2.4 MB; the bound on a file's size stands for a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
    try:
        with pytest.raises(CheckpointFault, match="no checkpoint could be stored"):
            checkpoints.take()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in objects(tmp_path)] == []
    assert checkpoints.take()


def test_a_damaged_object_is_named(tmp_path, workspace, root):
    (workspace / "x").write_bytes(b"x")
    checkpoints = fresh(tmp_path, root)
    first = checkpoints.take()
    (workspace / "x").unlink()
    second = checkpoints.take()
    name = object_id(BLOB, b"x").hex()
    path = tmp_path / "state/spc_1/objects" / name[:2] / name[2:]
    path.chmod(0o600)
    path.write_bytes(zlib.compress(b"blob 1\0y"))
    with pytest.raises(CheckpointFault) as raised:
        undo(checkpoints, first, second, dry_run=False)
    assert str(raised.value) == (
        f"the checkpoint is damaged and nothing was changed: object {name} "
        "cannot be used (its content is not what its name promises)"
    )
    assert os.listdir(workspace) == []


@pytest.mark.parametrize("name", [b"..", b".", b"a/b", b""])
def test_a_tree_with_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(BadObject, match="a name that no file can have"):
        read_tree(write_tree({name: Entry(0o100644, bytes(20))}))


@pytest.mark.parametrize(
    "data", [b"100644", b"100644 x", b"100644 x\0short", b"9 x\0" + bytes(20), b" x\0" + bytes(20)]
)
def test_a_tree_that_is_cut_is_refused(data):
    with pytest.raises(BadObject):
        read_tree(data)


# -- collecting -----------------------------------------------------------------------------------


def grow(workspace, checkpoints, rounds: int) -> list[str]:
    taken = []
    for number in range(rounds):
        (workspace / "changing").write_text(f"{number}\n" * 500)
        (workspace / f"d{number % 3}").mkdir(exist_ok=True)
        (workspace / f"d{number % 3}/x").write_text(str(number))
        taken.append(checkpoints.take())
    return taken


def test_collecting_keeps_what_is_needed_and_drops_the_rest(tmp_path, workspace, root):
    taken = grow(workspace, fresh(tmp_path, root), 20)
    # After a restart nobody but the records knows of trees.
    store = GitCheckpoints(os.fspath(tmp_path / "state"))
    size = sum(path.stat().st_size for path in objects(tmp_path))
    freed = store.collect({"spc_1": frozenset({taken[3], taken[19]}), "spc_unknown": frozenset()})
    assert freed == size - sum(path.stat().st_size for path in objects(tmp_path)) > 0
    checkpoints = store.open("spc_1", root)
    for tree in (taken[3], taken[19]):
        checkpoints.copy_out(tree, os.fspath(tmp_path / tree))
    with pytest.raises(CheckpointFault, match="the checkpoint is gone"):
        checkpoints.copy_out(taken[4], os.fspath(tmp_path / "gone"))
    assert store.collect({"spc_1": frozenset({taken[3], taken[19]})}) == 0


def test_collecting_never_takes_what_the_next_checkpoint_builds_on(tmp_path, workspace, root):
    store = GitCheckpoints(os.fspath(tmp_path / "state"))
    checkpoints = store.open("spc_1", root)
    taken = grow(workspace, checkpoints, 3)
    store.collect({"spc_1": frozenset()})
    # Told a moment ago, and perhaps not recorded yet.
    for tree in taken:
        checkpoints.copy_out(tree, os.fspath(tmp_path / tree))
    checkpoints._space.reported.clear()
    store.collect({"spc_1": frozenset()})
    (workspace / "new").write_text("x")
    tree = checkpoints.take()
    checkpoints.copy_out(tree, os.fspath(tmp_path / "copy"))
    assert trees.read(tmp_path / "copy") == trees.read(workspace)


def test_copies_that_are_gone_hold_nothing_and_leave_nothing(tmp_path, workspace, root):
    store = GitCheckpoints(os.fspath(tmp_path / "state"))
    checkpoints = store.open("spc_1", root)
    (workspace / "x").write_text("x")
    tree = checkpoints.take()
    trees_of_copies = []
    for number in range(3):
        place = tmp_path / f"copy-{number}"
        checkpoints.copy_out(tree, os.fspath(place))
        copy = WorkspaceFiles(()).open_copy(os.fspath(place))
        (place / "x").write_text(f"tried {number}")
        trees_of_copies.append(store.open("spc_1", copy).take())
        copy.close()
    # Told a moment ago: the records may not know of them yet.
    store.collect({"spc_1": frozenset()})
    assert [change.path for change in checkpoints.changes(tree, trees_of_copies[0])] == ["x"]
    checkpoints._space.reported.clear()
    store.collect({"spc_1": frozenset()})
    for gone in trees_of_copies:
        with pytest.raises(CheckpointFault, match="is gone"):
            checkpoints.changes(tree, gone)
    assert len(store._spaces["spc_1"].open) == 1
    assert len(list((tmp_path / "state/spc_1").glob("stats-*"))) == 1


def test_spaces_that_are_not_named_are_left_alone(tmp_path, workspace, root):
    tree = fresh(tmp_path, root).take()
    store = GitCheckpoints(os.fspath(tmp_path / "state"))
    assert store.collect({}) == 0
    assert store.open("spc_1", root).take() == tree


def test_many_objects_are_brought_into_one_pack(tmp_path, workspace, root, monkeypatch):
    monkeypatch.setattr(store_module, "MAX_LOOSE", 10)
    taken = grow(workspace, fresh(tmp_path, root), 20)
    GitCheckpoints(os.fspath(tmp_path / "state")).collect({"spc_1": frozenset(taken)})
    assert len(objects(tmp_path)) == 2
    checkpoints = fresh(tmp_path, root)
    for tree in taken:
        checkpoints.copy_out(tree, os.fspath(tmp_path / tree))
    # Half of it goes: the pack is written anew, without recompressing what stays.
    GitCheckpoints(os.fspath(tmp_path / "state")).collect({"spc_1": frozenset(taken[:5])})
    assert len(objects(tmp_path)) == 2
    fresh(tmp_path, root).copy_out(taken[4], os.fspath(tmp_path / "again"))
    with pytest.raises(CheckpointFault, match="is gone"):
        fresh(tmp_path, root).copy_out(taken[9], os.fspath(tmp_path / "gone"))


_WRITER = """
import os, sys
from bascule.workspace.machine.checkpoints import store
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
store.MAX_LOOSE, store.MAX_LOOSE_AT_ONCE = 8, 4
state, workspace = sys.argv[1:]
root = WorkspaceFiles(()).open_root(workspace)
kept = {line for line in open(f"{state}/kept").read().split()}
number = 0
while True:
    checkpoints = GitCheckpoints(state)
    space = checkpoints.open("spc_1", root)
    for _ in range(3):
        number += 1
        for name in range(6):
            with open(f"{workspace}/{name}", "w") as file:
                file.write(f"{os.getpid()} {number} {name}" * 20)
        space.take()
    space._space.reported.clear()
    checkpoints.collect({"spc_1": frozenset(kept)})
    print("round", flush=True)
"""


def test_a_crash_while_writing_or_collecting_takes_nothing_that_is_kept(tmp_path, workspace, root):
    trees.write(workspace, {b"f%d" % number: ("file", 0o644, b"%d" % number) for number in range(30)})
    expected = trees.read(workspace)
    tree = fresh(tmp_path, root).take()
    (tmp_path / "state/kept").write_text(tree)
    generator = random.Random(3)
    for number in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, tmp_path / "state", workspace], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        # At least one whole round, then somewhere in the middle of another.
        assert writer.stdout.readline() == "round\n"
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(generator.random() / 50)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        place = tmp_path / f"copy-{number}"
        fresh(tmp_path, root).copy_out(tree, os.fspath(place))
        assert trees.read(place) == expected
    store = GitCheckpoints(os.fspath(tmp_path / "state"))
    store.collect({"spc_1": frozenset({tree})})
    assert [path.name for path in objects(tmp_path) if path.name.startswith("tmp_")] == []


# -- lines ----------------------------------------------------------------------------------------


def test_the_shortest_way_is_found_and_is_one():
    generator = random.Random(5)
    for _ in range(500):
        old = [generator.choice("abc") for _ in range(generator.randrange(12))]
        new = [generator.choice("abc") for _ in range(generator.randrange(12))]
        found = changes(old, new, Budget())
        rebuilt, at = [], 0
        for change in found:
            rebuilt += old[at : change.old_start] + new[change.new_start : change.new_end]
            at = change.old_end
        assert rebuilt + old[at:] == new
        steps = sum(change.old_end - change.old_start + change.new_end - change.new_start for change in found)
        assert steps == len(old) + len(new) - 2 * _longest_common(old, new)


def _longest_common(old: list[str], new: list[str]) -> int:
    row = [0] * (len(new) + 1)
    for mine in old:
        before = row[:]
        for at, other in enumerate(new):
            row[at + 1] = before[at] + 1 if mine == other else max(before[at + 1], row[at])
    return row[-1]


def test_beyond_the_budget_the_middle_is_replaced():
    old, new = ["same", *"abcdef", "end"], ["same", *"uvwxyz", "end"]
    assert changes(old, new, Budget(5)) == [(1, 7, 1, 7)]
