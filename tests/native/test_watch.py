"""A watched project: what a checkpoint then holds is what a scan of everything finds, and a loss is noticed."""

import mmap
import os
import random
import shutil
import subprocess
import sys

import pytest

from bascule.workspace.machine.checkpoints import spaces
from bascule.workspace.machine.checkpoints.scan import ScanLimits
from bascule.workspace.machine.checkpoints.spaces import TOO_MANY_EVENTS, GitCheckpoints
from bascule.workspace.machine.checkpoints.watch import Watch, Watches
from bascule.workspace.machine.files import syscalls
from bascule.workspace.machine.files.roots import WorkspaceFiles
from patience import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
ROUNDS = 400 if os.environ.get("BASCULE_LONG") else 60


@pytest.fixture
def root(tmp_path):
    place = tmp_path / "project"
    for number in range(40):
        directory = place / f"d{number % 5}" / f"e{number % 3}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_text(f"{number}\n")
    return place


@pytest.fixture
def points(tmp_path, root):
    opened = WorkspaceFiles(forbidden=()).open_root(str(root))
    made = GitCheckpoints(str(tmp_path / "points")).open("spc_1", opened)
    made.take(watched=True)
    assert made.scans_because is None
    yield made
    made.stop_watching()
    opened.close()


def scanned(tmp_path, root):
    """As somebody sees it who remembers nothing."""
    opened = WorkspaceFiles(forbidden=()).open_root(str(root))
    try:
        return GitCheckpoints(str(tmp_path / f"fresh-{random.random()}")).open("spc_1", opened).take()
    finally:
        opened.close()


class Reads:
    """Counts directories that are read, so that nobody has to measure time."""

    def __init__(self, monkeypatch):
        self.count = 0
        real = os.scandir

        def counted(path):
            self.count += 1
            return real(path)

        monkeypatch.setattr("bascule.workspace.machine.checkpoints.scan.os.scandir", counted)

    def during(self, work):
        before = self.count
        work()
        return self.count - before


def test_a_project_in_which_nothing_changed_is_not_read(points, monkeypatch):
    reads = Reads(monkeypatch)
    assert reads.during(lambda: points.take(watched=True)) == 0
    # The control: without the watch every directory is read.
    assert reads.during(points.take) == 21


def test_only_directories_that_changed_are_read(points, root, monkeypatch, tmp_path):
    (root / "d1" / "e1" / "f1").write_text("changed")
    reads = Reads(monkeypatch)
    # The root, d1 and e1.
    assert reads.during(lambda: points.take(watched=True)) == 3
    assert points.take(watched=True) == scanned(tmp_path, root)


def _some_directory(root, rng):
    return rng.choice([root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())])


def _write(root, here, rng, number):
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    chosen = rng.choice(files) if files else here / "first"
    match rng.randrange(5):
        case 0:
            (here / f"new{number}").write_text(f"{number}")
        case 1:
            chosen.write_text(f"again {number}")
        case 2:
            chosen.unlink(missing_ok=True)
        case 3:
            (here / f"link{number}").symlink_to("nowhere")
        case 4:
            here.chmod(rng.choice([0o700, 0o755]))


def _move(root, here, rng, number):
    target = _some_directory(root, rng)
    apart = here != target and here not in target.parents and target not in here.parents
    match rng.randrange(5):
        case 0:
            shutil.rmtree(here)
        case 1 if apart:
            os.rename(here, target / f"moved{number}")
        case 2:
            # An empty directory of the last checkpoint becomes a full one by one rename.
            empty = here.parent / f"empty{number}"
            empty.mkdir()
            yield
            os.rename(here, empty)
        case 3 if apart and target != root:
            top = os.open("/", os.O_RDONLY)
            syscalls.exchange(top, str(here)[1:], top, str(target)[1:])
            os.close(top)
        case _:
            # Gone and there again under the same name.
            shutil.rmtree(here)
            (here / "below").mkdir(parents=True)
            (here / "below" / "instead").write_text(f"{number}")


def _act(root, rng, number):
    here = _some_directory(root, rng)
    if here == root or rng.random() < 0.5:
        _write(root, here, rng, number)
    else:
        yield from _move(root, here, rng, number)
    (root / f"d{number % 7}").mkdir(exist_ok=True)
    yield


@pytest.mark.parametrize("seed", range(6))
def test_a_watched_checkpoint_is_the_same_as_a_scan_of_everything(points, root, tmp_path, seed):
    rng = random.Random(seed)
    for number in range(ROUNDS):
        for _ in _act(root, rng, number):
            if rng.random() < 0.6:
                points.take(watched=True)
        if rng.random() < 0.2:
            points.take()
        if number % 5 == 0:
            assert points.take(watched=True) == scanned(tmp_path, root), f"after {number}"
    assert points.scans_because is None


