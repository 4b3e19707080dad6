"""What `bascule doctor` says about the machine below: Python, SQLite, disk, limits, PATH, clock."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bascule.cli.checks import machine as machine_checks
from bascule.cli.checks.patient import Mark, Patient
from patience import PATIENCE


@pytest.fixture
def state(tmp_path):
    return tmp_path


def test_an_old_sqlite_is_a_warning_that_says_it_is_harmless():
    verdict = machine_checks.judge_sqlite((3, 40, 1))
    assert verdict.mark is Mark.WARN
    assert "harmless" in verdict.fix
    assert machine_checks.judge_sqlite((3, 51, 3)).mark is Mark.OK
    assert machine_checks.judge_sqlite((3, 54, 0)).mark is Mark.OK


def test_too_little_disk_or_memory_is_named_with_both_figures(state):
    verdict = machine_checks.check_disk(Patient(str(state), min_free_bytes=10**18))
    assert verdict.mark is Mark.FAIL
    assert "1,000,000,000,000 MB" in verdict.what
    if sys.platform == "linux":
        assert machine_checks.check_memory(Patient(str(state), min_memory_bytes=10**18)).mark is Mark.WARN


def test_a_slow_disk_is_a_warning_with_the_figure(state):
    verdict = machine_checks.check_sync(Patient(str(state), slow_sync_seconds=0))
    assert verdict.mark is Mark.WARN
    assert " ms (median of 9)" in verdict.what


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc elsewhere")
def test_the_file_system_under_a_folder_is_known():
    assert machine_checks.file_system(Path("/proc/self")) == "proc"
    assert machine_checks.file_system(Path("/")) not in ("", "proc")


def test_a_low_hard_limit_on_open_files_is_a_warning_that_says_where_it_is_set(state):
    program = (
        "import resource, sys\n"
        "from bascule.cli.checks import machine\n"
        "from bascule.cli.checks.patient import Patient\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[1])))\n"
        "print(*machine.check_open_files(Patient('/nowhere')))\n"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit, expected in ((hard, "ok "), (512, "warn up to 512; each waiting agent takes one")):
        done = subprocess.run(
            [sys.executable, "-c", program, str(limit)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert done.stdout.startswith(expected)
        assert ("limits.conf" in done.stdout) == (limit == 512)


@pytest.fixture
def installed(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python", *machine_checks.COMMANDS):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def test_commands_beside_python_but_not_on_path_come_with_the_line_to_add(installed):
    patient = Patient("/nowhere", path="/nowhere", python=str(installed / "python"))
    verdict = machine_checks.check_helpers(patient)
    assert verdict.mark is Mark.WARN
    assert f'export PATH="{installed}:$PATH"' in verdict.fix
    patient.path = str(installed)
    assert machine_checks.check_helpers(patient).mark is Mark.OK


def test_commands_of_another_installation_on_path_are_a_warning(installed, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "bridge-reply").write_text("#!/bin/sh\n")
    (other / "bridge-reply").chmod(0o755)
    patient = Patient("/nowhere", path=f"{other}:{installed}", python=str(installed / "python"))
    assert f"another installation: {other}/bridge-reply" in machine_checks.check_helpers(patient).what


def test_commands_that_are_nowhere_are_a_warning(tmp_path):
    patient = Patient("/nowhere", path=str(tmp_path), python=str(tmp_path / "python"))
    assert "neither on PATH" in machine_checks.check_helpers(patient).what


def test_a_clock_behind_the_stores_last_write_went_back(state):
    store = state / "bascule.db"
    store.touch()
    assert machine_checks.check_clock(Patient(str(state))).mark is Mark.OK
    ahead = time.time() + 3600
    os.utime(store, (ahead, ahead))
    verdict = machine_checks.check_clock(Patient(str(state)))
    assert verdict.mark is Mark.WARN
    assert "went back" in verdict.what
