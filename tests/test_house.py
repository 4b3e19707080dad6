"""Facts about the tree that hold whatever is built next; each is a rule of CONTRIBUTING.md."""

import ast
import io
import json
import os
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

from patience import PATIENCE

HERE = Path(__file__).resolve().parent.parent
# A subject is one file, however long its state machine is; a file longer than this usually has a second subject in it.
MAX_LINES = 900

SOURCES = sorted(
    file for folder in ("src", "packages", "tests", "tools", "bench") for file in (HERE / folder).rglob("*.py")
)
PACKAGE = [file for file in SOURCES if file.relative_to(HERE).parts[0] in ("src", "packages")]

# The codes, then at least two words that say why.
SUPPRESSION = re.compile(r"#\s*(noqa|type:\s*ignore|pragma:\s*no cover)")
WITH_REASON = re.compile(
    r"#\s*(noqa:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*|type:\s*ignore\[[a-z, -]+\]|pragma:\s*no cover)"
    r"\W+\w+\W+\w+"
)


# What users import by its short name; everything else is found where it lives.
PUBLIC = frozenset({"client", "bascule_mod"})


def name(file: Path) -> str:
    return str(file.relative_to(HERE))


def parsed(source: str, *words: str) -> ast.Module:
    """Its tree; an empty one, which costs nothing, where none of the words that are looked for is in the text."""
    return ast.parse(source if any(word in source for word in words) else "")


def test_no_module_is_longer_than_the_limit():
    lengths = {name(file): len(file.read_text("utf-8").splitlines()) for file in SOURCES}
    assert {file: lines for file, lines in lengths.items() if lines > MAX_LINES} == {}


def test_no_two_modules_of_the_tests_have_one_name():
    """pytest imports them by that name alone: in a worker that has imported one, the other is never found."""
    seen: dict[str, list[str]] = {}
    for file in (HERE / "tests").rglob("*.py"):
        if file.name not in ("conftest.py", "__init__.py"):
            seen.setdefault(file.name, []).append(name(file))
    assert {file: places for file, places in seen.items() if len(places) > 1} == {}


@pytest.mark.parametrize("file", [file for file in PACKAGE if file.name == "__init__.py"], ids=name)
def test_a_package_is_introduced_by_a_docstring_and_nothing_else(file):
    body = ast.parse(file.read_text("utf-8")).body
    assert body, "say what this package is and what it may import"
    assert ast.get_docstring(ast.Module(body=body, type_ignores=[]))
    if file.parent.name in PUBLIC:
        return
    rest = [ast.unparse(statement) for statement in body[1:]]
    if file.parent.name == "bascule":
        # Where the build reads the version from.
        rest = [line for line in rest if not line.startswith("__version__ = ")]
    assert rest == []


