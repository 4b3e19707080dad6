"""A million inputs that nobody thought of: each is read or refused as documented, soon, and in bounded memory."""

import concurrent.futures
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog import LONG_FACTOR, PLANTED, TARGETS, Target

LONG = os.environ.get("BASCULE_LONG") == "1"
HERE = Path(__file__).parent
# One input: a thousand times what the slowest takes.
INPUT_SECONDS = 10
# All of a target's inputs, on a machine that has other things to do.
TARGET_SECONDS = 4 * 3600
# Of libFuzzer and atheris.
TIMEOUT_CODE = 70
MEMORY_CODE = 71
EXCEPTION_CODE = 77

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None and os.environ.get("CI") != "true",
        reason="atheris has no wheel for this Python and machine",
    ),
    pytest.mark.timeout(2 * TARGET_SECONDS),
]


class Ran:
    def __init__(self, code: int, output: str) -> None:
        self.code = code
        self.output = output
        self.executed = self._number(r"stat::number_of_executed_units: +(\d+)")
        self.coverage = self._number(r"^#\d+\s+\w+\s+cov: (\d+)")

    def _number(self, pattern: str) -> int:
        found = re.findall(pattern, self.output, re.MULTILINE)
        return int(found[-1]) if found else 0


def escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def run(name: str, target: Target, runs: int, folder: Path, *, seconds: int = INPUT_SECONDS) -> Ran:
    corpus = folder / name
    corpus.mkdir(parents=True)
    for number, seed in enumerate(target.seeds):
        (corpus / str(number)).write_bytes(seed)
    arguments = [
        f"-runs={runs}",
        f"-max_len={target.max_bytes}",
        # Long inputs from the start: short ones are soon exhausted.
        "-len_control=0",
        f"-timeout={seconds}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
    ]
    if target.words:
        words = folder / f"{name}.dict"
        words.write_text("".join(f'"{escaped(word)}"\n' for word in target.words))
        arguments.append(f"-dict={words}")
    done = subprocess.run(
        [sys.executable, str(HERE / "run_target.py"), name, *arguments, str(corpus)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TARGET_SECONDS,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(errors="replace"))


@pytest.fixture(scope="module")
def results(request, tmp_path_factory) -> Iterator[dict[str, "concurrent.futures.Future[Ran]"]]:
    """Two at a time, begun with the first test and in the order in which the tests will ask."""
    folder = tmp_path_factory.mktemp("fuzz")
    asked = [item.callspec.params["name"] for item in request.session.items if "results" in item.fixturenames]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {}
        for name in asked:
            target = (TARGETS | PLANTED)[name]
            runs = target.runs * LONG_FACTOR if LONG and name in TARGETS else target.runs
            seconds = 1 if name in PLANTED else INPUT_SECONDS
            jobs[name] = pool.submit(run, name, target, runs, folder, seconds=seconds)
        yield jobs
        for job in jobs.values():
            job.cancel()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_read_or_refused_as_documented(results, name, record_property):
    ran = results[name].result()
    assert ran.code == 0, ran.output[-6_000:]
    wanted = TARGETS[name].runs * (LONG_FACTOR if LONG else 1)
    assert ran.executed >= wanted
    record_property("executions", ran.executed)
    # The code under it was seen at work, or the fuzzer guessed blindly.
    assert ran.coverage >= TARGETS[name].least_coverage, ran.output[-2_000:]


# What libFuzzer or atheris ends with, and says.
FOUND = {
    "magic": (EXCEPTION_CODE, "found the planted bug"),
    "cut_blind": (EXCEPTION_CODE, "found the planted bug"),
    "endless": (TIMEOUT_CODE, "timeout after"),
    "hoarder": (MEMORY_CODE, "out-of-memory"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(results, name):
    ran = results[name].result()
    code, output = FOUND[name]
    assert ran.code == code, ran.output[-2_000:]
    assert output in ran.output


def test_a_normal_run_has_a_million_inputs_and_a_long_one_a_hundred_million():
    total = sum(target.runs for target in TARGETS.values())
    assert total >= 1_000_000
    assert total * LONG_FACTOR >= 100_000_000
