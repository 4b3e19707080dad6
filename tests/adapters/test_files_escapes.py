"""Nothing outside a workspace is read, written or deleted through it: the ways that are known, all of them refused."""

import os
import subprocess

import pytest
from kept_outside import SECRET
from naive import NaiveFiles

from bascule.workspace.paths import MAX_PATH_CHARS, BadPath, WorkspacePath, parse_path
from bascule.workspace.ports import FileFault
from faults.lacking import missing_here, only_root

MAX = 1 << 20

# How a name of the workspace may be made to lead outside; `{out}` is the directory outside.
LINKS = {
    "to a file": ("x", "../outside/secret", "x"),
    "to a file, absolute": ("x", "{out}/secret", "x"),
    "to a directory": ("d", "../outside", "d/secret"),
    "to a directory, absolute": ("d", "{out}", "d/secret"),
    "to the parent": ("up", "..", "up/outside/secret"),
    "to the parent, roundabout": ("up", "./.././workspace/..", "up/outside/secret"),
    "through a directory inside": ("x", "inner/../../outside/secret", "x"),
    "through a second link": ("x", "second", "x"),
    "to the root": ("r", "/", "r{out}/secret"),
    "to a process's root": ("r", "/proc/self/root", "r{out}/secret"),
    "to the same workspace, absolute": ("x", "{in}/inner/file", "x"),
}


def plant(place, name: str, target: str) -> None:
    (place.inside / "inner").mkdir()
    (place.inside / "inner/file").write_bytes(SECRET)
    (place.inside / "second").symlink_to("../outside/secret")
    # Taken as it is: pathlib would tidy it.
    os.symlink(target.format(out=place.outside, **{"in": place.inside}), place.inside / name)


@pytest.mark.parametrize("way", LINKS)
def test_a_link_that_leads_out_is_refused_by_every_operation(place, way):
    name, target, path = LINKS[way]
    plant(place, name, target)
    # Not through `parse_path`: even a path longer than allowed must not help.
    path = WorkspacePath(path.format(out=place.outside))
    for act in (
        lambda: place.files.read(path, MAX),
        lambda: place.files.create(path, b"escaped", overwrite=True),
        lambda: place.files.replace(path, b"escaped", expected=SECRET),
        lambda: place.files.entries(WorkspacePath(path.rpartition("/")[0] or path), 10),
    ):
        with pytest.raises(FileFault, match=r"leads out of the workspace|is a directory|is a file|not a directory"):
            act()
    assert place.files.digest(path, MAX) is None
    if "/" in path:
        with pytest.raises(FileFault, match="leads out"):
            place.files.create(WorkspacePath(path + "-new"), b"escaped", overwrite=False)
        with pytest.raises(FileFault, match="leads out"):
            place.files.create(WorkspacePath(path.rpartition("/")[0] + "/new/x"), b"escaped", overwrite=False)
        with pytest.raises(FileFault, match="leads out"):
            place.files.delete(path)
    assert place.untouched()
    assert (place.inside / "inner/file").read_bytes() == SECRET


@pytest.mark.parametrize(
    "path", ["../outside/secret", "inner/../../outside/secret", "/etc/passwd", "{out}/secret", ".."]
)
def test_paths_that_the_parser_would_refuse_are_refused_by_the_descriptor_too(place, path):
    """The second wall: if a raw string ever got here, it would still not get out."""
    (place.inside / "inner").mkdir()
    path = path.format(out=place.outside)
    with pytest.raises(BadPath):
        parse_path(path)
    raw = WorkspacePath(path)
    for act in (
        lambda: place.files.read(raw, MAX),
        lambda: place.files.create(raw, b"escaped", overwrite=True),
        lambda: place.files.create(WorkspacePath(f"{raw}/../outside/new"), b"escaped", overwrite=False),
        lambda: place.files.replace(raw, b"escaped", expected=SECRET),
        lambda: place.files.delete(raw),
    ):
        with pytest.raises(FileFault):
            act()
    assert place.untouched()


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "./.",
        "/",
        "//etc/passwd",
        "..",
        "a/../b",
        "a/..",
        "..\\..\\etc",
        "a\\b",
        "C:/x",
        "c:x",
        "a\0b",
        "\0",
        "a" * (MAX_PATH_CHARS + 1),
        "\ud800",
    ],
)
def test_the_parser_refuses_what_is_no_path_of_a_workspace(path):
    with pytest.raises(BadPath):
        parse_path(path)


def test_255_characters_are_a_path_and_256_are_not(place):
    path = "/".join(["d" * 100, "e" * 100, "f" * 53])
    assert len(path) == 255
    place.files.create(parse_path(path), b"x", overwrite=False)
    assert place.files.read(parse_path(path), MAX) == b"x"
    with pytest.raises(BadPath, match="256 characters"):
        parse_path(path + "f")


def test_characters_are_counted_and_not_bytes(place):
    """The spec's limit is in characters; two bytes each make no path too long."""
    path = "/".join(["é" * 100, "ü" * 100, "ø" * 53])
    assert len(path) == 255
    place.files.create(parse_path(path), b"x", overwrite=False)
    assert place.files.read(parse_path(path), MAX) == b"x"


