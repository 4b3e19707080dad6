"""Workspaces as values: what a directory holds, byte for byte, and random ones for property tests."""

import os
import shutil
import stat
from pathlib import Path

from hypothesis import strategies as st

# path -> ("file", mode, content) | ("link", target) | ("dir", mode)
Tree = dict[bytes, tuple]


def read(directory: str | Path, *, prefix: bytes = b"") -> Tree:
    """Everything in it, links as links."""
    found: Tree = {}
    with os.scandir(os.fsencode(directory)) as entries:
        for entry in entries:
            path = prefix + entry.name
            info = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                found[path] = ("link", os.readlink(entry.path))
            elif entry.is_dir():
                found[path] = ("dir", stat.S_IMODE(info.st_mode))
                found |= read(os.fsdecode(entry.path), prefix=path + b"/")
            elif entry.is_file():
                with open(entry.path, "rb") as file:
                    found[path] = ("file", stat.S_IMODE(info.st_mode), file.read())
            else:
                found[path] = ("other", stat.S_IFMT(info.st_mode))
    return found


def write(directory: str | Path, tree: Tree) -> None:
    """Make the directory hold this and nothing else."""
    for entry in os.scandir(os.fsencode(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    modes = []
    for path in sorted(tree):
        where = os.path.join(os.fsencode(directory), path)
        match tree[path]:
            case ("dir", mode):
                os.mkdir(where)
                modes.append((where, mode))
            case ("link", target):
                os.symlink(target, where)
            case ("file", mode, content):
                with open(where, "wb") as file:
                    file.write(content)
                os.chmod(where, mode)
    for where, mode in reversed(modes):
        os.chmod(where, mode)


_names = st.sampled_from(
    [b"a", b"b", b"c", b"d.txt", b"A", b"\xff\xfe", "ü".encode(), b"with space", b"-n", b"new\nline"]
)
_leaves = st.one_of(
    st.tuples(
        st.just("file"),
        st.sampled_from([0o644, 0o755, 0o600, 0o400, 0o777, 0o640]),
        st.one_of(st.binary(max_size=30), st.text("xy\n", max_size=20).map(str.encode)),
    ),
    st.tuples(st.just("link"), st.sampled_from([b"a", b"../b", b"/etc/passwd", b"nowhere", b"\xff"])),
)
_dir_modes = st.sampled_from([0o755, 0o700, 0o775])
_nested = st.recursive(
    st.dictionaries(_names, _leaves, max_size=4),
    lambda children: st.dictionaries(_names, st.one_of(_leaves, st.tuples(_dir_modes, children)), max_size=4),
    max_leaves=12,
)


def _flat(nested: dict, prefix: bytes = b"") -> Tree:
    flat: Tree = {}
    for name, value in nested.items():
        if isinstance(value[0], int):
            flat[prefix + name] = ("dir", value[0])
            flat |= _flat(value[1], prefix + name + b"/")
        else:
            flat[prefix + name] = value
    return flat


random_trees = _nested.map(_flat)
