"""Gitlinks in indexes as git itself writes them, and in anything else."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sandbox.test_git import git
from bascule.adapters.sandbox.git_index import UnreadableIndex, gitlinks


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
    began = time.monotonic()
    for text in (header + growing, header + chains + b"?" * 21):
        with pytest.raises(UnreadableIndex):
            gitlinks(text)
    assert time.monotonic() - began < 30
