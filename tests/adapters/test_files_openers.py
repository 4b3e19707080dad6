"""The kernel's way and our own walk answer alike: the same file, or the same error."""

import errno
import os
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.workspace.machine.files.beneath import O_PATH, KernelOpener, WalkingOpener, best_opener
from bascule.workspace.machine.files.syscalls import has_openat2
from descriptors import Descriptors
from faults.lacking import missing_here

EXAMPLES = 5_000 if os.environ.get("BASCULE_LONG") else 200

_steps = st.sampled_from(["a", "b", "c", "..", ".", ""])
_paths = st.lists(_steps, min_size=1, max_size=5).map("/".join)
_targets = st.one_of(_paths, _paths.map(lambda path: f"/{path}"), st.just("/etc/passwd")).filter(bool)
_things = st.one_of(st.just("file"), st.just("dir"), _targets.map(lambda target: ("link", target)))
layouts = st.dictionaries(
    st.sampled_from(["a", "b", "c", "a/a", "a/b", "b/a", "b/c", "a/b/c", "c/a"]), _things, min_size=2
)
_flags = st.sampled_from(
    [
        os.O_RDONLY | os.O_NONBLOCK,
        os.O_RDONLY | os.O_DIRECTORY,
        os.O_RDONLY | os.O_NOFOLLOW,
        O_PATH,
        O_PATH | os.O_DIRECTORY,
        O_PATH | os.O_NOFOLLOW,
    ]
)


def lay_out(directory: str, layout: dict) -> None:
    for path in sorted(layout):
        where = os.path.join(directory, path)
        try:
            match layout[path]:
                case "file":
                    os.close(os.open(where, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW))
                case "dir":
                    os.mkdir(where)
                case ("link", target):
                    os.symlink(target, where)
        except OSError:
            # Its parent is no directory in this layout, or a link that leads away: then it is not there.
            continue


def outcome(opener, root: int, path: str, flags: int, *, links: bool) -> tuple | str:
    try:
        descriptor = opener.open(root, path, flags, links=links)
    except OSError as error:
        return errno.errorcode[error.errno]
    found = os.fstat(descriptor)
    os.close(descriptor)
    return found.st_dev, found.st_ino


@settings(max_examples=EXAMPLES, deadline=None)
@given(layout=layouts, paths=st.lists(_paths.filter(bool), min_size=1, max_size=8), flags=_flags, links=st.booleans())
def test_both_ways_answer_alike(layout, paths, flags, links):
    if not has_openat2():
        missing_here("this kernel has no openat2")
    with tempfile.TemporaryDirectory() as directory:
        # Inside another one, so that a link laid out through a link cannot reach the machine's own files.
        inside = os.path.join(directory, "x/y/z/w/v/workspace")
        os.makedirs(inside)
        lay_out(inside, layout)
        root = os.open(inside, os.O_RDONLY)
        before = Descriptors()
        try:
            for path in paths:
                kernel = outcome(KernelOpener(), root, path, flags, links=links)
                assert outcome(WalkingOpener(), root, path, flags, links=links) == kernel, (layout, path)
                assert before.left() == []
        finally:
            os.close(root)


def test_the_kernels_way_is_taken_where_there_is_one():
    assert isinstance(best_opener(), KernelOpener if has_openat2() else WalkingOpener)


def test_a_null_byte_is_no_shorter_path(tmp_path):
    if not has_openat2():
        missing_here("this kernel has no openat2")
    (tmp_path / "x").write_text("x")
    root = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError, match="null byte"):
        KernelOpener().open(root, "x\0.txt", os.O_RDONLY)
    with pytest.raises(ValueError, match="null byte"):
        WalkingOpener().open(root, "x\0.txt", os.O_RDONLY)
    os.close(root)
