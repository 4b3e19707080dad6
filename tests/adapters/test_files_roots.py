"""Which directories may be a workspace."""

import os
import pwd
import subprocess

import pytest
from by_name import ByName

from bascule.workspace.machine.files import roots
from bascule.workspace.machine.files.roots import WorkspaceFiles
from bascule.workspace.paths import parse_path
from bascule.workspace.ports import FileFault
from faults.lacking import missing_here, only_root


@pytest.fixture
def files(tmp_path):
    (tmp_path / "state/inner").mkdir(parents=True)
    (tmp_path / "project").mkdir()
    return WorkspaceFiles((os.fspath(tmp_path / "state"), os.fspath(tmp_path / "not-yet/config")))


def refused(files, path) -> str:
    with pytest.raises(FileFault) as raised:
        files.open_root(os.fspath(path))
    return str(raised.value)


def test_a_project_is_opened_by_its_real_path(tmp_path, files):
    (tmp_path / "link").symlink_to("project")
    root = files.open_root(os.fspath(tmp_path / "link"))
    assert root.path == os.fspath(tmp_path / "project")
    root.close()


def test_what_is_no_directory_is_refused(tmp_path, files):
    (tmp_path / "file").write_text("x")
    assert "is not a directory" in refused(files, tmp_path / "file")
    assert "does not exist; make the directory first" in refused(files, tmp_path / "nowhere")
    assert "absolute path" in refused(files, "project")
    assert "absolute path" in refused(files, f"{tmp_path}/project\0")
    (tmp_path / "circle").symlink_to("circle")
    assert "cannot be opened as a workspace" in refused(files, tmp_path / "circle")


@pytest.mark.parametrize("path", ["/", "/etc", "/usr", "/tmp", "/home", "/proc", "/proc/self", "/dev", "/usr/bin"])
def test_directories_of_the_system_are_refused(files, path):
    if not os.path.isdir(path) or os.path.realpath(path) != path:
        path = "/"
    assert "belongs to another user" in (message := refused(files, path)) or "directory of the system" in message


def test_homes_and_what_holds_them_are_refused(tmp_path, files, monkeypatch):
    home = tmp_path / "homes/somebody"
    (home / "project").mkdir(parents=True)
    entry = pwd.struct_passwd(("somebody", "x", os.geteuid(), 0, "", os.fspath(home), "/bin/sh"))
    monkeypatch.setattr(roots.pwd, "getpwall", lambda: [entry])
    assert "is a home directory, or holds one" in refused(files, home)
    assert "is a home directory, or holds one" in refused(files, tmp_path / "homes")
    files.open_root(os.fspath(home / "project")).close()


def test_our_own_home_is_refused(files):
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert any(words in refused(files, home) for words in ("home directory", "directory of the system"))


def test_our_own_directories_are_refused_with_what_is_in_them_and_what_holds_them(tmp_path, files):
    for path in (tmp_path / "state", tmp_path / "state/inner", tmp_path):
        assert "is, holds or lies in a directory of Bascule itself" in refused(files, path)
    (tmp_path / "link").symlink_to("state/inner")
    assert "of Bascule itself" in refused(files, tmp_path / "link")
    (tmp_path / "not-yet").mkdir()
    assert "of Bascule itself" in refused(files, tmp_path / "not-yet")
    # A name that only begins the same is another directory.
    (tmp_path / "state-of-the-art").mkdir()
    files.open_root(os.fspath(tmp_path / "state-of-the-art")).close()


def test_a_copy_that_we_made_in_our_own_directory_is_opened(tmp_path, files):
    root = files.open_copy(os.fspath(tmp_path / "state/inner"))
    ByName(root).create(parse_path("x"), b"x", overwrite=False)
    root.close()


@only_root
def test_another_name_for_our_directory_by_a_mount_is_refused(tmp_path, files):
    (tmp_path / "alias").mkdir()
    if subprocess.run(["mount", "--bind", tmp_path / "state/inner", tmp_path / "alias"], check=False).returncode:
        missing_here("bind mounts do not work here")
    try:
        # No part of its path is ours, and yet it is the same directory.
        inner = WorkspaceFiles((os.fspath(tmp_path / "state/inner"),))
        assert "of Bascule itself" in refused(inner, tmp_path / "alias")
    finally:
        subprocess.run(["umount", tmp_path / "alias"], check=True)


def test_a_directory_of_another_user_is_refused(tmp_path, files, monkeypatch):
    monkeypatch.setattr(roots.os, "geteuid", lambda: 4_242)
    assert "belongs to another user" in refused(files, tmp_path / "project")
