"""`make quick` leaves no test file out by accident and runs none that needs a process."""

import os
import subprocess
from pathlib import Path

import pytest

import quick


def test_every_test_file_is_either_quick_or_slow():
    files = list(quick.TESTS.rglob("test_*.py"))
    assert len(files) > 200
    kinds = [quick.is_quick(file) for file in files]
    assert set(kinds) == {True, False}


def test_a_file_without_a_place_is_named():
    with pytest.raises(LookupError, match=r"tests/new/test_new\.py has no place"):
        quick.is_quick(quick.TESTS / "new" / "test_new.py")


def test_every_name_in_the_lists_exists_and_stands_in_one_of_them():
    assert not quick.QUICK & quick.SLOW
    assert [name for name in quick.QUICK | quick.SLOW if not (quick.TESTS / name).exists()] == []


def test_the_longest_name_counts():
    assert quick.is_quick(quick.TESTS / "wire" / "test_new.py")
    assert quick.is_quick(quick.TESTS / "helpers" / "test_doors_retry.py")
    assert not quick.is_quick(quick.TESTS / "helpers" / "test_new.py")
    assert not quick.is_quick(quick.TESTS / "stores" / "test_sqlite.py")


@pytest.mark.parametrize(
    "start",
    [lambda: subprocess.run(["true"], check=True), os.fork, lambda: os.posix_spawn("/bin/true", ["true"], {})],
    ids=["subprocess", "fork", "posix_spawn"],
)
def test_a_quick_test_that_starts_a_process_fails(start):
    assert quick.is_quick(Path(__file__))
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        start()
