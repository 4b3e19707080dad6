"""Who wrote each line: a plain model of lines and their writers, and the real daemon, git left out."""

import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from bascule.testing.house import House
from bascule.workspace.blame import NOT_HELD, Came, Origin, Owner, State, Work, blame, resume, spans
from bascule.workspace.blaming import Look, taken_away
from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
from bascule.workspace.machine.files.roots import WorkspaceFiles
from native_scene import Scene, git, make_project
from patience import PATIENCE

BASCULE = str(Path(sys.executable).parent / "bascule")


def traced(works, now, read, origin=lambda came: None):
    """`origin`: which file another one was before."""
    tracing, answer = blame(works, now, read), None
    while isinstance(found := resume(tracing, answer), Came):
        answer = origin(found)
    return found


def owners(works, now, origin=lambda came: None):
    """With versions that are their own text."""
    return [(owner.by, owner.run_id) for owner in traced(works, now, str.splitlines, origin)]


# -- versions in a row --


def test_lines_are_followed_back_through_later_edits():
    works = [
        Work("a", 10, 20, "one\ntwo\n", "one\nA\ntwo\n"),
        Work("b", 30, 40, "one\nA\ntwo\n", "B\none\nA\ntwo\n"),
    ]
    assert owners(works, "B\none\nA\ntwo\nperson\n") == [
        ("run", "b"),
        ("before", None),
        ("run", "a"),
        ("before", None),
        ("nobody known", None),
    ]


def test_of_runs_side_by_side_the_one_at_work_wrote_it():
    """`long` wrote its line after `short` was over; control: without the inner two versions all would be its."""
    works = [Work("long", 0, 100, "", "short\nlong\n"), Work("short", 10, 20, "", "short\n")]
    assert owners(works, "short\nlong\n") == [("run", "short"), ("run", "long")]
    assert owners(works[:1], "short\nlong\n") == [("run", "long"), ("run", "long")]


def test_a_run_that_was_taken_back_wrote_nothing():
    works = [Work("a", 10, 20, "one\n", "", undone=True), Work("b", 30, 40, "one\n", "one\nB\n")]
    assert owners(works, "one\nB\n") == [("before", None), ("run", "b")]
    kept = [works[0]._replace(undone=False), works[1]]
    assert owners(kept, "one\nB\n") == [("nobody known", None), ("run", "b")]


def test_behind_a_version_that_is_not_held_nothing_is_claimed():
    works = [Work("a", 10, 20, NOT_HELD, "one\n"), Work("b", 30, 40, "one\n", "one\nB\n")]
    assert owners(works, "one\nB\n") == [("not known", None), ("run", "b")]


def test_neighbours_of_one_owner_are_one_span():
    found = spans([Owner("run", "a"), Owner("run", "a"), Owner("before"), Owner("run", "a")])
    assert [(each.first, each.last, each.by) for each in found] == [(1, 2, "run"), (3, 3, "before"), (4, 4, "run")]
    assert spans([]) == []


@pytest.mark.parametrize("seed", range(50))
def test_a_history_of_edits_has_the_writers_of_a_plain_model(seed):
    """Every line is a text of its own, so there is one true answer: whoever put it there."""
    rng = random.Random(seed)
    lines = [(f"old {number}", ("before", None)) for number in range(rng.randrange(6))]
    works, clock = [], 0
    for number in range(rng.randrange(1, 30)):
        writer = rng.choice(["Claude", "Codex", "person"])
        before = "".join(f"{text}\n" for text, _ in lines)
        run = None if writer == "person" else f"{writer} {number}"
        # What a person did before the first run is as old as the rest.
        owner = ("run", run) if run else ("nobody known" if works else "before", None)
        for each in range(rng.randrange(4)):
            at = rng.randrange(len(lines) + 1)
            lines[at : at + rng.randrange(3)] = [(f"{number} {each} {rng.random()}", owner)]
        if run:
            works.append(Work(run, clock, clock + 5, before, "".join(f"{text}\n" for text, _ in lines)))
        clock += 10
    assert owners(works, "".join(f"{text}\n" for text, _ in lines)) == [owner for _, owner in lines]