def test_every_folder_of_the_package_is_a_package():
    folders = {file.parent for file in PACKAGE}
    assert [name(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def loose_tasks(source: str, *, kept: bool) -> list[int]:
    """Lines that start a task which nobody owns, so that its error would be lost with it, and its end left to chance.

    A TaskGroup and `foundation.tasks.Tasks` own theirs; `asyncio` and event loops do not. `kept`: also those that are
    given a name; with `ensure_future` that is for what is awaited or cancelled in the same function.
    """
    lines = set()
    for node in ast.walk(parsed(source, "create_task", "ensure_future")):
        call = node.value if isinstance(node, ast.Expr) else node
        if not isinstance(call, ast.Call):
            continue
        owner, _, called = ast.unparse(call.func).rpartition(".")
        starts = called == "create_task" and (kept or isinstance(node, ast.Expr))
        starts |= called == "ensure_future" and isinstance(node, ast.Expr)
        if starts and (owner in ("", "asyncio") or "loop" in owner):
            lines.add(node.lineno)
    return sorted(lines)


def test_no_task_is_started_and_forgotten():
    found = {name(file): loose_tasks(file.read_text("utf-8"), kept=False) for file in SOURCES}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_every_task_of_the_package_has_an_owner():
    found = {name(file): loose_tasks(file.read_text("utf-8"), kept=True) for file in PACKAGE}
    owners = {file: len(lines) for file, lines in found.items() if lines}
    assert owners == {"src/bascule/foundation/tasks.py": 1}


def test_the_search_for_forgotten_tasks_finds_them():
    forgotten = "asyncio.create_task(x())\nself._loop.create_task(x())\nasyncio.get_running_loop().create_task(x())\n"
    kept = "task = loop.create_task(x())\n"
    owned = "group.create_task(x())\nself._tasks.start(x(), 'x')\ntasks.add(asyncio.ensure_future(x()))\n"
    assert loose_tasks(forgotten + kept + owned, kept=False) == [1, 2, 3]
    assert loose_tasks(forgotten + kept + owned, kept=True) == [1, 2, 3, 4]


def private_modules(source: str) -> list[str]:
    """Modules of others that are imported though their names say that they may change any day."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    private = re.compile(r"(^|\.)_(?!_)")
    return [module for module in found if private.search(module) and not module.startswith("bascule.")]


def test_no_private_module_is_imported():
    found = {name(file): private_modules(file.read_text("utf-8")) for file in PACKAGE}
    assert {file: modules for file, modules in found.items() if modules} == {}
    assert private_modules("import re._parser\nfrom re import _parser\nfrom __future__ import annotations\n") == [
        "re._parser",
        "re._parser",
    ]


WAITS = re.compile(r"(?:subprocess\.run|asyncio\.(?:timeout|wait_for)|mark\.timeout|\.(?:communicate|wait|join))\Z")


def hasty_bounds(source: str) -> list[int]:
    """Lines that give an event a time of their own, or assert how little went by: a busy machine needs longer.

    What must happen is waited for under tests/patience.py. Speed is measured in bench/. Work that must not explode is
    measured by `time.thread_time()`. Less than three seconds are no patience: there a test wants the time to run out.
    """
    lines = []
    for node in ast.walk(parsed(source, "monotonic", "perf_counter", "time.time", "timeout", "wait", "join")):
        text, bounds = "", []
        if isinstance(node, ast.Compare) and isinstance(node.ops[-1], ast.Lt | ast.LtE):
            text = ast.unparse(node)
            bounds = [node.comparators[-1]] if re.search(r"\b(monotonic|perf_counter|time\.time)\(\) - ", text) else []
        elif isinstance(node, ast.BinOp) and ast.unparse(node.left).endswith("time.monotonic()"):
            bounds = [node.right] if isinstance(node.op, ast.Add) else []
        elif isinstance(node, ast.Call) and WAITS.search(ast.unparse(node.func)):
            bounds = [each.value for each in node.keywords if each.arg == "timeout"]
            bounds += node.args[-1:] if ast.unparse(node.func).startswith(("asyncio", "pytest")) else []
        if any(isinstance(each, ast.Constant) and (text or each.value >= 3) for each in bounds):
            lines.append(node.lineno)
    return sorted(lines)


def test_no_test_fails_because_a_machine_is_slow():
    tests = [file for file in SOURCES if file.is_relative_to(HERE / "tests")]
    found = {name(file): hasty_bounds(file.read_text("utf-8")) for file in tests}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_the_search_for_hasty_bounds_finds_them():
    hasty = [
        "assert time.monotonic() - began < 60",
        "assert 1 <= perf_counter() - began < 9.5",
        "subprocess.run(command, timeout=60)",
        "process.wait(timeout=30)",
        "end = time.monotonic() + 20",
        "async with asyncio.timeout(60): pass",
        "asyncio.wait_for(story(), 60)",
        "pytestmark = pytest.mark.timeout(300)",
    ]
    patient = [
        "assert 1 <= time.monotonic() - began < 1 + PATIENCE",
        "assert time.thread_time() - began < 5",
        "subprocess.run(command, timeout=PATIENCE)",
        "client.wait(ticket, timeout=0.05)",
        "pytestmark = pytest.mark.timeout(2 * PATIENCE)",
    ]
    assert hasty_bounds("\n".join(hasty)) == list(range(1, len(hasty) + 1))
    assert hasty_bounds("\n".join(patient)) == []


def silent_skips(source: str) -> list[int]:
    """Lines that skip a test in CI too: neither `CI` nor a platform is asked about where it is decided.

    A test that is skipped where it matters proves nothing, and nobody reads the list of skips.
    """
    lines: list[int] = []

    def look(node: ast.AST, decides: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.If):
            decides = node if isinstance(decides, ast.Module | ast.ClassDef) else decides
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func).rpartition(".")[2]
            if (called in ("skip", "importorskip") and "'CI'" not in ast.unparse(decides)) or (
                called == "skipif" and not re.search(r"'CI'|\bplatform\b", ast.unparse(node))
            ):
                lines.append(node.lineno)
        for child in ast.iter_child_nodes(node):
            look(child, decides)

    look(parsed(source, "skip"), ast.Module(body=[], type_ignores=[]))
    return lines


def test_in_ci_nothing_is_skipped_but_for_its_platform():
    found = {name(file): silent_skips(file.read_text("utf-8")) for file in SOURCES}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_the_search_for_silent_skips_finds_them():
    silent = (
        "def test_a():\n    pytest.skip('no tmux')\n"
        "@pytest.mark.skipif(os.getuid() != 0, reason='root')\ndef test_b(): ...\n"
        "if which('x') is None:\n    pytest.skip('no x', allow_module_level=True)\n"
        "y = pytest.importorskip('y')\n"
    )
    loud = (
        "def missing(what):\n    if os.environ.get('CI') == 'true':\n        pytest.fail(what)\n    pytest.skip(what)\n"
        "@pytest.mark.skipif(root and os.environ.get('CI') != 'true', reason='root')\ndef test_b(): ...\n"
        "@pytest.mark.skipif(sys.platform != 'linux', reason='/proc')\ndef test_c(): ...\n"
        "if which('x') is None and os.environ.get('CI') != 'true':\n    pytest.skip('no x')\n"
    )
    assert silent_skips(silent) == [2, 3, 6, 7]
    assert silent_skips(loud) == []


# What decides about a call, and the one function that may ask it: where a call is counted, judged, paid for.
DECIDED_IN = {
    ("policy", "cached_verdict"): ("src/bascule/kernel/gate.py", "_decide"),
    ("policy", "decide"): ("src/bascule/kernel/gate.py", "_decide"),
    ("quota", "take"): ("src/bascule/kernel/gate.py", "_admit"),
    ("desk", "spend"): ("src/bascule/kernel/effects.py", "spend"),
}
# The policy itself, and what only shows what it would say: `bascule policy explain`, the list of MCP tools.
EXPLAINS = ("src/bascule/kernel/policy/", "src/bascule/admin/rulebook.py", "src/bascule/surfaces/mcp/surface.py")


def uses_of(owner: str, method: str, source: str) -> list[str]:
    """The functions that name this method of this thing (`self._desk.spend`), one for each place."""
    found: list[str] = []

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Attribute) and node.attr == method:
            last = ast.unparse(node.value).rpartition(".")[2]
            if last.lstrip("_") == owner:
                found.append(function)
        for child in ast.iter_child_nodes(node):
            look(child, function)

    look(parsed(source, method), "")
    return found


@pytest.mark.parametrize("decided", DECIDED_IN, ids=".".join)
def test_a_call_is_decided_counted_and_paid_for_in_one_place(decided):
    files = [file for file in PACKAGE if not name(file).startswith(EXPLAINS)]
    places = [(name(file), function) for file in files for function in uses_of(*decided, file.read_text("utf-8"))]
    assert places == [DECIDED_IN[decided]]


def test_the_search_for_places_that_decide_finds_them():
    source = "def f(self):\n    self._policy.decide(1)\n    ask = gate.policy.decide\n    desk.decide(2)\n"
    assert uses_of("policy", "decide", source) == ["f", "f"]


# Directories whose tests see the daemon as its users do, and the one module through which they reach what is behind.
BLACK_BOX = ("conformance", "e2e", "mcp")
INSIDE = HERE / "tests" / "inside.py"
PARTS = {path.stem for path in (HERE / "src" / "bascule").iterdir()} - PUBLIC - {"__init__", "py"}
# `bascule.daemon.config`, as an import in a program's text or as a name to be patched; not `bascule.db`.
NAMES_A_PART = re.compile(rf"\bbascule\.({'|'.join(sorted(PARTS))})\b|\bfrom bascule import\b")


def imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(module)):
            return [f"{module}.{alias.name}" for alias in node.names]
    return []


def reaches_inside(source: str) -> list[int]:
    """Lines that name a part of the package which is not for users, or that patch anything of it."""
    lines, ours = [], set()
    for node in ast.walk(ast.parse(source)):
        names = [each.split(".") for each in imported(node)]
        if any(each[0] in ("bascule", "inside") for each in names):
            ours |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        if (
            any(each[0] == "bascule" and each[1:2] not in ([part] for part in PUBLIC) for each in names)
            or (isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMES_A_PART.search(node.value))
            or (isinstance(node, ast.Call) and patched(node) in ours)
        ):
            lines.append(node.lineno)
    return sorted(lines)


def patched(call: ast.Call) -> str | None:
    """Of what: `x` for `monkeypatch.setattr(x.y, "z", 1)` and its like."""
    called = ast.unparse(call.func).rpartition(".")[2]
    if called not in ("setattr", "delattr", "setitem", "delitem", "object", "dict") or not call.args:
        return None
    return ast.unparse(call.args[0]).split(".")[0]


def black_box_files() -> set[Path]:
    """Everything below these directories, and the helpers elsewhere that they import."""
    homes: dict[str, list[Path]] = {}
    for file in SOURCES:
        if file.is_relative_to(HERE / "tests"):
            homes.setdefault(file.stem, []).append(file)
    found: set[Path] = {INSIDE}
    wanted = [file for folder in BLACK_BOX for file in SOURCES if file.is_relative_to(HERE / "tests" / folder)]
    while wanted:
        file = wanted.pop()
        if file in found:
            continue
        found.add(file)
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for module in {each.split(".")[0] for each in imported(node)} - {"conftest"}:
                wanted += homes.get(module, [])
    return found - {INSIDE}


def test_black_box_tests_reach_the_inside_through_one_module_only():
    files = black_box_files()
    assert {"living.py", "wires.py", "speaking.py", "spec_peers.py"} <= {file.name for file in files}
    found = {name(file): reaches_inside(file.read_text("utf-8")) for file in sorted(files)}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_the_search_for_ways_inside_finds_them():
    inside = (
        "from bascule.foundation import paths as places\nimport bascule.daemon.config\nfrom bascule.surfaces.mcp.door "
        "import McpDoor\n"
        "monkeypatch.setattr('bascule.kernel.consent.limits.HTTP_SLICE_SECONDS', 1)\n"
        "Living(state, constants={'bascule.surfaces.http.connection.HEAD_SECONDS': 1})\n"
        "run([sys.executable, '-m', 'bascule.cli.start'])\nrun(['python', '-c', 'from bascule.foundation import "
        "paths as places'])\n"
        "import bascule\nfrom inside import Tmux\nmonkeypatch.setattr(Tmux, 'port', 1)\n"
    )
    outside = (
        "from bascule.client import SyncClient\nimport bascule_mod\nfrom inside import BASCULE\n"
        "database = 'bascule.db'\nrun(['bascule', 'up'])\nmonkeypatch.setenv('BASCULE_MCP', 'off')\n"
    )
    assert reaches_inside(inside) == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    assert reaches_inside(outside) == []


@pytest.mark.parametrize("file", SOURCES, ids=name)
def test_every_suppressed_check_says_why_on_its_line(file):
    text = file.read_text("utf-8")
    if not SUPPRESSION.search(text):
        return
    comments = [
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT
    ]
    assert [text for text in comments if SUPPRESSION.search(text) and not WITH_REASON.search(text)] == []


def test_the_readme_names_the_two_commands_a_newcomer_needs():
    readme = (HERE / "README.md").read_text("utf-8")
    assert "make up" in readme
    assert "make test" in readme


def test_ci_runs_the_command_of_the_readme():
    script = HERE / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text("utf-8").rstrip().endswith("\nexec make test")


def test_make_help_names_every_target_a_person_would_type():
    makefile = (HERE / "Makefile").read_text("utf-8")
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[1].split())
    # What other targets need; nobody types these.
    targets -= {"help", "environment", "dev-environment", "packages", "warm"}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make"], cwd=HERE, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert {line.split()[1] for line in done.stdout.splitlines() if line.startswith("  make ")} == targets


def test_the_licence_is_the_one_the_package_names():
    assert 'license = "Apache-2.0"' in (HERE / "pyproject.toml").read_text("utf-8")
    licence = (HERE / "LICENSE").read_text("utf-8")
    assert "Apache License\n" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_the_newest_changelog_heading_is_the_version_that_is_built():
    version = re.search(r'^__version__ = "(.+)"$', (HERE / "src/bascule/__init__.py").read_text("utf-8"), re.MULTILINE)[
        1
    ]
    headings = re.findall(r"^## \[([^\]]+)\]", (HERE / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == version


def test_the_registry_s_entry_is_of_this_package_and_starts_the_mcp_server():
    """Its schema's own limits; ownership is shown by the same name in the README."""
    entry = json.loads((HERE / "server.json").read_text("utf-8"))
    version = re.search(r'^__version__ = "(.+)"$', (HERE / "src/bascule/__init__.py").read_text("utf-8"), re.MULTILINE)
    (package,) = entry["packages"]
    assert entry["version"] == package["version"] == version[1]
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
    assert len(entry["description"]) <= 100
    assert f"<!-- mcp-name: {entry['name']} -->" in (HERE / "README.md").read_text("utf-8")
    assert [each["value"] for each in package["packageArguments"]] == ["mcp"]


# -- words ----------------------------------------------------------------------------------------

# Words of an old dialect; CONTRIBUTING.md says what to write instead. Sentences may have them, names may not.
MANNERED = re.compile(
    r"(^|_)(told|tells?|telling|teller|whoever|drawn|tied|carry|carries|carried|carrier|kin|heard|hears?|said|lent|deaf"
    r"|let_go|for_now|put_before|with_a_turn|what_was_left|what_it_said)(_|$)"
)
# A test is found by its name alone, in `-k` and in the logs of CI.
NO_SUBJECT = re.compile(r"test_(and|but|it|its|so|nor|unless|also|they|them|their|those|whoever|or|then|because)_")


def defined(tree):
    """Every name that a module defines: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def mannered(text):
    names = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in defined(ast.parse(text))}
    # A test's name is a sentence: only its beginning is looked at.
    return {name for name in names if (NO_SUBJECT.match(name) if name.startswith("test_") else MANNERED.search(name))}


def test_names_are_plain_words():
    found = {}
    for folder in ("src", "tests", "tools", "bench", "examples", "packages"):
        for path in sorted((HERE / folder).rglob("*.py")):
            if names := mannered(path.read_text("utf-8")):
                found[str(path.relative_to(HERE))] = sorted(names)
    assert found == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def _tell(): pass", "_tell"),
        ("class Teller: pass", "teller"),
        ("def f(told): pass", "told"),
        ("self.let_go = 1", "let_go"),
        ("with open(x) as drawn: pass", "drawn"),
        ("def test_and_not_when_anything_else_is_there(): pass", "test_and_not_when_anything_else_is_there"),
    ],
)
def test_a_planted_mannered_name_is_found(text, name):
    assert mannered(text) == {name}
