"""Commands and files in a space: the adapters beside the bare system and the peers, and the whole call beside them."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import processes
from bascule.client.spaces import SyncSpace
from bascule.client.sync import SyncClient
from processes import HERE
from report import Section, Settings, middle, millis, ratio

PATIENCE_SECONDS = 300.0
COMMANDS = 200
QUICK_COMMANDS = 10

BARE = "posix_spawn (the limit)"
CELL = "our sandbox, a warm cell"
WHOLE_MEMORY = "our whole call, in memory"
WHOLE_FSYNC = "our whole call, ledger on disk"
# What `bench/shells.py` calls them.
WAYS = {
    BARE: "bare",
    CELL: "cell",
    "bwrap for each command": "bwrap",
    "sandlock": "sandlock",
    "SWE-ReX, execute (no sandbox)": "swerex-execute",
    "SWE-ReX, session (no sandbox)": "swerex-session",
}

RAW_FILE = "open, write, rename (the limit)"
OUR_FILE = "our file service"
CHECKPOINT_FILES = 5_000
# A small project, one of ten thousand files, and one with its dependencies.
WATCHED_FILES = (1_000, 10_000, 57_000)
FILES_OF_A_DIRECTORY = 8
MESSAGE_OPERATIONS = 1_000
EARLIER_RUNS = (10, 1_000)


def commands(settings: Settings) -> Section:
    """`sh -c 'echo hi'`, one after the other, all ways in turn in every round."""
    section = Section("commands", "A command: `sh -c 'echo hi'`", ("", "p50", "p95", "/ limit"))
    taken: dict[str, list[float]] = {}
    times = QUICK_COMMANDS if settings.quick else COMMANDS // settings.rounds
    missing = []
    with processes.scratch(settings.directory) as directory, contextlib.ExitStack() as stack:
        whole = {
            WHOLE_MEMORY: stack.enter_context(_space(f"{directory}/memory", "memory")),
            WHOLE_FSYNC: stack.enter_context(_space(f"{directory}/fsync", "fsync")),
        }
        ways = dict(WAYS)
        for _ in range(settings.rounds):
            for name, way in list(ways.items()):
                try:
                    taken.setdefault(name, []).extend(_shells(way, times, directory))
                except processes.NotInstalled as error:
                    missing.append(str(error))
                    del ways[name]
                    taken.pop(name, None)
            for name, space in whole.items():
                taken.setdefault(name, []).extend(_timed(lambda space=space: _echo(space), times))
            settings.progress()
    limit = middle(taken[BARE])
    for name in sorted(taken, key=lambda each: middle(taken[each])):
        values = sorted(taken[name])
        p50, p95 = middle(values), values[int(len(values) * 0.95)]
        section.add(name, millis(p50 * 1000), millis(p95 * 1000), ratio(p50 / limit))
        section.keep(name, p50_ms=p50 * 1000, p95_ms=p95 * 1000)
    section.notes += missing
    section.notes.append(
        "The whole call is a run of one operation through the client: policy, ledger before and after the effect, "
        "checkpoints before and after the command."
    )
    return section


def files(settings: Settings) -> Section:
    """4 KiB written to a new name, atomically, again and again."""
    from bascule.workspace.machine.files.roots import WorkspaceFiles
    from bascule.workspace.paths import parse_path

    section = Section("files", "A file of 4 KiB: written whole, or not at all", ("", "p50", "/ limit"))
    times = 200 if settings.quick else 5_000
    data = b"x" * 4_096
    with processes.scratch(settings.directory) as directory, _space(f"{directory}/daemon", "fsync") as space:
        workspace = f"{directory}/workspace"
        os.mkdir(workspace)
        root = WorkspaceFiles(forbidden=()).open_root(workspace)
        numbers = iter(range(10**9))

        def raw() -> None:
            name = f"{workspace}/raw{next(numbers)}"
            with open(f"{name}.tmp", "wb") as file:
                file.write(data)
            os.rename(f"{name}.tmp", name)

        def ours() -> None:
            with root.resolve(parse_path(f"ours{next(numbers)}"), follow=False) as place:
                root.create(place, data, overwrite=False)

        ways: dict[str, Callable[[], object]] = {
            RAW_FILE: raw,
            OUR_FILE: ours,
            WHOLE_FSYNC: lambda: space.create_file(f"whole{next(numbers)}", "x" * 4_096),
        }
        taken: dict[str, list[float]] = {}
        for _ in range(settings.rounds):
            for name, way in ways.items():
                few = times // settings.rounds // (20 if name == WHOLE_FSYNC else 1)
                taken.setdefault(name, []).extend(_timed(way, max(5, few)))
        root.close()
    limit = middle(taken[RAW_FILE])
    for name, values in taken.items():
        section.add(name, f"{middle(values) * 1e6:.0f} us", ratio(middle(values) / limit))
        section.keep(name, p50_us=middle(values) * 1e6)
    return section


def messages(settings: Settings) -> Section:
    """One run of a thousand operations."""
    section = Section("messages", "One message of many operations", ("", "time", "each"))
    count = 50 if settings.quick else MESSAGE_OPERATIONS
    with processes.scratch(settings.directory) as directory, _space(f"{directory}/daemon", "fsync") as space:
        creates = [{"type": "createFile", "path": f"made/{each}", "content": "x"} for each in range(count)]
        reads = [{"type": "readFile", "path": f"made/{each}"} for each in range(count)]
        for name, operations in (("createFile", creates), ("readFile", reads)):
            (took,) = _timed(lambda operations=operations: _all_done(space, operations), 1)
            section.add(f"{count:,} {name} operations", millis(took * 1000), millis(took * 1000 / count))
            section.keep(name, ms=took * 1000)
    return section


def earlier_runs(settings: Settings) -> Section:
    """What a run costs after many others."""
    few, many = (2, 10) if settings.quick else EARLIER_RUNS
    section = Section("earlier-runs", "A run after many others", ("", f"after {few:,}", f"after {many:,}", "growth"))
    with processes.scratch(settings.directory) as directory, _space(f"{directory}/daemon", "memory") as space:
        ways: dict[str, Callable[[], object]] = {
            "one message": lambda: space.run([{"type": "message", "content": "x"}]),
            "one command": lambda: _echo(space),
            "the list of runs": lambda: space.runs(20),
        }
        costs: dict[str, list[float]] = {name: [] for name in ways}
        done = 0
        for earlier in (few, many):
            for each in range(done, earlier):
                space.run([{"type": "message", "content": str(each)}])
            done = earlier
            for name, way in ways.items():
                # What else happens on the machine between the two only adds.
                taken = sorted(_timed(way, 5 if settings.quick else 100))
                costs[name].append(taken[len(taken) // 10])
    for name, (first, last) in costs.items():
        section.add(f"`{name}`", millis(first * 1000), millis(last * 1000), ratio(last / first))
        section.keep(name, growth=last / first)
    section.notes.append(
        "The fastest tenth. Of a space 200 runs are kept: after those, each run makes the oldest one go."
    )
    return section


def checkpoints(settings: Settings) -> Section:
    from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
    from bascule.workspace.machine.files.roots import WorkspaceFiles
    from bascule.workspace.ports import Way, Ways

    count = 200 if settings.quick else CHECKPOINT_FILES
    section = Section("checkpoints", f"A checkpoint of {count:,} files of 3 KiB", ("", "time"))
    with processes.scratch(settings.directory) as directory:
        workspace = f"{directory}/workspace"
        _fill(workspace, count, 50)
        root = WorkspaceFiles(forbidden=()).open_root(workspace)
        points = GitCheckpoints(f"{directory}/points").open("spc_bench", root)
        trees: list[str] = []

        def take() -> None:
            trees.append(points.take())

        def undo() -> None:
            edits = points.edits(trees[0], trees[-1])
            points.bring(Ways(trees[0], {path: Way(new, old) for path, (old, new) in edits.items()}), dry_run=False)

        def record(what: str, way: Callable[[], object], times: int = 1) -> None:
            took = middle(_timed(way, times))
            section.add(what, millis(took * 1000))
            section.keep(what, ms=took * 1000)

        record("the first", take)
        record("nothing changed", take, 5)
        _change(workspace)
        record("10 files changed", take)
        record("diff of those", lambda: points.diff(trees[0], trees[-1], 1_000_000))
        record("undo of those", undo)
        root.close()
    return section


def watched_checkpoints(settings: Settings) -> Section:
    """What the hook of an agent's own tool waits for."""
    from bascule.workspace.machine.checkpoints.spaces import GitCheckpoints
    from bascule.workspace.machine.files.roots import WorkspaceFiles

    head = (
        "files",
        "the first",
        "scan, nothing changed",
        "watch, nothing changed",
        "scan, 10 changed",
        "watch, 10 changed",
    )
    section = Section("watched-checkpoints", "A checkpoint before an agent's own tool, by scan and by watch", head)
    for count in (200, 400) if settings.quick else WATCHED_FILES:
        with processes.scratch(settings.directory) as directory:
            workspace = f"{directory}/workspace"
            _fill(workspace, count, max(10, count // FILES_OF_A_DIRECTORY))
            root = WorkspaceFiles(forbidden=()).open_root(workspace)
            points = GitCheckpoints(f"{directory}/points").open("spc_bench", root)
            ways = {"watch": lambda points=points: points.take(watched=True), "scan": points.take}
            took = {"the first": middle(_timed(ways["watch"], 1))}
            for name, way in ways.items():
                took[f"{name}, nothing changed"] = middle(_timed(way, 5))
            for name, way in ways.items():
                times: list[float] = []
                for _ in range(5):
                    _change(workspace)
                    times += _timed(way, 1)
                took[f"{name}, 10 changed"] = middle(times)
            section.add(f"{count:,}", *(millis(took[each] * 1000) for each in head[1:]))
            section.keep(f"{count}", **{each: took[each] * 1000 for each in head[1:]})
            points.stop_watching()
            root.close()
    section.notes.append("Where inotify can be used; else each is a scan.")
    return section


def _fill(workspace: str, count: int, directories: int) -> None:
    for each in range(count):
        os.makedirs(f"{workspace}/{each % directories}", exist_ok=True)
        with open(f"{workspace}/{each % directories}/{each}", "wb") as file:
            file.write(os.urandom(1_500).hex().encode())


def _change(workspace: str) -> None:
    for each in range(10):
        with open(f"{workspace}/{each}/{each}", "ab") as file:
            file.write(b"changed\n")


@contextlib.contextmanager
def _space(directory: str, durability: str) -> Iterator[SyncSpace]:
    # Not beneath /var, where the scratch directory is: a space there asks first.
    with (
        tempfile.TemporaryDirectory(prefix="bascule-bench-") as workspace,
        processes.bascule(f"{directory}/state", durability=durability),
        SyncClient.connect(f"{directory}/state") as client,
    ):
        yield client.space(workspace)


def _echo(space: SyncSpace) -> None:
    event = space.exec("echo hi")
    if event.stdout != "hi\n":
        raise RuntimeError(f"echo answered {event}")


def _all_done(space: SyncSpace, operations: list[dict[str, str]]) -> None:
    result = space.run(operations)
    if not all(getattr(event, "success", False) for event in result.events):
        raise RuntimeError(f"not every operation succeeded: {result.status}")


def _shells(way: str, times: int, directory: str) -> list[float]:
    command = [sys.executable, os.path.join(HERE, "shells.py"), way, str(times), directory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        if "ModuleNotFoundError" in last or "No such file or directory: 'bwrap'" in last:
            raise processes.NotInstalled(f"{way} is not measured: {last}")
        raise RuntimeError(f"{way}: {done.stderr.strip()}")
    # Peers may log to stdout; the figures are the last line.
    taken: list[float] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return taken


def _timed(run: Callable[[], object], times: int) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return taken