@pytest.mark.parametrize("path", ["é" * 200, "é" * 200 + "/x"])
def test_a_name_that_the_file_system_does_not_take_is_its_own_error(place, path):
    limit = os.pathconf(place.inside, "PC_NAME_MAX")
    message = rf"a name in it has 400 bytes, and this file system takes {limit}; use a shorter one"
    for act in (
        lambda: place.files.read(parse_path(path), MAX),
        lambda: place.files.create(parse_path(path), b"x", overwrite=False),
        lambda: place.files.create(parse_path(path), b"x", overwrite=True),
        lambda: place.files.replace(parse_path(path), b"x", expected=b"y"),
        lambda: place.files.delete(parse_path(path)),
    ):
        with pytest.raises(FileFault, match=message):
            act()
    assert os.listdir(place.inside) == []


def test_a_link_to_a_name_that_the_file_system_does_not_take_says_so(place):
    os.symlink("n" * 300, place.inside / "link")
    for act in (
        lambda: place.files.read(parse_path("link"), MAX),
        lambda: place.files.create(parse_path("link"), b"x", overwrite=True),
    ):
        with pytest.raises(FileFault, match="a link on the way leads to a name that is longer"):
            act()


def test_dots_in_names_are_no_parents(place):
    for name in ("..a", "a..", "...", "..."):
        place.files.create(parse_path(name), b"x", overwrite=True)
        assert (place.inside / name).read_bytes() == b"x"


def test_magic_links_of_proc_are_not_followed(place):
    """A link to a descriptor of our own process would open whatever it is open on."""
    descriptor = os.open(place.outside / "secret", os.O_RDONLY)
    (place.inside / "fd").symlink_to(f"/proc/self/fd/{descriptor}")
    (place.inside / "cwd").symlink_to("/proc/self/cwd")
    try:
        for path in ("fd", "cwd/x"):
            with pytest.raises(FileFault, match="leads out"):
                place.files.read(parse_path(path), MAX)
    finally:
        os.close(descriptor)


@only_root
@pytest.mark.parametrize("what", ["directory", "file", "proc"])
def test_what_is_mounted_inside_is_not_the_workspace(place, what):
    inside = place.inside / "mounted"
    if what == "file":
        inside.write_bytes(b"")
        command, path = ["mount", "--bind", place.outside / "secret", inside], "mounted"
    elif what == "directory":
        inside.mkdir()
        command, path = ["mount", "--bind", place.outside, inside], "mounted/secret"
    else:
        inside.mkdir()
        command, path = ["mount", "-t", "proc", "proc", inside], "mounted/self/cwd"
    if subprocess.run(command, check=False).returncode:
        missing_here("mounting does not work here")
    try:
        for act in (
            lambda: place.files.read(parse_path(path), MAX),
            lambda: place.files.replace(parse_path(path), b"escaped", expected=SECRET),
            lambda: place.files.create(parse_path(path), b"escaped", overwrite=True),
        ):
            with pytest.raises(FileFault, match=r"another one is mounted|Device or resource busy|leads out"):
                act()
    finally:
        subprocess.run(["umount", inside], check=True)
    assert place.untouched()


def test_a_hard_link_to_an_outside_file_is_read_but_never_written_through(place):
    """A hard link is the file itself, and whoever made it could read it. Writing replaces the name inside."""
    os.link(place.outside / "secret", place.inside / "hard")
    assert place.files.read(parse_path("hard"), MAX) == SECRET
    place.files.replace(parse_path("hard"), b"mine", expected=SECRET)
    place.files.create(parse_path("hard"), b"mine too", overwrite=True)
    place.files.delete(parse_path("hard"))
    assert place.untouched()


def test_circles_of_links_end(place):
    (place.inside / "a").symlink_to("b")
    (place.inside / "b").symlink_to("a")
    (place.inside / "self").symlink_to("self/x")
    for path in ("a", "a/x", "self"):
        for act in (
            lambda path=path: place.files.read(parse_path(path), MAX),
            lambda path=path: place.files.create(parse_path(path), b"x", overwrite=True),
        ):
            with pytest.raises(FileFault, match=r"lead in a circle|too many links|longer than this file system"):
                act()


def test_forty_links_are_followed_and_more_are_not(place):
    (place.inside / "l0").write_bytes(b"x")
    for number in range(1, 60):
        (place.inside / f"l{number}").symlink_to(f"l{number - 1}")
    assert place.files.read(parse_path("l40"), MAX) == b"x"
    with pytest.raises(FileFault, match="too many links"):
        place.files.read(parse_path("l41"), MAX)


def test_the_naive_control_refuses_all_of_these_too(place):
    """So what sets it apart is the race alone: see the test of swapped names."""
    plant(place, "x", "../outside/secret")
    naive = NaiveFiles(os.fspath(place.inside))
    with pytest.raises(PermissionError):
        naive.read("x", MAX)
    assert naive.read("inner/file", MAX) == SECRET
