"""The documentation is current, its links lead somewhere, and the errors it explains exist."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from bascule.bridge_list import methods_of, tables_of
from bascule.broker.settings import BrokerSettings
from bascule.daemon import config
from bascule.daemon.compose import routes_of
from bascule.stores.schema import TABLES
from bascule.surfaces.openapi import document
from patience import PATIENCE

HERE = Path(__file__).resolve().parent.parent
# What others put into a checkout.
NOT_OURS = {".venv", ".venv-bench", ".git", ".pytest_cache", ".hypothesis", "node_modules", "build", "dist"}
PAGES = sorted(
    file for file in HERE.rglob("*.md") if not NOT_OURS & set(file.relative_to(HERE).parts) and file.stat().st_size
)
GENERATED = sorted(name for name in (HERE / "docs" / "reference").iterdir() if name.suffix in (".md", ".json"))
TROUBLES = HERE / "docs" / "troubleshooting.md"

LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# Fewer letters than this and a pattern made of an f-string would match anything.
MIN_LITERAL_CHARS = 10


def name(file: Path) -> str:
    return str(file.relative_to(HERE))


def generate(*arguments: str, root: Path = HERE) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, root / "tools" / "gen_docs.py", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        # A wide or narrow terminal must not change what is written.
        env={**os.environ, "COLUMNS": "43"},
    )


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of what the generator reads and writes."""
    named = ("conformance", "desktop_daemon", "desktop_host", "game", "mesh", "mesh_live", "mesh_nats", "tools", "wire")
    for folder in ("docs", "share", "tools", "src", "packages", *(f"tests/{name}" for name in named)):
        shutil.copytree(HERE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "openapi.json"))
    shutil.copy(HERE / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_generated_documentation_is_current():
    done = generate("--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_stale_page_is_named_and_left_alone_by_the_check_and_written_again_without_it(checkout):
    page = checkout / "docs" / "reference" / "errors.md"
    current = page.read_text("utf-8")
    page.write_text(current + "\nby hand\n", "utf-8")
    done = generate("--check", root=checkout)
    assert done.returncode == 1
    assert "docs/reference/errors.md" in done.stderr
    assert "make docs" in done.stderr
    assert page.read_text("utf-8").endswith("by hand\n")
    assert generate(root=checkout).stdout == "wrote docs/reference/errors.md\nwrote docs/reference/openapi.json\n"
    assert page.read_text("utf-8") == current
    # Built for whoever publishes the pages, and not kept: the daemon serves it.
    described = (checkout / "docs" / "reference" / "openapi.json").read_text("utf-8")
    assert json.loads(described) == json.loads(document(methods_of(), routes_of()))


def test_what_people_wrote_around_a_generated_block_stays(checkout):
    page = checkout / "docs" / "bridges" / "broker.md"
    text = page.read_text("utf-8")
    page.write_text(text.replace("# The agent broker", "# Another title").replace("| `pending` |", "| `gone` |"))
    assert generate(root=checkout).returncode == 0
    assert page.read_text("utf-8") == text.replace("# The agent broker", "# Another title")


@pytest.mark.parametrize("file", GENERATED, ids=name)
def test_no_generated_page_knows_the_machine_it_was_made_on(file):
    text = file.read_text("utf-8")
    for place in (str(HERE), sys.prefix, os.path.expanduser("~") + "/", os.uname().nodename + "/"):
        assert place not in text


@pytest.mark.parametrize("file", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(file):
    broken = []
    for target in LINK.findall(FENCE.sub("", file.read_text("utf-8"))):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        found = file if not path else (file.parent / path)
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


def anchors(file: Path) -> set[str]:
    """What a forge calls the headings of a page: lower case, punctuation gone, spaces to dashes, doubles numbered."""
    seen: Counter[str] = Counter()
    out = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", file.read_text("utf-8")), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        out.add(f"{words}-{seen[words]}" if seen[words] else words)
        seen[words] += 1
    return out


def test_every_page_of_the_documentation_is_reached_from_another():
    linked = {
        (file.parent / target.partition("#")[0]).resolve()
        for file in PAGES
        for target in LINK.findall(file.read_text("utf-8"))
        if not re.match(r"[a-z]+:", target)
    }
    pages = [file for file in PAGES if file.is_relative_to(HERE / "docs")]
    assert [name(file) for file in pages if file.resolve() not in linked] == []


def examples(kind: str) -> list[str]:
    text = (HERE / "docs" / "reference" / "config.md").read_text("utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_examples_of_the_settings_page_are_loaded_and_mean_the_same(tmp_path):
    loaded = []
    for kind, file in (("toml", "config.toml"), ("json", "broker.config.json")):
        (text,) = examples(kind)
        folder = tmp_path / kind
        folder.mkdir()
        (folder / file).write_text(text, "utf-8")
        loaded.append(config.load(str(folder), {}))
    assert loaded[0] == loaded[1] != config.from_values({})
    assert loaded[0].of(BrokerSettings).agents[0].pane == "%0"


def test_the_data_model_says_of_every_table_what_a_row_is_and_how_long_it_lives():
    text = (HERE / "docs" / "data-model.md").read_text("utf-8").partition("<!-- end -->")[2]
    described = set(re.findall(r"^\| `([a-z_]+)` \|(?:[^|\n]+\|){3}$", text, re.MULTILINE))
    assert described == {*tables_of(), *TABLES, "ledger"}


# `Gate._decide` in `src/bascule/kernel/gate.py`, or with the file in parentheses.
PLACE = re.compile(r"`([A-Za-z_][\w.]*)`\s(?:in\s|\()`((?:src|packages)/[\w/-]+\.py)`")


def defined_in(file: Path) -> set[str]:
    names: set[str] = set()

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(prefix + child.name)
                look(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.Assign | ast.AnnAssign):
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                names.update(prefix + ast.unparse(target) for target in targets)

    look(ast.parse(file.read_text("utf-8")), "")
    return names


def test_what_a_page_says_is_in_a_file_is_defined_there():
    places = {place for file in PAGES for place in PLACE.findall(file.read_text("utf-8"))}
    assert len(places) > 50
    assert sorted(place for place in places if place[0] not in defined_in(HERE / place[1])) == []


def sources_named(file: Path) -> set[str]:
    return set(re.findall(r"`((?:src|packages)/[\w/.-]*)`", file.read_text("utf-8")))


@pytest.mark.parametrize("file", [file for file in PAGES if file.name != "CHANGELOG.md"], ids=name)
def test_every_source_file_that_a_page_names_is_there(file):
    assert [each for each in sorted(sources_named(file)) if not (HERE / each).exists()] == []


# A test or a file of tests between backticks: `test_a_name`, `test_file.py`, `tests/folder/test_file.py`.
NAMED_TEST = re.compile(r"`(?:tests/(?:\w+/)*)?(test_\w+(?:\.py)?)`")
NAMED_PLACE = re.compile(r"`(tests/[\w/.-]+)`")


@pytest.fixture(scope="module")
def tests_there() -> set[str]:
    """Names of tests and of their files."""
    files = list((HERE / "tests").rglob("*.py"))
    defined = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
    return {file.name for file in files} | {each for file in files for each in defined.findall(file.read_text("utf-8"))}


def named_and_missing(text: str, there: set[str]) -> list[str]:
    text = FENCE.sub("", text)
    places = {place for place in NAMED_PLACE.findall(text) if not (HERE / place).exists()}
    return sorted(places | {each for each in NAMED_TEST.findall(text) if each not in there})


@pytest.mark.parametrize("file", [file for file in PAGES if file.name != "CHANGELOG.md"], ids=name)
def test_every_test_that_a_page_names_is_there(file, tests_there):
    assert named_and_missing(file.read_text("utf-8"), tests_there) == []


def test_the_search_for_tests_that_are_gone_finds_them(tests_there):
    gone = ["test_gone", "test_gone.py", "tests/mesh/test_gone.py"]
    here = ["test_docs.py", "tests/test_docs.py", "test_every_relative_link_leads_somewhere"]
    assert named_and_missing(" ".join(f"`{each}`" for each in gone + here), tests_there) == gone
    # The table of A2A is written by hand: its tests are among those that are looked for.
    assert len(NAMED_TEST.findall((HERE / "docs" / "bridges" / "a2a.md").read_text("utf-8"))) > 50


def test_every_installed_command_has_its_help_on_the_commands_page():
    scripts = tomllib.loads((HERE / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    text = (HERE / "docs" / "reference" / "cli.md").read_text("utf-8")
    assert [script for script in scripts if f"\n## {script}\n" not in text] == []


# -- troubleshooting ------------------------------------------------------------------------------


def error_texts() -> list[re.Pattern[str]]:
    """Every text in the sources, with anything where a value is put in."""
    patterns = set()
    for file in (file for folder in ("src", "packages") for file in (HERE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            literal, pattern = text_of(node)
            if len(literal) >= MIN_LITERAL_CHARS:
                patterns.add(pattern)
    return [re.compile(pattern, re.DOTALL) for pattern in patterns]


def text_of(node: ast.AST) -> tuple[str, str]:
    """The literal letters of a text, and a pattern for what it may become."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        # A rule's own words, where the policy puts in what it found.
        return node.value, re.sub(r"\\\{(command|path)\\\}", ".+", re.escape(node.value))
    if isinstance(node, ast.JoinedStr):
        parts = [text_of(part) if isinstance(part, ast.Constant) else ("", ".+") for part in node.values]
        return "".join(literal for literal, _ in parts), "".join(pattern for _, pattern in parts)
    return "", ""


def test_every_heading_of_troubleshooting_is_an_error_that_can_be_met():
    texts = error_texts()
    headings = re.findall(r"^## (.+)$", TROUBLES.read_text("utf-8"), re.MULTILINE)
    assert headings
    assert [heading for heading in headings if not any(text.fullmatch(heading) for text in texts)] == []
