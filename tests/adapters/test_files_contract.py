"""What file operations promise, by both ways of opening: the kernel's and our own walk."""

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path

import pytest
from by_name import ByName

from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.paths import parse_path
from bascule.workspace.ports import FileFault
from faults.lacking import only_root

MAX = 1 << 20


def left_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_file_is_created_with_its_parents_and_read_back(place):
    place.files.create(parse_path("a/b/c.txt"), b"hello", overwrite=False)
    assert place.files.read(parse_path("a/b/c.txt"), MAX) == b"hello"
    assert left_in(place.inside) == ["a", "a/b", "a/b/c.txt"]


def test_new_files_have_the_modes_of_a_person_though_the_daemon_keeps_its_own_private(place):
    before = os.umask(0o077)
    try:
        place.files.create(parse_path("a/b.txt"), b"x", overwrite=False)
    finally:
        os.umask(before)
    assert stat.S_IMODE((place.inside / "a/b.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE((place.inside / "a").stat().st_mode) == 0o755


def test_an_existing_file_is_not_overwritten_unless_asked(place):
    (place.inside / "x").write_bytes(b"old")
    with pytest.raises(FileFault, match=r"^File already exists$"):
        place.files.create(parse_path("x"), b"new", overwrite=False)
    assert (place.inside / "x").read_bytes() == b"old"
    place.files.create(parse_path("x"), b"new", overwrite=True)
    assert (place.inside / "x").read_bytes() == b"new"
    assert left_in(place.inside) == ["x"]


def test_where_the_kernel_cannot_rename_carefully_a_second_name_does_it(place, monkeypatch):
    monkeypatch.setattr("bascule.workspace.machine.files.syscalls._renameat2", lambda: None)
    place.files.create(parse_path("x"), b"first", overwrite=False)
    with pytest.raises(FileFault, match=r"^File already exists$"):
        place.files.create(parse_path("x"), b"second", overwrite=False)
    assert (place.inside / "x").read_bytes() == b"first"
    assert ((place.inside / "x").stat().st_nlink, left_in(place.inside)) == (1, ["x"])


def test_of_many_who_create_the_same_file_one_wins(place):
    """Whoever comes second is told, and never overwrites."""
    won: list[int] = []

    def create(number: int) -> None:
        with contextlib.suppress(FileFault):
            place.files.create(parse_path("deep/x"), b"%d" % number, overwrite=False)
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert (place.inside / "deep/x").read_bytes() == b"%d" % won[0]
    assert left_in(place.inside) == ["deep", "deep/x"]


def test_a_dangling_link_is_an_existing_name(place):
    (place.inside / "x").symlink_to("nowhere")
    with pytest.raises(FileFault, match=r"^File already exists$"):
        place.files.create(parse_path("x"), b"new", overwrite=False)


def test_overwriting_keeps_the_mode_but_not_setuid(place):
    file = place.inside / "tool"
    file.write_bytes(b"old")
    file.chmod(0o4750)
    place.files.create(parse_path("tool"), b"new", overwrite=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o750


def test_replacing_keeps_the_mode(place):
    file = place.inside / "tool"
    file.write_bytes(b"old")
    file.chmod(0o640)
    place.files.replace(parse_path("tool"), b"new", expected=b"old")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o640)


@only_root
def test_what_root_makes_in_somebodys_workspace_is_theirs(place, opener):
    os.chown(place.inside, 1234, 1235)
    root = WorkspaceFiles((), opener=opener).open_root(os.fspath(place.inside))
    ByName(root).create(parse_path("a/b"), b"x", overwrite=False)
    os.chown(place.inside / "a/b", 77, 78)
    ByName(root).replace(parse_path("a/b"), b"y", expected=b"x")
    root.close()
    assert ((place.inside / "a").stat().st_uid, (place.inside / "a").stat().st_gid) == (1234, 1235)
    assert ((place.inside / "a/b").stat().st_uid, (place.inside / "a/b").stat().st_gid) == (77, 78)


def test_replacing_is_refused_when_the_content_is_another_by_now(place):
    (place.inside / "x").write_bytes(b"newer")
    for expected in (b"older", b"much longer than that"):
        with pytest.raises(FileFault, match="changed by something else"):
            place.files.replace(parse_path("x"), b"mine", expected=expected)
    assert (place.inside / "x").read_bytes() == b"newer"
    assert left_in(place.inside) == ["x"]


def test_a_change_while_the_new_content_is_written_is_noticed(place, monkeypatch):
    (place.inside / "x").write_bytes(b"old")
    write = place.root._write

    def slow(*args, **kwargs):
        name = write(*args, **kwargs)
        (place.inside / "x").write_bytes(b"bad")
        return name

    monkeypatch.setattr(place.root, "_write", slow)
    with pytest.raises(FileFault, match="changed by something else"):
        place.files.replace(parse_path("x"), b"mine", expected=b"old")
    assert (place.inside / "x").read_bytes() == b"bad"
    assert left_in(place.inside) == ["x"]


def test_a_read_only_file_is_not_replaced_behind_its_back(place):
    file = place.inside / "x"
    file.write_bytes(b"old")
    file.chmod(0o444)
    with pytest.raises(FileFault, match=r"read-only \(mode 0444\)"):
        place.files.replace(parse_path("x"), b"new", expected=b"old")
    with pytest.raises(FileFault, match=r"read-only"):
        place.files.create(parse_path("x"), b"new", overwrite=True)


def test_another_hard_link_keeps_its_content(place):
    (place.inside / "x").write_bytes(b"old")
    os.link(place.inside / "x", place.inside / "y")
    os.link(place.inside / "x", place.outside.parent / "elsewhere")
    place.files.replace(parse_path("x"), b"new", expected=b"old")
    assert (place.inside / "y").read_bytes() == b"old"
    assert (place.outside.parent / "elsewhere").read_bytes() == b"old"


def test_editing_through_links_inside_replaces_the_target(place):
    (place.inside / "real").mkdir()
    (place.inside / "real/x").write_bytes(b"old")
    (place.inside / "deep").mkdir()
    (place.inside / "deep/link").symlink_to("../alias/x")
    (place.inside / "alias").symlink_to("real")
    path = parse_path("deep/link")
    assert place.files.read(path, MAX) == b"old"
    place.files.replace(path, b"new", expected=b"old")
    assert (place.inside / "deep/link").is_symlink()
    assert (place.inside / "real/x").read_bytes() == b"new"
    place.files.create(path, b"newer", overwrite=True)
    assert (place.inside / "real/x").read_bytes() == b"newer"
    assert left_in(place.inside / "real") == ["x"]


def test_writing_through_a_dangling_link_makes_its_target(place):
    (place.inside / "link").symlink_to("made/x")
    place.files.create(parse_path("link"), b"x", overwrite=True)
    assert (place.inside / "made/x").read_bytes() == b"x"


def test_deleting_removes_the_name_only(place):
    (place.inside / "x").write_bytes(b"x")
    (place.inside / "link").symlink_to("x")
    (place.inside / "out").symlink_to(place.outside / "secret")
    for name in ("link", "out"):
        place.files.delete(parse_path(name))
    assert left_in(place.inside) == ["x"]
    place.files.delete(parse_path("x"))
    assert left_in(place.inside) == []
    assert place.untouched()


def test_directories_are_not_files(place):
    (place.inside / "d").mkdir()
    (place.inside / "to-d").symlink_to("d/.")
    path = parse_path("d")
    for act in (
        lambda: place.files.read(path, MAX),
        lambda: place.files.create(path, b"x", overwrite=False),
        lambda: place.files.create(path, b"x", overwrite=True),
        lambda: place.files.replace(path, b"x", expected=b""),
        lambda: place.files.delete(path),
        lambda: place.files.create(parse_path("to-d"), b"x", overwrite=True),
    ):
        with pytest.raises(FileFault, match="is a directory"):
            act()
    assert left_in(place.inside) == ["d", "to-d"]


def test_pipes_sockets_and_devices_are_refused_without_waiting_for_them(place):
    os.mkfifo(place.inside / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    directory = os.open(place.inside, os.O_RDONLY)
    listening.bind(f"/proc/self/fd/{directory}/socket")
    os.close(directory)
    names = ["pipe", "socket"]
    if os.geteuid() == 0:
        os.mknod(place.inside / "device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        names.append("device")
    for name in names:
        path = parse_path(name)
        for act in (
            lambda path=path: place.files.read(path, MAX),
            lambda path=path: place.files.create(path, b"x", overwrite=True),
            lambda path=path: place.files.replace(path, b"x", expected=b""),
            lambda path=path: place.files.delete(path),
        ):
            with pytest.raises(FileFault, match="only regular files"):
                act()
        assert place.files.digest(path, MAX) is None
    listening.close()
    assert left_in(place.inside) == sorted(names)


def test_what_is_too_large_is_refused_with_the_way_to_see_a_part(place, opener):
    (place.inside / "x").write_bytes(b"12345")
    assert place.files.read(parse_path("x"), 5) == b"12345"
    with pytest.raises(FileFault, match=r"5 bytes; at most 4 .* use a command"):
        place.files.read(parse_path("x"), 4)
    root = WorkspaceFiles((), opener=opener, max_content=4).open_root(os.fspath(place.inside))
    with pytest.raises(FileFault, match="would have 5 bytes"):
        ByName(root).create(parse_path("new/y"), b"12345", overwrite=False)
    with pytest.raises(FileFault, match="would have 6 bytes"):
        ByName(root).replace(parse_path("x"), b"123456", expected=b"12345")
    root.close()
    assert left_in(place.inside) == ["x"]


def test_a_file_that_grows_while_it_is_read_is_read_up_to_the_limit(place, monkeypatch):
    """Its size at the start is no promise."""
    file = place.inside / "x"
    file.write_bytes(b"x" * 10)
    opened = place.root._open_regular

    def grown(path):
        found = opened(path)
        file.write_bytes(b"x" * 5_000_000)
        return found

    monkeypatch.setattr(place.root, "_open_regular", grown)
    assert len(place.files.read(parse_path("x"), 5_000_000)) == 5_000_000
    file.write_bytes(b"x" * 10)
    with pytest.raises(FileFault, match="at most 1,000 are allowed"):
        place.files.read(parse_path("x"), 1_000)


def test_parents_made_for_a_create_that_fails_are_removed_again(place, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    (place.inside / "kept").mkdir()
    monkeypatch.setattr(place.root, "_dress", full)
    with pytest.raises(FileFault, match="No space left on the disk"):
        place.files.create(parse_path("kept/new/x"), b"x", overwrite=False)
    monkeypatch.undo()
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileFault, match="No space left on the disk"):
        place.files.create(parse_path("kept/new/er/x"), b"x", overwrite=False)
    monkeypatch.undo()
    assert left_in(place.inside) == ["kept"]


def test_a_missing_file_is_named_with_what_looks_like_it(place):
    (place.inside / "src").mkdir()
    (place.inside / "src/config.json").write_bytes(b"{}")
    with pytest.raises(FileFault) as raised:
        place.files.read(parse_path("src/confg.json"), MAX)
    assert str(raised.value) == "No such file: `src/confg.json`; did you mean `src/config.json`?"
    with pytest.raises(FileFault, match=r"no `scr`\); did you mean `src`"):
        place.files.delete(parse_path("scr/config.json"))
    with pytest.raises(FileFault, match=r"`src/config\.json` is not a directory"):
        place.files.create(parse_path("src/config.json/x"), b"", overwrite=False)
    (place.inside / "dangling").symlink_to("nowhere")
    with pytest.raises(FileFault, match="`dangling` is a link to something that does not exist"):
        place.files.read(parse_path("dangling"), MAX)


def test_artifacts_may_be_read_and_never_written(place):
    artifacts = place.inside / "artifacts"
    (artifacts / "sub").mkdir(parents=True)
    (artifacts / "shot").write_bytes(b"evidence")
    (place.inside / "link").symlink_to("artifacts/sub")
    (place.inside / "file").symlink_to("artifacts/shot")
    assert place.files.read(parse_path("file"), MAX) == b"evidence"
    for act in (
        lambda: place.files.create(parse_path("artifacts/x"), b"x", overwrite=False),
        lambda: place.files.create(parse_path("artifacts/new/x"), b"x", overwrite=False),
        lambda: place.files.create(parse_path("link/x"), b"x", overwrite=False),
        lambda: place.files.create(parse_path("file"), b"x", overwrite=True),
        lambda: place.files.replace(parse_path("file"), b"x", expected=b"evidence"),
        lambda: place.files.delete(parse_path("artifacts/shot")),
        lambda: place.files.delete(parse_path("link/x")),
    ):
        with pytest.raises(FileFault, match=r"only for reading"):
            act()
    assert left_in(artifacts) == ["shot", "sub"]
    place.files.create(parse_path("Artifacts/x"), b"another directory", overwrite=False)
    place.files.create(parse_path("sub/artifacts/x"), b"not at the top", overwrite=False)


def test_artifacts_are_not_made_by_file_operations(place):
    (place.inside / "link").symlink_to("artifacts/x")
    for path in ("artifacts", "artifacts/x", "link"):
        with pytest.raises(FileFault, match="only for reading"):
            place.files.create(parse_path(path), b"x", overwrite=True)
    assert left_in(place.inside) == ["link"]


def test_names_are_taken_as_they_are(place):
    names = [
        "Case",
        "case",
        "trailing ",
        " leading",
        "new\nline",
        "ü",
        "u\u0308",
        "*",
        "-rf",
        "a..b",
        "...",
        "日本" * 40,
    ]
    for name in names:
        place.files.create(parse_path(name), name.encode(), overwrite=False)
    assert {name: place.files.read(parse_path(name), MAX).decode() for name in names} == {name: name for name in names}
    assert sorted(os.listdir(place.inside)) == sorted(names)


def test_entries_are_sorted_typed_and_say_when_there_are_more(place):
    (place.inside / "d").mkdir()
    (place.inside / "file").write_bytes(b"12345")
    (place.inside / "link").symlink_to("/etc")
    os.mkfifo(place.inside / "pipe")
    os.close(os.open(os.fsencode(place.inside) + b"/\xff", os.O_CREAT | os.O_WRONLY))
    entries, more = place.files.entries(None, 10)
    assert [(entry.name, entry.type, entry.size) for entry in entries] == [
        ("d", "directory", 0),
        ("file", "file", 5),
        ("link", "link", 0),
        ("pipe", "other", 0),
        ("\\xff", "file", 0),
    ]
    assert not more
    entries, more = place.files.entries(None, 2)
    assert ([entry.name for entry in entries], more) == (["d", "file"], True)
    assert place.files.entries(parse_path("d"), 5) == ([], False)
    with pytest.raises(FileFault, match="leads out of the workspace"):
        place.files.entries(parse_path("link"), 5)


def test_the_digest_is_of_regular_files_up_to_a_size(place):
    (place.inside / "x").write_bytes(b"abc")
    assert place.files.digest(parse_path("x"), 3).startswith("ba7816bf")
    assert place.files.digest(parse_path("x"), 2) is None
    assert place.files.digest(parse_path("y"), 3) is None


def test_a_root_that_is_renamed_stays_the_root(place):
    (place.inside / "x").write_bytes(b"x")
    moved = place.inside.parent / "moved"
    place.inside.rename(moved)
    place.inside.mkdir()
    place.files.create(parse_path("y"), b"y", overwrite=False)
    assert [entry.name for entry in place.files.entries(None, 5)[0]] == ["x", "y"]
    assert left_in(moved) == ["x", "y"]
    assert left_in(place.inside) == []


def test_a_root_that_is_deleted_says_so(place):
    place.inside.rmdir()
    with pytest.raises(FileFault, match="the workspace directory itself has been deleted"):
        place.files.create(parse_path("y"), b"y", overwrite=False)


def test_a_closed_root_says_so(tmp_path):
    (tmp_path / "w").mkdir()
    root = WorkspaceFiles(()).open_root(os.fspath(tmp_path / "w"))
    root.close()
    root.close()
    with pytest.raises(FileFault, match="the workspace is closed"):
        ByName(root).read(parse_path("x"), MAX)