def test_an_overflow_is_noticed_and_everything_is_looked_at(points, root, tmp_path, monkeypatch):
    # As the kernel says it: an event of no directory.
    overflow = (-1).to_bytes(4, sys.byteorder, signed=True) + (0x4000).to_bytes(4, sys.byteorder) + bytes(8)
    (root / "d2" / "e2" / "new").write_text("x")
    real = os.read
    events = iter([overflow])
    monkeypatch.setattr(
        "bascule.workspace.machine.checkpoints.watch.os.read", lambda fd, size: next(events, None) or real(fd, size)
    )
    assert points.take(watched=True) == scanned(tmp_path, root)
    assert points.scans_because == TOO_MANY_EVENTS
    monkeypatch.undo()
    (root / "d3" / "new").write_text("y")
    assert points.take(watched=True) == scanned(tmp_path, root)
    assert points.scans_because is None, "the watch goes on"


def test_a_directory_that_was_replaced_during_an_overflow_is_watched_again(points, root, tmp_path, monkeypatch):
    shutil.rmtree(root / "d1" / "e1")
    (root / "d1" / "e1").mkdir()
    monkeypatch.setattr(points._watch, "changed", points._watch._forget_inodes)
    points.take(watched=True)
    monkeypatch.undo()
    (root / "d1" / "e1" / "new").write_text("x")
    assert points.take(watched=True) == scanned(tmp_path, root)


def test_a_directory_that_was_moved_away_is_no_longer_watched(points, root, tmp_path):
    watched = len(points._watch)
    os.rename(root / "d1", tmp_path / "elsewhere")
    points.take(watched=True)
    assert len(points._watch) == watched - 4
    (tmp_path / "elsewhere" / "new").write_text("x")
    changed = points._watch.changed()
    assert not changed.dirty


