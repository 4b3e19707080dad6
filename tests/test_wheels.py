"""The three distributions as users get them: what `make wheel` builds, installed where there is no checkout.

`make fresh` does the same in a Debian of its own, with dependencies from the index.
"""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from patience import PATIENCE

HERE = Path(__file__).resolve().parent.parent
# Name of the distribution: where its package lies.
SOURCES = {
    "gabp": HERE / "packages/gabp/src/gabp",
    "bascule_mod": HERE / "packages/bascule-mod/src/bascule_mod",
    "bascule": HERE / "src/bascule",
}
MANUAL = "share/man/man1/bascule.1"
VERSION = re.search(r'^__version__ = "(.+)"$', (SOURCES["bascule"] / "__init__.py").read_text("utf-8"), re.MULTILINE)[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = run(["make", "wheel", f"DIST={folder}"], cwd=HERE, env=variables)
    built = {f"{name}-{VERSION}{end}" for name in SOURCES for end in ("-py3-none-any.whl", ".tar.gz")}
    assert {Path(line).name for line in done.splitlines()} == built == set(os.listdir(folder))
    return folder


def run(command: list[str | Path], *, seconds: float = PATIENCE, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def source_files(name: str) -> set[str]:
    """Every file of the package, modules and data, by the name that it has when it is installed."""
    folder = SOURCES[name]
    found = (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {str(file.relative_to(folder.parent)) for file in found}


def metadata(dist: Path, name: str):
    with zipfile.ZipFile(dist / f"{name}-{VERSION}-py3-none-any.whl") as wheel:
        return Parser().parsestr(wheel.read(f"{name}-{VERSION}.dist-info/METADATA").decode())


@pytest.mark.parametrize("name", SOURCES)
def test_a_wheel_holds_every_file_of_its_package_and_its_licence_and_nothing_else(dist, name):
    with zipfile.ZipFile(dist / f"{name}-{VERSION}-py3-none-any.whl") as wheel:
        files = set(wheel.namelist())
    about = {file for file in files if file.startswith(f"{name}-{VERSION}.dist-info/")}
    beside = {f"bascule-{VERSION}.data/data/{MANUAL}"} if name == "bascule" else set()
    assert files - about == source_files(name) | beside
    assert f"{name}/py.typed" in files
    assert f"{name}-{VERSION}.dist-info/licenses/LICENSE" in about


@pytest.mark.parametrize("name", SOURCES)
def test_an_sdist_holds_what_its_wheel_is_built_from_and_no_tests(dist, name):
    with tarfile.open(dist / f"{name}-{VERSION}.tar.gz") as sdist:
        files = {file.removeprefix(f"{name}-{VERSION}/") for file in sdist.getnames()}
    beside = {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
    manual = {MANUAL} if name == "bascule" else set()
    assert files - {"CHANGELOG.md"} == {f"src/{file}" for file in source_files(name)} | beside | manual


@pytest.mark.parametrize("name", SOURCES)
def test_all_three_have_one_version_a_description_and_a_range_for_gabp_that_admits_it(dist, name):
    about = metadata(dist, name)
    assert about["Version"] == VERSION
    assert about.get_payload().startswith(f"# {'Bascule' if name == 'bascule' else name.replace('_', '-')}\n")
    needed = {each.name: each for each in map(Requirement, about.get_all("Requires-Dist"))}
    assert name == "gabp" or VERSION in needed["gabp"].specifier


def put_in(site: Path, needed: list[Requirement]) -> None:
    """What `needed` names, and all that it needs, from this environment: nothing that is not declared, no network."""
    present: set[tuple[str, str]] = set()
    wanted = [(each, extra) for each in needed for extra in ("", *each.extras)]
    while wanted:
        requirement, extra = wanted.pop()
        if (requirement.name, extra) in present or requirement.name in ("gabp", "bascule", "bascule-mod"):
            continue
        present.add((requirement.name, extra))
        found = distribution(requirement.name)
        for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(found.locate_file(top))
        for each in map(Requirement, found.requires or ()):
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                wanted += [(each, name) for name in ("", *each.extras)]


def installed(dist: Path, root: Path, name: str) -> Path:
    """A new environment with this distribution, which pip installs from `dist` alone."""
    run([sys.executable, "-m", "venv", "--without-pip", root])
    (site,) = root.glob("lib/python*/site-packages")
    needed = [Requirement(text) for each in {"gabp", name} for text in metadata(dist, each).get_all("Requires-Dist")]
    put_in(site, [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})])
    pip = [sys.executable, "-m", "pip", "--python", root / "bin" / "python", "--quiet", "--isolated", "install"]
    run([*pip, "--no-index", "--find-links", dist, name.replace("_", "-")])
    return root


# Two environments, two installations and a dozen commands, each of which may be slow.
@pytest.mark.timeout(8 * PATIENCE)
def test_what_is_installed_from_wheels_serves_an_ask_and_a_mod_without_git_and_make(dist, tmp_path):
    daemon = installed(dist, tmp_path / "daemon", "bascule")
    game = installed(dist, tmp_path / "game", "bascule_mod")
    # The program has its own bound for each command, and stops its daemon when one is reached.
    done = run([sys.executable, HERE / "tools/try_installed.py", daemon, game], seconds=4 * PATIENCE)
    assert done.splitlines() == ["an ask: fine", "bascule mcp: fine", "a mod: fine", "the mod alone: fine"]
