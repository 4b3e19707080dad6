"""File operations beside the bare system calls, and a checkpoint of 5,000 files beside the git program.

Both ways to a file take turns, so that whatever else the disk does meets both.
"""

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable

from bascule.adapters.checkpoints.spaces import GitCheckpoints
from bascule.adapters.checkpoints.stats import RACY_NS
from bascule.adapters.files.beneath import Opener, WalkingOpener, best_opener
from bascule.adapters.files.roots import WorkspaceFiles
from bascule.protocols.workspace_paths import parse_path
from processes import scratch
from report import Section, Settings, micros, middle, millis, ratio

DATA = b"x" * 4_096
TIMES = 3_000
FILES = 5_000
CHANGED = 10
CREATE, OVERWRITE, EDIT, READ = "create", "overwrite", "edit", "read"

Act = Callable[[int], None]


def files(settings: Settings) -> Section:
    section = Section("files", "A file of 4 KiB, p50", ("", "bare calls", "Bascule", "", "by our own walk", ""))
    with scratch(settings.directory) as directory:
        names = ("bare", "kernel", "walk")
        for name in names:
            os.mkdir(f"{directory}/{name}")
        acts = {
            "bare": _bare(f"{directory}/bare"),
            "kernel": _service(f"{directory}/kernel", best_opener()),
            "walk": _service(f"{directory}/walk", WalkingOpener()),
        }
        for operation in (CREATE, OVERWRITE, EDIT, READ):
            taken: dict[str, list[float]] = {name: [] for name in names}
            for number in range(TIMES // 30 if settings.quick else TIMES):
                for name in names:
                    began = time.perf_counter()
                    acts[name][operation](number)
                    taken[name].append(time.perf_counter() - began)
            bare, kernel, walk = (middle(taken[name]) * 1e6 for name in names)
            section.add(operation, micros(bare), micros(kernel), ratio(kernel / bare), micros(walk), ratio(walk / bare))
            section.keep(operation, bare_us=bare, p50_us=kernel, walk_us=walk)
            settings.progress()
    section.notes.append(
        "Bare: open, write, close and rename by absolute path (an edit reads first). Bascule: the same beneath the "
        "workspace's descriptor, so that no link leads out, with parents, mode and the name that must be free."
    )
    return section


def _bare(directory: str) -> dict[str, Act]:
    def write(number: int, name: str) -> None:
        temporary = f"{directory}/.{number}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, DATA)
        os.close(descriptor)
        os.rename(temporary, f"{directory}/{name}")

    def read(_number: int) -> None:
        descriptor = os.open(f"{directory}/x", os.O_RDONLY)
        os.read(descriptor, len(DATA) + 1)
        os.close(descriptor)

    def edit(number: int) -> None:
        read(number)
        write(number, "x")

    return {
        CREATE: lambda number: write(number, f"f{number}"),
        OVERWRITE: lambda number: write(number, "x"),
        EDIT: edit,
        READ: read,
    }


def _service(directory: str, opener: Opener) -> dict[str, Act]:
    root = WorkspaceFiles((), opener=opener).open_root(directory)
    path = parse_path("x")
    return {
        CREATE: lambda number: root.create(parse_path(f"f{number}"), DATA, overwrite=False),
        OVERWRITE: lambda _: root.create(path, DATA, overwrite=True),
        EDIT: lambda _: root.replace(path, DATA, expected=DATA),
        READ: lambda _: _nothing(root.read(path, len(DATA))),
    }


def _nothing(_value: object) -> None:
    pass


# -- checkpoints --


def checkpoint(settings: Settings) -> Section:
    count = FILES // 50 if settings.quick else FILES
    section = Section("checkpoint", f"A checkpoint of {count:,} files", ("", "Bascule", "the git program"))
    with scratch(settings.directory) as directory:
        workspace, generator = f"{directory}/workspace", random.Random(1)
        _fill(workspace, count, generator)
        ours, git = _Ours(workspace, directory), _Git(workspace, directory)
        first = [_timed(ours.take), _timed(git.take)]
        before = ours.tree, git.tree
        _row(section, "the first", *first)
        _settle(settings, section, "nothing changed", (ours, git), lambda: None)
        _settle(
            settings, section, f"{CHANGED} files changed", (ours, git), lambda: _change(workspace, count, generator)
        )
        _row(
            section,
            "what changed, as a diff",
            _timed(lambda: ours.diff(before[0])),
            _timed(lambda: git.diff(before[1])),
        )
        _row(section, "undo", _timed(lambda: ours.undo(before[0])), _timed(lambda: git.undo(before[1])))
        _row(section, "a copy of the workspace", _timed(lambda: ours.copy(f"{directory}/copy")), None)
    section.notes.append(
        "git: `add -A -f` and `write-tree` with a directory of its own, `diff`, `read-tree -u --reset`. It asks for "
        "no later changes before it undoes; Bascule looks twice."
    )
    return section


class _Ours:
    def __init__(self, workspace: str, directory: str) -> None:
        root = WorkspaceFiles(()).open_root(workspace)
        self._checkpoints = GitCheckpoints(f"{directory}/state").open("spc_bench", root)
        self.tree = ""

    def take(self) -> None:
        self.tree = self._checkpoints.take()

    def diff(self, before: str) -> None:
        self._checkpoints.diff(before, self.tree, 1_000_000)

    def undo(self, before: str) -> None:
        self._checkpoints.undo(before, self.tree, dry_run=False)

    def copy(self, into: str) -> None:
        self._checkpoints.copy_out(self.tree, into)


class _Git:
    """Not there where git is not installed."""

    def __init__(self, workspace: str, directory: str) -> None:
        self._there = shutil.which("git") is not None
        self._workspace = workspace
        self._environment = {**os.environ, "GIT_DIR": f"{directory}/git", "GIT_WORK_TREE": workspace}
        self.tree = ""
        self._run("init", "-q")

    def take(self) -> bool:
        self._run("add", "-A", "-f", ".")
        self.tree = self._run("write-tree").strip()
        return self._there

    def diff(self, before: str) -> bool:
        self._run("diff", before, self.tree)
        return self._there

    def undo(self, before: str) -> bool:
        self._run("read-tree", "-u", "--reset", before)
        return self._there

    def _run(self, *args: str) -> str:
        if not self._there:
            return ""
        command = ["git", *args]
        return subprocess.run(
            command, cwd=self._workspace, env=self._environment, check=True, capture_output=True, text=True
        ).stdout


def _fill(workspace: str, count: int, generator: random.Random) -> None:
    words = [f"{generator.getrandbits(40):x}" for _ in range(3_000)]
    for number in range(count):
        path = _path(workspace, count, number)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(" ".join(generator.choices(words, k=8)) for _ in range(30)))
    # No file is so young that it has to be read again.
    time.sleep(2 * RACY_NS / 1e9)


def _path(workspace: str, count: int, number: int) -> str:
    return f"{workspace}/d{number * 10 // count}/e{number * 100 // count}/f{number}.py"


def _change(workspace: str, count: int, generator: random.Random) -> None:
    for number in generator.sample(range(count), CHANGED):
        with open(_path(workspace, count, number), "a", encoding="utf-8") as file:
            file.write("\nmore")


def _settle(
    settings: Settings, section: Section, label: str, both: tuple[_Ours, _Git], act: Callable[[], None]
) -> None:
    runs = []
    for _ in range(settings.rounds):
        act()
        runs.append([_timed(each.take) for each in both])
        settings.progress()
    ours = middle([run[0] or 0 for run in runs])
    theirs = [run[1] for run in runs if run[1] is not None]
    _row(section, label, ours, middle(theirs) if theirs else None)


def _timed(act: Callable[[], object]) -> float | None:
    began = time.perf_counter()
    there = act()
    return None if there is False else (time.perf_counter() - began) * 1e3


def _row(section: Section, label: str, ours: float | None, git: float | None) -> None:
    section.add(label, millis(ours or 0), millis(git) if git is not None else "")
    section.keep(label, ms=ours, git_ms=git)
