"""Runs and what undoes them in another format: moved aside whole before they are read, named, never half read."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from living import eventually, forked, short_dir

from bascule.bridge_list import BRIDGES
from bascule.daemon.opening import open_store
from bascule.testing import failpoints
from bascule.workspace import records
from native_scene import Scene, make_project

OURS = records.FORMAT
NUMBER = "format-runs"
TABLES = ("runs", "undos")
DIRECTORIES = ("checkpoints", "git-states", "outside")
CALL = "git reset -q --hard HEAD~1; rm -rf tests; echo new > ~/kept"
# As format 1 wrote them.
OLD_ROWS = {
    "runs": {
        "row": "run", "run_id": "run_old", "space_id": "spc_old", "number": 9, "started_by": "local", "started_at": 1,
        "status": "completed", "operations": 1,
        "segments": [{"before": "aa", "after": "bb", "began": 1, "ended": 2, "during": ["run_other"], "beside": []}],
    },
    "undos": {"run_id": "run_old", "started_by": "local", "at": 1, "undone": True, "segment": {"before": "aa"}},
}  # fmt: skip


@contextlib.contextmanager
def opened(state):
    connection = sqlite3.connect(os.path.join(state, "bascule.db"))
    with connection:
        yield connection
    connection.close()


def put(state, table, key, value):
    body = json.dumps(value).encode()
    with opened(state) as connection:
        row = (key, body, zlib.crc32(body, zlib.crc32(key.encode())))
        connection.execute(f"REPLACE INTO {table} VALUES (?, ?, ?)", row)


def make_old(state):
    """What a Bascule without a number has left."""
    with opened(state) as connection:
        connection.execute("DELETE FROM house WHERE key = ?", (NUMBER,))
    for table, row in OLD_ROWS.items():
        put(state, table, "old", row)


def rows(state):
    """Read from a copy: SQLite changes what it opens."""
    copy = f"{state}.copy"
    os.mkdir(copy)
    try:
        for name in ("bascule.db", "bascule.db-wal"):
            if os.path.exists(os.path.join(state, name)):
                shutil.copy(os.path.join(state, name), copy)
        with opened(copy) as connection:
            return {table: sorted(connection.execute(f"SELECT * FROM {table}")) for table in TABLES}
    finally:
        shutil.rmtree(copy)


def number(state):
    with opened(state) as connection:
        found = connection.execute("SELECT body FROM house WHERE key = ?", (NUMBER,)).fetchone()
    return json.loads(found[0])["text"] if found else None


def files(state):
    """Every file of the directories: its mode and bytes."""
    found = {}
    for directory in DIRECTORIES:
        for folder, _, names in os.walk(os.path.join(state, "workspace", directory)):
            for name in names:
                path = Path(folder, name)
                found[os.path.relpath(path, state)] = (path.stat().st_mode, path.read_bytes())
    return found


def asides(state):
    directory = os.path.join(state, "aside")
    return sorted(os.listdir(directory)) if os.path.isdir(directory) else []


def only_aside(state):
    (name,) = asides(state)
    return os.path.join(state, "aside", name)


def log_line(state):
    def newest():
        with open(os.path.join(state, "log", "daemon.log"), encoding="utf-8") as log:
            return next((json.loads(line) for line in log if '"moved_aside"' in line and line.endswith("\n")), None)

    return eventually(newest, "a line in the log")


def doctor(state):
    checks = json.loads(forked("doctor", "--json", "--state-dir", state).output)["checks"]
    return next(check for check in checks if check["name"] == "moved aside")


def run_ids(scene):
    return [run["runId"] for run in scene.wire.call("runs.list", {})]


@pytest.fixture
def scene(start_daemon, tmp_path):
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    make_project(home / "project")
    made = Scene(start_daemon(None, "--log", "human", env={"HOME": str(home)}), home / "project")
    made.note("SessionStart")
    yield made
    made.close()


def restart(scene):
    scene.daemon.start()
    scene.wire = type(scene.wire).connect(scene.daemon.state_dir)


def halt(scene):
    scene.wire.close()
    scene.daemon.stop()


@pytest.fixture
def worked(scene):
    """A stopped daemon with a run that can be undone, and an undo of another."""
    scene.undo(scene.run("echo x > undone; rm -rf empty")["runId"])
    scene.run_id = scene.run(CALL)["runId"]
    halt(scene)
    scene.state = scene.daemon.state_dir
    assert {path.split("/")[1] for path in files(scene.state)} == set(DIRECTORIES)
    assert all(rows(scene.state).values())
    return scene


def test_a_store_of_our_number_is_not_touched(worked):
    before, known = files(worked.state), rows(worked.state)
    assert number(worked.state) == str(OURS)
    restart(worked)
    assert asides(worked.state) == []
    assert doctor(worked.state)["result"] == "ok"
    halt(worked)
    assert (files(worked.state), rows(worked.state)) == (before, known)
    restart(worked)
    worked.undo(worked.run_id)
    assert (worked.root / "tests").is_dir()


@pytest.mark.parametrize("was", [1, OURS + 1])
def test_a_store_of_another_number_is_moved_aside_whole_and_named(worked, was):
    make_old(worked.state)
    if was != 1:
        put(worked.state, "house", NUMBER, {"text": str(was)})
    before, known = files(worked.state), rows(worked.state)
    restart(worked)
    assert run_ids(worked) == []
    assert [space["path"] for space in worked.wire.call("spaces.list", {})] == [str(worked.root)]
    aside = only_aside(worked.state)
    assert aside.endswith(f"-runs-format-{was}")
    assert stat.S_IMODE(os.stat(aside).st_mode) == stat.S_IMODE(os.stat(os.path.dirname(aside)).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(f"{aside}/bascule.db").st_mode) == 0o600
    assert (files(aside), rows(aside)) == (before, known)
    line = log_line(worked.state)
    assert (line["directory"], line["level"]) == (aside, "warning")
    assert f"format {was}" in line["holds"]
    assert f"rm -r '{aside}'" in line["next"]
    # And on the terminal.
    eventually(lambda: f"directory={aside}" in worked.daemon.log_text(), "a line on the terminal")
    answer = doctor(worked.state)
    assert answer["result"] == "info"
    assert aside in answer["message"]
    assert " MB" in answer["message"]
    assert f"rm -r '{aside}'" in answer["fix"]
    # What is new works, in the space that was there.
    worked.note("SessionStart")
    run_id = worked.run("rm -rf node_modules")["runId"]
    worked.undo(run_id)
    assert (worked.root / "node_modules").is_dir()
    halt(worked)
    assert not {"old", worked.run_id} & {key for table in rows(worked.state).values() for key, *_ in table}
    # Named for as long as it is there, and moved once.
    restart(worked)
    assert only_aside(worked.state) == aside
    assert run_id in run_ids(worked)
    shutil.rmtree(aside)
    assert doctor(worked.state)["result"] == "ok"


def test_a_bascule_of_that_format_can_be_started_on_what_was_moved(worked):
    put(worked.state, "house", NUMBER, {"text": "1"})
    restart(worked)
    aside = only_aside(worked.state)
    halt(worked)
    # Of its format we play the one that we know.
    put(aside, "house", NUMBER, {"text": str(OURS)})
    moved = shutil.move(aside, f"{worked.state}.moved")
    shutil.rmtree(worked.state)
    shutil.move(moved, worked.state)
    restart(worked)
    worked.undo(worked.run_id)
    assert (worked.root / "tests").is_dir()


# -- killed --

CHANGES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "sqlite3.connect"}
POINTS = ("store.rows:before", "store.commit:before", "store.commit:after")


def open_in_fork(state, *, dies_at=None, format_=OURS):
    """Whether a start got through; `dies_at`: at the n-th change in the directory aside, or at a failpoint."""
    child = os.fork()
    if not child:
        try:
            records.FORMAT = format_
            if isinstance(dies_at, str):
                failpoints.arm(dies_at)
            elif dies_at is not None:
                sys.addaudithook(_dying(dies_at))
            open_store("fsync", state, lambda *_, **__: None, BRIDGES).close()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def _dying(step):
    left = step

    def watch(event, arguments):
        nonlocal left
        if event in CHANGES and any("/aside" in os.fsdecode(each) for each in arguments if isinstance(each, str)):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return watch


def assert_nothing_half(state, before, known):
    """Rows and number go together, no directory is nowhere, and what has its last name is whole."""
    left = rows(state)
    assert left in (known, {table: [] for table in TABLES})
    here = (state, *(os.path.join(state, "aside", name) for name in asides(state)))
    assert {path: each for place in here for path, each in files(place).items()} == before
    if left != known or any(not name.endswith(".unfinished") for name in asides(state)):
        assert left != known
        aside = only_aside(state)
        assert (files(aside), rows(aside), files(state)) == (before, known, {})


def deaths(template, tmp_path):
    """States of starts that were killed: at each step, and at the commit."""
    step = 0
    points = iter(POINTS)
    while (dies_at := next(points, None) or (step := step + 1)) is not None:
        state = str(tmp_path / f"d{dies_at}")
        shutil.copytree(template, state, ignore=shutil.ignore_patterns("*.sock"))
        if open_in_fork(state, dies_at=dies_at):
            assert step > 10
            return
        yield dies_at, state


def test_a_start_that_is_killed_at_any_step_loses_nothing_and_the_next_one_finishes(worked, tmp_path):
    make_old(worked.state)
    before, known = files(worked.state), rows(worked.state)
    halves = 0
    for dies_at, state in deaths(worked.state, tmp_path):
        assert_nothing_half(state, before, known)
        halves += bool(asides(state)) and len(files(state)) not in (0, len(before))
        # The one that goes on is killed, too.
        open_in_fork(state, dies_at=1 + len(str(dies_at)))
        assert_nothing_half(state, before, known)
        assert open_in_fork(state)
        aside = only_aside(state)
        assert aside.endswith("-runs-format-1"), dies_at
        assert sorted(os.listdir(aside)) == ["bascule.db", "workspace"], dies_at
        assert (files(aside), rows(aside), files(state)) == (before, known, {}), dies_at
        assert (number(state), rows(state)) == (str(OURS), {table: [] for table in TABLES}), dies_at
        shutil.rmtree(state)
    assert halves


def test_doctor_warns_of_what_is_not_all_moved(worked):
    make_old(worked.state)
    assert not open_in_fork(worked.state, dies_at="store.commit:before")
    answer = doctor(worked.state)
    assert answer["result"] == "warn"
    assert "the next start goes on" in answer["fix"]


def test_what_another_bascule_had_begun_to_move_is_put_back_by_the_one_that_can_read_it(worked):
    before, known = files(worked.state), rows(worked.state)
    assert not open_in_fork(worked.state, dies_at="store.commit:before", format_=OURS + 1)
    assert files(worked.state) == {}
    restart(worked)
    halt(worked)
    assert (files(worked.state), rows(worked.state)) == (before, known)
    restart(worked)
    worked.undo(worked.run_id)
    assert (worked.root / "tests").is_dir()


# -- refused --


def up(state):
    done = forked("up", "--port", "0", "--state-dir", state)
    assert done.code == 7, done.output
    assert "Traceback" not in done.output
    return done.output


@pytest.fixture
def mount():
    """`mount(megabytes)`: a disk of that size, in a folder with a short name."""
    if os.getuid() != 0:
        assert os.environ.get("CI") != "true", "only root can mount a disk small enough to fill"
        pytest.skip("only root can mount a disk")
    with short_dir() as folder:
        state = f"{folder}/m"
        os.mkdir(state, 0o700)

        def make(megabytes):
            command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", state]
            done = subprocess.run(command, capture_output=True, check=False)
            if done.returncode:
                assert os.environ.get("CI") != "true", done.stderr
                pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
            return state

        yield make
        # Lazily: a process that a failed test left behind must not keep the mount.
        subprocess.run(["umount", "-l", state], check=False)


def test_a_disk_without_room_is_a_refusal_that_says_what_to_do(worked, mount, tmp_path):
    make_old(worked.state)
    with open(f"{worked.state}/bascule.db", "rb") as database:
        megabytes = 2 + os.fstat(database.fileno()).st_size // 2**20
    used = int(
        subprocess.run(["du", "-sm", worked.state], capture_output=True, text=True, check=True).stdout.split()[0]
    )
    state = mount(used + megabytes + 2)
    shutil.copytree(worked.state, state, ignore=shutil.ignore_patterns("*.sock"), dirs_exist_ok=True)
    before, known = files(state), rows_elsewhere(state, tmp_path)
    fill(state)
    answer = up(state)
    assert "keeps runs in format 1" in answer
    assert "make room there" in answer
    assert (files(state), rows_elsewhere(state, tmp_path)) == (before, known)
    os.unlink(f"{state}/ballast")
    assert open_in_fork(state)
    aside = only_aside(state)
    assert (files(aside), rows_elsewhere(aside, tmp_path)) == (before, known)


def rows_elsewhere(state, place):
    """The disk itself has no room for a copy."""
    copy = str(place / "elsewhere")
    shutil.copytree(state, copy, ignore=shutil.ignore_patterns("*.sock", "ballast", "workspace", "aside"))
    try:
        return rows(copy)
    finally:
        shutil.rmtree(copy)


def fill(state):
    """All but what a start itself needs: its log and its write-ahead log."""
    with open(f"{state}/ballast", "wb") as ballast:
        free = os.statvfs(state)
        ballast.write(bytes(max(0, free.f_bavail * free.f_frsize - 64 * 1024)))


@pytest.mark.parametrize("table", TABLES)
def test_a_row_of_our_number_that_cannot_be_read_is_a_refusal_that_names_it(worked, table):
    put(worked.state, table, "odd", {"row": "run", "segment": 1})
    answer = up(worked.state)
    assert f"{table} row 'odd' cannot be read: " in answer
    assert "start the version of Bascule that wrote it" in answer
    assert asides(worked.state) == []