@pytest.mark.parametrize("seed", range(20))
def test_a_history_with_renames_has_the_writers_of_a_plain_model(seed, tmp_path):
    """Real files and real trees. A line is a text of its own, and goes with its file to another name.

    A file with less than half of its lines left is another file, whose lines are all of the run that made it.
    """
    rng = random.Random(seed)
    root = tmp_path / "project"
    root.mkdir()
    points = GitCheckpoints(str(tmp_path / "points")).open("spc_1", WorkspaceFiles(forbidden=()).open_root(str(root)))
    files = {f"old{number}": [(f"old {number} {line}", ("before", None)) for line in range(6)] for number in range(3)}
    names = (f"d{number % 3}/f{number}" for number in count())
    works, counts, run = [], Counter(), None

    def write():
        for path in [path for path in root.rglob("*") if path.is_file()]:
            path.unlink()
        for name, lines in files.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text("".join(f"{text}\n" for text, _ in lines))
        return points.take()

    for number in range(rng.randrange(5, 20)):
        # Never a person twice: between two trees is one step.
        run = None if run and rng.randrange(4) == 0 else f"run {number}"
        before = write()
        owner = ("run", run) if run else ("nobody known" if works else "before", None)
        counts += changed(rng, files, names, number, owner)
        if run:
            works.append((run, 10 * number, 10 * number + 5, before, write()))
    now = write()
    wrong = []
    for name, lines in files.items():
        look = Look(State("spc_1", now), 0, name)
        if blame_by_trees(points, look, works) != [owner for _, owner in lines]:
            wrong.append(name)
    assert wrong == []
    assert counts["followed"]


def changed(rng, files, names, number, owner):
    """What one writer does to a project, as the model has it."""
    counts = Counter()
    for name in rng.sample(sorted(files), rng.randrange(min(3, len(files)) + 1)):
        was = files.pop(name)
        lines = list(was)
        for each in range(rng.randrange(3)):
            at = rng.randrange(len(lines) + 1)
            lines[at : at + rng.randrange(3)] = [(f"{number} {name} {each}", owner)]
        what = rng.choice(["edit", "rename", "rename", "remove"])
        if what == "rename":
            same = 2 * len([line for line in lines if line in was]) >= max(len(lines), len(was))
            counts["followed" if same else "another"] += 1
            files[next(names)] = lines if same else [(text, owner) for text, _ in lines]
        elif what == "edit" or len(files) < 2:
            files[name] = lines
    if rng.randrange(3) == 0:
        files[next(names)] = [(f"new {number} {line}", owner) for line in range(rng.randrange(1, 8))]
    return counts


def blame_by_trees(points, look, works):
    """The owners of a file of real trees, as the daemon finds them."""

    def versions(*trees):
        found = points.versions(trees, look.place)
        look.held |= {version: points for version in found if version is not None}
        return found

    def works_there():
        found = iter(versions(*[tree for work in works for tree in work[3:]]))
        return [
            Work(run, began, ended, next(found), next(found), states=(State("spc_1", old), State("spc_1", new)))
            for run, began, ended, old, new in works
        ]

    def origin(came):
        since, until = came.since.state, came.until.state or look.now
        found = taken_away(look, points, since.tree, until.tree, (look.place, came.until.version))
        if found is None:
            return None
        look.place = found[0]
        return Origin(found[1], works_there())

    found = traced(works_there(), *versions(look.now.tree), look.lines, origin)
    return [(owner.by, owner.run_id) for owner in found]


# -- the daemon --


