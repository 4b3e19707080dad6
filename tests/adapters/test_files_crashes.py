"""kill -9 while files are written: what is there is the old content or the new, never a part of one."""

import os
import random
import subprocess
import sys

import pytest

from bascule.workspace.machine.files.temporary import is_temporary, new_name

KILLS = 200 if os.environ.get("BASCULE_LONG") else 12
SIZE = 400_000
CONTENTS = [letter * SIZE for letter in (b"a", b"b")]

_WRITER = """
import sys
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.paths import parse_path
root = WorkspaceFiles(()).open_root(sys.argv[1])
path = parse_path("d/x")
a, b = b"a" * 400_000, b"b" * 400_000
print("started", flush=True)
while True:
    with root.resolve(path, follow=True) as place:
        root.create(place, a, overwrite=True)
    with root.resolve(path, follow=True) as place:
        root.replace(place, b, expected=a)
"""

# The control: the same content, written in place.
_NAIVE = """
import sys, os
path = sys.argv[1] + "/d/x"
os.makedirs(os.path.dirname(path), exist_ok=True)
print("started", flush=True)
while True:
    for letter in (b"a", b"b"):
        with open(path, "wb", buffering=4096) as file:
            for _ in range(100):
                file.write(letter * 4_000)
"""


def killed(program: str, directory: str, seconds: float) -> bytes | None:
    """What the file holds after the writer was killed at that moment."""
    writer = subprocess.Popen([sys.executable, "-c", program, directory], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"started\n"
    with pytest.raises(subprocess.TimeoutExpired):
        writer.wait(seconds)
    writer.kill()
    writer.wait()
    writer.stdout.close()
    try:
        with open(f"{directory}/d/x", "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def test_a_killed_write_leaves_the_old_content_or_the_new(tmp_path):
    generator = random.Random(11)
    found = [killed(_WRITER, os.fspath(tmp_path), generator.random() / 20) for _ in range(KILLS)]
    assert {content in (*CONTENTS, None) for content in found} == {True}
    left = sorted(os.listdir(tmp_path / "d"))
    assert [name for name in left if name != "x" and not is_temporary(name)] == []


def test_the_control_leaves_a_part(tmp_path):
    generator = random.Random(12)
    for _ in range(KILLS * 20):
        if killed(_NAIVE, os.fspath(tmp_path), generator.random() / 20) not in (*CONTENTS, None):
            return
    pytest.fail("writing in place never left a part: this test could not tell")


def test_unfinished_files_have_names_that_cannot_be_guessed_or_mistaken():
    names = {new_name() for _ in range(100)}
    assert len(names) == 100
    assert all(map(is_temporary, names))
    for other in (".bascule", ".bascule-.tmp", "x.tmp", f".bascule-{'g' * 32}.tmp", f".bascule-{'0' * 32}.tmp.py"):
        assert not is_temporary(other)