def test_more_events_than_the_kernel_holds_lose_nothing(points, root, tmp_path):
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
        most = int(file.read())
    if most > 20_000:
        pytest.xfail("this kernel holds more events than a test should make")
    a, b = root / "d0" / "e0" / "a", root / "d1" / "e1" / "b"
    for path in (a, b):
        path.write_text("")
    # Two files in turn: the kernel folds equal events that follow each other.
    with open(a, "ab", buffering=0) as one, open(b, "ab", buffering=0) as other:
        for _ in range(most // 2 + 10):
            one.write(b"x")
            other.write(b"x")
    (root / "d4" / "late").write_text("not among the events")
    assert points.take(watched=True) == scanned(tmp_path, root)
    assert points.scans_because == TOO_MANY_EVENTS


@pytest.mark.parametrize("most", [5, 0])
def test_too_many_directories_are_scanned_and_it_says_why(tmp_path, root, most):
    opened = WorkspaceFiles(forbidden=()).open_root(str(root))
    points = GitCheckpoints(str(tmp_path / "points"), watches=Watches(most=most)).open("spc_1", opened)
    points.take(watched=True)
    (root / "new").write_text("x")
    assert points.take(watched=True) == scanned(tmp_path, root)
    assert "raise fs.inotify.max_user_watches" in points.scans_because
    opened.close()


def test_the_users_limit_of_watches_is_told_from_other_faults(tmp_path, root, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(syscalls, "inotify_add_watch", full)
    opened = WorkspaceFiles(forbidden=()).open_root(str(root))
    points = GitCheckpoints(str(tmp_path / "points")).open("spc_1", opened)
    points.take(watched=True)
    (root / "new").write_text("x")
    assert points.take(watched=True) == scanned(tmp_path, root)
    assert points.scans_because.startswith("the user's limit of watched directories is reached")
    opened.close()


def test_a_file_system_whose_changes_come_from_elsewhere_is_not_watched(tmp_path, root, monkeypatch):
    # NFS.
    monkeypatch.setattr(syscalls, "file_system", lambda _: 0x6969)
    opened = WorkspaceFiles(forbidden=()).open_root(str(root))
    points = GitCheckpoints(str(tmp_path / "points")).open("spc_1", opened)
    points.take(watched=True)
    assert "may change without the kernel knowing" in points.scans_because
    opened.close()


def test_the_least_recently_used_project_makes_room(tmp_path):
    store = GitCheckpoints(str(tmp_path / "points"), watches=Watches(limit=2))
    opened, points = [], []
    for number in range(3):
        place = tmp_path / f"p{number}"
        place.mkdir()
        opened.append(WorkspaceFiles(forbidden=()).open_root(str(place)))
        points.append(store.open(f"spc_{number}", opened[-1]))
        points[-1].take(watched=True)
    (tmp_path / "p0" / "new").write_text("x")
    # Its watch is gone, and begins again.
    assert points[0].take(watched=True) == scanned(tmp_path, tmp_path / "p0")
    assert points[0].scans_because is None
    for each in (*points, *opened):
        each.stop_watching() if hasattr(each, "stop_watching") else each.close()


def test_a_failed_checkpoint_does_not_lose_what_was_reported(points, root, tmp_path, monkeypatch):
    (root / "d1" / "new").write_text("x")
    monkeypatch.setattr(points._store, "flush", lambda: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(Exception, match="no checkpoint could be stored"):
        points.take(watched=True)
    monkeypatch.undo()
    assert points.take(watched=True) == scanned(tmp_path, root)


@pytest.mark.parametrize("place", ["d0/other", "../outside"])
def test_a_change_by_another_name_of_a_file_is_seen_at_both(points, root, tmp_path, monkeypatch, place):
    file = root / "d1" / "e1" / "f1"
    os.link(file, root / place)
    # A link to it from outside is not reported: the next change of its directory tells.
    file.with_name("beside").touch()
    points.take(watched=True)
    (root / place).write_text("by another name\n")
    assert points.content(points.take(watched=True), "d1/e1/f1") == b"by another name\n"
    assert points.take(watched=True) == scanned(tmp_path, root)


def test_of_more_links_than_are_looked_at_those_with_two_names_here_come_first(points, root, tmp_path, monkeypatch):
    monkeypatch.setattr(spaces, "MAX_LINKS", 4)
    (root / "packages").mkdir()
    (tmp_path / "store").mkdir()
    for number in range(20):
        (tmp_path / "store" / str(number)).write_text("x")
        os.link(tmp_path / "store" / str(number), root / "packages" / str(number))
    points.take(watched=True)
    os.link(root / "d1" / "e1" / "f1", root / "other")
    points.take(watched=True)
    (root / "other").write_text("by another name\n")
    assert points.content(points.take(watched=True), "d1/e1/f1") == b"by another name\n"
    assert points.take(watched=True) == scanned(tmp_path, root)


def test_a_gap_is_looked_at_every_time(tmp_path, root):
    """What no tree holds is not watched, and must not be taken for unchanged."""
    (root / "d1" / "large").write_bytes(b"x" * 2_000)
    opened = WorkspaceFiles(forbidden=()).open_root(str(root))
    points = GitCheckpoints(str(tmp_path / "points"), limits=ScanLimits(file_bytes=1_000, depth=2)).open("s", opened)
    (root / "d2" / "e2" / "deeper").mkdir()
    before = points.take(watched=True)
    (root / "d2" / "e2" / "deeper" / "new").write_text("x")
    after = points.take(watched=True)
    assert "d2/e2/deeper" in [each.path for each in points.unknown(before, after)]
    points.stop_watching()
    opened.close()


def test_repositories_in_directories_that_are_not_read_are_remembered(points, root):
    (root / "d1" / "e1" / ".git").mkdir()
    points.take(watched=True)
    (root / "d2" / "new").write_text("x")
    points.take(watched=True)
    assert list(points.repositories) == ["d1/e1/.git"]
    shutil.rmtree(root / "d1")
    points.take(watched=True)
    assert points.repositories == {}


def test_what_a_program_wrote_through_a_mapping_is_seen_when_it_has_ended(points, root, tmp_path):
    path = root / "d0" / "e0" / "f0"
    path.write_bytes(bytes(4_096))
    points.take(watched=True)
    code = "import mmap, sys\nf = open(sys.argv[1], 'r+b')\nm = mmap.mmap(f.fileno(), 0)\nm[0:1] = b'x'"
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=PATIENCE)
    assert points.take(watched=True) == scanned(tmp_path, root)


def test_an_open_mapping_is_seen_by_a_scan_of_everything_at_the_latest(points, root, tmp_path):
    """The watch's one hole, held here so that the documentation stays true."""
    path = root / "d0" / "e0" / "f0"
    path.write_bytes(bytes(4_096))
    points.take(watched=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        points.take(watched=True)
        mapped[0:1] = b"x"
        mapped.flush()
        assert points.take(since=0) == scanned(tmp_path, root)


def test_a_closed_watch_holds_nothing(root):
    descriptor = os.open(root, os.O_RDONLY)
    watch = Watch(descriptor, 10)
    watch.add("", descriptor)
    assert len(watch) == 1
    watch.close()
    watch.close()
    assert (len(watch), watch.changed()) == (0, None)
    os.close(descriptor)