def command(scene, *words):
    done = subprocess.run(
        [BASCULE, "blame", *words, "--state-dir", scene.daemon.state_dir],
        capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=scene.root,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def answer(scene, path):
    code, out, _ = command(scene, str(scene.root / path), "--json")
    assert code == 0
    return json.loads(out)


def test_each_line_names_its_call_and_a_person_is_not_one_of_them(scene):
    file = scene.root / "src" / "m1.py"
    was = file.read_text()
    first = scene.run("sed -i '1i first' src/m1.py")["runId"]
    file.write_text(file.read_text() + "by hand\n")
    second = scene.run("echo second >> src/m1.py")["runId"]
    found = answer(scene, "src/m1.py")
    assert [(each["first"], each["by"], each.get("runId")) for each in found["lines"]] == [
        (1, "run", first),
        (2, "before", None),
        (2 + len(was.splitlines()), "nobody known", None),
        (3 + len(was.splitlines()), "run", second),
    ]
    assert [run["runId"] for run in found["runs"]] == [second, first]
    code, out, _ = command(scene, f"{file}:1")
    assert code == 0
    assert "line 1: first" in out
    assert "sed -i '1i first' src/m1.py" in out
    assert f"bascule undo {first}" in out
    shown = command(scene, str(file))[1].splitlines()
    assert len(shown) == len(file.read_text().splitlines())
    assert shown[0].startswith(first)
    assert "before Bascule" in shown[1]
    assert "nobody known" in shown[-2]


def test_an_undo_leaves_no_line_of_the_call(scene):
    scene.run("echo kept >> src/m1.py")
    run_id = scene.run("sed -i '1i gone' src/m1.py")["runId"]
    assert run_id in {each.get("runId") for each in answer(scene, "src/m1.py")["lines"]}
    scene.undo(run_id)
    found = answer(scene, "src/m1.py")["lines"]
    assert [each["by"] for each in found] == ["before", "run"]
    assert run_id not in {each.get("runId") for each in found}


def parsed(porcelain):
    """As a script reads it: each line with the headers of its commit, and the names of these in their order."""
    commits, lines, orders, current = {}, [], [], b""
    for row in porcelain.split(b"\n")[:-1]:
        if row.startswith(b"\t"):
            lines.append((row[1:], commits[current]))
        elif re.fullmatch(rb"[0-9a-f]{40} \d+ \d+( \d+)?", row):
            current = row.split()[0]
            if current not in commits:
                commits[current] = {}
                orders.append([])
        else:
            name, _, value = row.partition(b" ")
            commits[current][name.decode()] = value
            orders[-1].append(name.decode())
    return lines, orders


@pytest.mark.parametrize("name", ["src/m1.py", 'src/\ta "b"é.py'])
def test_a_script_that_reads_gits_porcelain_reads_ours(scene, name):
    file = scene.root / name
    scene.run("echo x >> src/m1.py")
    file.write_bytes(b"\tindented\n\xff is no utf-8\n\x1b[31mred\nlast\n")
    git(scene.root, "add", "-A")
    git(scene.root, "commit", "-q", "-m", "third")
    done = [
        subprocess.run(words, cwd=scene.root, capture_output=True, check=True, timeout=PATIENCE).stdout
        for words in (
            ["git", "blame", "--porcelain", name],
            [BASCULE, "blame", "--porcelain", str(file), "--state-dir", scene.daemon.state_dir],
        )
    ]
    (theirs, orders), (ours, our_orders) = map(parsed, done)
    assert [text for text, _ in ours] == [text for text, _ in theirs] == file.read_bytes().split(b"\n")[:-1]
    further = {"previous", "boundary", "approved-by"}
    shapes = {tuple(each for each in order if each not in further) for order in [*orders, *our_orders]}
    assert len(shapes) == 1
    assert {head["filename"] for _, head in ours} == {head["filename"] for _, head in theirs}
    for _, head in ours:
        assert int(head["author-time"]) >= 0
        assert head["author-tz"] == b"+0000"


def test_git_reads_the_porcelain_as_it_reads_its_own(scene):
    """Not git itself, which makes it: its shape, line by line."""
    scene.run("echo new >> src/m1.py")
    lines = command(scene, str(scene.root / "src/m1.py"), "--porcelain")[1].splitlines()
    heads = [line for line in lines if not line.startswith("\t") and len(line.split(" ")[0]) == 40]
    assert len(heads) == len([line for line in lines if line.startswith("\t")])
    assert {"author", "author-time", "summary", "filename"} <= {line.split(" ")[0] for line in lines}
    mine = next(number for number, line in enumerate(lines) if line.startswith("summary echo new"))
    assert lines[mine + 1] == "filename src/m1.py"


FIVE = "printf 'one\\ntwo\\nthree\\nfour\\nfive\\n' > src/new.py"


@pytest.mark.parametrize(
    ("rename", "now"),
    [
        ("git add src/new.py && git mv src/new.py src/other.py && echo six >> src/other.py", "src/other.py"),
        ("mv src lib && echo six >> lib/new.py", "lib/new.py"),
        ("(cat src/new.py; echo six) > src/copy.py && rm src/new.py src/m4.py", "src/copy.py"),
    ],
)
def test_lines_keep_their_call_under_another_name(scene, rename, now):
    first = scene.run(FIVE)["runId"]
    second = scene.run(rename)["runId"]
    found = answer(scene, now)["lines"]
    assert [(each["first"], each["last"], each["runId"]) for each in found] == [(1, 5, first), (6, 6, second)]


def test_a_person_who_renames_a_file_takes_nobodys_lines(scene):
    first = scene.run(FIVE)["runId"]
    (scene.root / "src" / "new.py").rename(scene.root / "by-hand.py")
    assert {each["runId"] for each in answer(scene, "by-hand.py")["lines"]} == {first}
    # And once more, by a call, with the person's between two calls.
    scene.run("mkdir -p deep && mv by-hand.py deep/again.py")
    assert {each["runId"] for each in answer(scene, "deep/again.py")["lines"]} == {first}


def test_a_file_that_is_mostly_another_is_no_rename(scene):
    scene.run(FIVE)
    second = scene.run("(head -n 2 src/new.py; echo 3; echo 4; echo 5) > src/other.py; rm src/new.py")["runId"]
    assert {each["runId"] for each in answer(scene, "src/other.py")["lines"]} == {second}


def test_a_copy_is_no_rename(scene):
    scene.run(FIVE)
    second = scene.run("cp src/new.py src/other.py")["runId"]
    assert {each["runId"] for each in answer(scene, "src/other.py")["lines"]} == {second}


# -- who said yes --


def approvers(scene, path):
    found = answer(scene, path)
    (run,) = [run for run in found["runs"] if run["runId"] == found["lines"][-1]["runId"]]
    return run["approvedBy"]


def enforce(scene):
    scene.wire.call("native.mode", {"client": scene.client, "mode": "enforce"})


def test_where_hooks_decide_nothing_nobody_was_asked(scene):
    scene.run("echo new >> src/m1.py")
    assert approvers(scene, "src/m1.py") == ["nobody: observe"]
    last = len((scene.root / "src" / "m1.py").read_text().splitlines())
    assert "yes:   nobody: observe" in command(scene, f"{scene.root}/src/m1.py:{last}")[1]
    scene.wire.call("native.mode", {"client": "claude", "mode": "warn"})
    scene.run("echo newer >> src/m1.py")
    assert approvers(scene, "src/m1.py") == ["nobody: warn"]


def test_where_hooks_decide_the_rule_is_named_and_a_clients_own_dialog(scene):
    enforce(scene)
    rule = scene.run("echo new >> src/m1.py")["rule"]
    assert approvers(scene, "src/m1.py") == [f"rule: {rule}"]
    assert scene.run("echo newer >> src/m1.py; git push --dry-run nowhere")["verdict"] == "ask"
    assert approvers(scene, "src/m1.py") == ["client: its own dialog"]


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_yes_at_the_desk_is_a_persons(house, client):
    """Of what Codex cannot ask, and in the place of Claude Code's own dialog."""
    house.call("local", "native.mode", {"client": client, "mode": "enforce"})
    event = {"hook_event_name": "PreToolUse", "session_id": "s", "cwd": PROJECT, "tool_name": "Bash"}
    event |= {"tool_input": {"command": "git push origin main"}, "tool_use_id": "t1"}
    begun = patiently(house, house.begin("local", "native.before", {"client": client, "event": event}))
    asked = begun.get("question")
    if client == "claude":
        opened = {**event, "hook_event_name": "PermissionRequest"}
        asked = house.call("local", "sessions.note", {"client": client, "event": opened})["question"]
    pending = house.begin("local", "native.question", asked)
    until(house, lambda: house.call("local", "approvals.list"))
    (approval,) = house.call("local", "approvals.list")
    house.call("person", "approvals.decide", {"approvalId": approval["approvalId"], "decision": "approved"})
    assert patiently(house, pending)["record"] == "answered"
    after = {**event, "hook_event_name": "PostToolUse"}
    patiently(house, house.begin("local", "native.after", {"client": client, "event": after}))
    until(house, lambda: house.call("local", "runs.list")[0]["status"] == "completed")
    house.restart()
    assert house.call("local", "runs.list")[0]["approvedBy"] == ["person: passphrase"]


PROJECT = "/projects/project"


@pytest.fixture
def house():
    with House() as made:
        made.machine.directory(PROJECT, {"a.txt": b"a"})
        made.call("local", "person.set", {"passphrase": "correct horse battery staple"})
        yield made


def until(house, look):
    end = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < end
        # Threads are at work.
        time.sleep(0.0005)
        house.run(lambda: None)


def patiently(house, pending):
    until(house, lambda: pending.done)
    return pending.result()


# -- what was asked --

ASKED = "please repair the frobnicator, and make it shine; " * 8


@pytest.fixture
def prompted(start_daemon, tmp_path):
    """A session that was asked something, and a call of it; the daemon says all that it says."""
    project = tmp_path / "home" / "project"
    project.mkdir(parents=True)
    make_project(project)
    made = []

    def start(keep):
        settings = {"HOME": str(tmp_path / "home"), "BASCULE_NATIVE_KEEP_PROMPTS": keep}
        scene = Scene(start_daemon(None, "--log", "json", env=settings), project)
        made.append(scene)
        scene.note("SessionStart")
        scene.note("UserPromptSubmit", prompt=ASKED)
        scene.run("echo new >> src/m1.py")
        return scene

    yield start
    for scene in made:
        scene.close()


def files_with(text, scene):
    """Of the state and the log, which is beside it."""
    return {
        place.relative_to(scene.daemon.state_dir).parts[0] if place.is_relative_to(scene.daemon.state_dir) else "log"
        for place in Path(scene.daemon.state_dir).parent.rglob("*")
        if place.is_file() and text.encode() in place.read_bytes()
    }


def records(scene):
    """Everything that the ledger and the list of runs say."""
    return json.dumps([*(scene.wire.call(each, {}) for each in ("ledger.tail", "events.recent", "runs.list"))])


def test_what_an_agent_was_asked_is_kept_nowhere(prompted):
    scene = prompted("false")
    (run,) = answer(scene, "src/m1.py")["runs"]
    assert "prompt" not in run
    assert "frobnicator" not in records(scene)
    scene.daemon.stop()
    assert files_with("frobnicator", scene) == set()
    # Control: what is kept is found.
    assert files_with("echo new >> src/m1.py", scene)
    assert "native.before" in scene.daemon.log_text()


def test_with_the_setting_its_beginning_is_in_the_store_alone_and_in_blame(prompted):
    scene = prompted("true")
    (run,) = answer(scene, "src/m1.py")["runs"]
    assert run["prompt"] == ASKED[:200]
    last = len((scene.root / "src" / "m1.py").read_text().splitlines())
    assert f"asked: {ASKED[:200].strip()}" in command(scene, f"{scene.root}/src/m1.py:{last}")[1]
    assert "native.before" in records(scene)
    assert "frobnicator" not in records(scene)
    scene.daemon.stop()
    found = files_with("frobnicator", scene)
    assert {name.partition(".db")[0] for name in found} == {"bascule"}
    for name in found:
        assert (Path(scene.daemon.state_dir) / name).stat().st_mode & 0o777 == 0o600
    # What is beyond the beginning is nowhere.
    assert files_with(ASKED[:201], scene) == set()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["src/none.py"], "there is no file src/none.py"),
        (["src"], "there is no file src"),
        (["src/m1.py:9999"], "there is no line 9999"),
        (["/etc/hostname"], "no agent has worked where /etc/hostname is"),
        (["--json", "--porcelain", "src/m1.py"], "choose one"),
    ],
)
def test_what_cannot_be_told_is_refused_with_a_reason(scene, words, says):
    scene.run("echo new > new")
    code, out, err = command(scene, *words)
    assert code != 0
    assert out == ""
    assert says in err


def test_a_file_in_a_space_inside_another_knows_the_runs_of_both(scene):
    inner = scene.run("echo inner >> src/m1.py")["runId"]
    scene.wire.call("spaces.open", {"path": str(scene.root / "src")})
    found = answer(scene, "src/m1.py")
    assert found["path"] == "m1.py"
    assert found["lines"][-1]["runId"] == inner


def test_a_long_history_of_a_long_file_is_told_at_once():
    """2,000 lines and 300 runs: the time of this thread, whatever else the machine does."""
    rng = random.Random(7)
    lines = [f"line {number} {rng.random()}" for number in range(2_000)]
    versions = {}

    def version():
        versions[str(len(versions))] = list(lines)
        return str(len(versions) - 1)

    works = []
    for number in range(300):
        before = version()
        for _ in range(3):
            lines[rng.randrange(len(lines))] = f"{number} {rng.random()}"
        works.append(Work(f"run {number}", number * 10, number * 10 + 5, before, version()))
    began = time.thread_time()
    found = traced(works, version(), versions.__getitem__)
    assert time.thread_time() - began < 1
    assert len(found) == 2_000
