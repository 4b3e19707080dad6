"""Gitlinks in indexes as git itself writes them, and in anything else."""

import hashlib
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sandbox.test_git import git
from bascule.workspace.machine.files.git_index import (
    SHA1_BYTES,
    SHA256_BYTES,
    UnreadableIndex,
    foreign_gitlinks,
    gitlinks,
)


def an_index(folder: Path, kind: str, version: str) -> bytes:
    folder.mkdir()
    git(folder, "init", "-q", f"--object-format={kind}")
    for name in ("a/symlink/file", "a/link", "b/a rather long name, so that names are padded", "\u00e4"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    git(folder, "add", "-A")
    git(folder, "update-index", "--index-version", version)
    return (folder / ".git" / "index").read_bytes()


@pytest.mark.parametrize("version", ["2", "4"])
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
def test_gitlinks_are_found_in_every_form_of_index(tmp_path: Path, kind: str, version: str):
    folder = tmp_path / "work"
    assert gitlinks(an_index(folder, kind, version)) == frozenset()
    commit = "1" * (40 if kind == "sha1" else 64)
    for place in ("a/nested", "zzz"):
        git(folder, "update-index", "--add", "--cacheinfo", f"160000,{commit},{place}")
    assert gitlinks((folder / ".git" / "index").read_bytes()) == {b"a/nested", b"zzz"}
    size = SHA1_BYTES if kind == "sha1" else SHA256_BYTES
    assert foreign_gitlinks((folder / ".git" / "index").read_bytes(), size) == {b"a/nested", b"zzz"}
    git(folder, "update-index", "--skip-worktree", "a/link")
    assert gitlinks((folder / ".git" / "index").read_bytes()) == {b"a/nested", b"zzz"}, "with extended flags"
    git(folder, "update-index", "--split-index")
    with pytest.raises(UnreadableIndex, match="split"):
        gitlinks((folder / ".git" / "index").read_bytes())


@given(st.binary(max_size=400), st.sampled_from([2, 3, 4]), st.integers(0, 5))
def test_any_bytes_are_read_or_refused(data: bytes, version: int, count: int):
    for text in (data, b"DIRC" + version.to_bytes(4, "big") + count.to_bytes(4, "big") + data + b"\0\0\xe0\0"):
        try:
            gitlinks(text)
        except UnreadableIndex:
            continue


def test_an_index_that_is_made_to_be_slow_is_not():
    header = b"DIRC" + (4).to_bytes(4, "big") + (2**32 - 1).to_bytes(4, "big")
    growing = (b"\0" * 24 + b"\0\0\xe0\0" + b"\0" * 32 + b"\0\0" + b"\0" + b"x" * 60 + b"\0") * 20_000
    chains = b"link\0\0\0\0" * 500_000 + b"link\0\0\0\1"
    began = time.thread_time()
    for text in (header + growing, header + chains + b"?" * 21):
        with pytest.raises(UnreadableIndex):
            gitlinks(text)
    assert time.thread_time() - began < 30


def an_entry(path: bytes, mode: int = 0o100644, length: int | None = None) -> bytes:
    size = len(path) if length is None else length
    entry = bytes(24) + struct.pack(">I", mode) + bytes(12) + b"1" * SHA1_BYTES + struct.pack(">H", size) + path
    return entry + bytes(8 - len(entry) % 8)


def a_forged_index(*entries: bytes, extensions: bytes = b"") -> bytes:
    data = b"DIRC" + struct.pack(">II", 2, len(entries)) + b"".join(entries) + extensions
    return data + hashlib.sha1(data, usedforsecurity=False).digest()


@pytest.mark.parametrize("mode", [0o160000, 0o160001, 0o160644, 0o160777, 0x1000E000])
def test_a_gitlink_is_what_git_takes_for_one(mode: int):
    index = a_forged_index(an_entry(b"file"), an_entry(b"sub", mode))
    assert foreign_gitlinks(index, SHA1_BYTES) == {b"sub"}


@pytest.mark.parametrize(
    "index",
    [
        # Git would go on after the length that the flags say, in the middle of what we took for a name.
        a_forged_index(an_entry(b"file", length=60), an_entry(b"x" * 100)),
        a_forged_index(an_entry(b"file"), extensions=b"EOIE" + struct.pack(">I", 24) + bytes(24)),
        a_forged_index(an_entry(b"file"), extensions=b"IEOT" + struct.pack(">I", 12) + bytes(12)),
        a_forged_index(an_entry(b"folder/", 0o040000), extensions=b"sdir" + bytes(4)),
        a_forged_index(an_entry(b"file"), extensions=b"link" + struct.pack(">I", 20) + bytes(20)),
        # The last extension ends after the file does: git does not mind.
        a_forged_index(an_entry(b"file"), extensions=b"ZZZZ" + struct.pack(">I", 99)),
        b"DIRC",
    ],
)
def test_an_index_that_git_may_read_otherwise_is_refused(index: bytes):
    with pytest.raises(UnreadableIndex):
        foreign_gitlinks(index, SHA1_BYTES)
