"""Copies of files outside of the project, while others put links in the way; and what must not come back as it was."""

import os
import shutil

import pytest

from bascule.workspace.machine.checkpoints import outside, steps
from bascule.workspace.machine.checkpoints.outside import OutsideFiles
from bascule.workspace.ports import CheckpointFault

SECRET = "the key of the person\n"


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    return root


@pytest.fixture
def shared(tmp_path):
    """A directory that somebody else may change, too: a command in a sandbox, or another user in /tmp."""
    place = tmp_path / "shared"
    (place / "deep").mkdir(parents=True)
    (place / "first").write_text("a")
    (place / "deep" / "name").write_text("what the attacker wants to be written\n")
    return place


@pytest.fixture
def home(tmp_path):
    place = tmp_path / "home"
    place.mkdir()
    (place / "name").write_text(SECRET)
    return place


@pytest.fixture
def kept(tmp_path):
    return OutsideFiles(str(tmp_path / "state"))


@pytest.fixture(params=["guarded", "with links followed"])
def guarded(request, monkeypatch):
    """The second is the control: without the guard the attack works."""
    if request.param != "guarded":
        for flags in ("_STEP", "_READ"):
            monkeypatch.setattr(steps, flags, getattr(steps, flags) & ~os.O_NOFOLLOW)
    return request.param == "guarded"


def before_calling(monkeypatch, owner, name, act):
    """`act` happens once, in the moment before our code does the next thing."""
    really = getattr(owner, name)
    acts = [act]

    def call(*arguments):
        if acts:
            acts.pop()()
        return really(*arguments)

    monkeypatch.setattr(owner, name, call)


def put_link(place, leads_to):
    place.rename(place.with_name("aside"))
    place.symlink_to(leads_to)


def test_a_link_that_takes_a_directorys_place_during_an_undo_leads_nowhere(kept, shared, home, monkeypatch, guarded):
    before = kept.keep("spc_1", str(shared.parent / "project"), [str(shared)]).state
    (shared / "deep" / "name").unlink()
    after = kept.look("spc_1", before)
    before_calling(monkeypatch, outside._PuttingBack, "_apply", lambda: put_link(shared / "deep", home))
    if guarded:
        with pytest.raises(CheckpointFault, match="cannot be put back"):
            kept.undo("spc_1", before, after, dry_run=False)
    else:
        kept.undo("spc_1", before, after, dry_run=False)
    assert ((home / "name").read_text() == SECRET) is guarded
    assert not list(shared.parent.glob(".bascule-undo-*"))


def test_a_link_above_what_was_kept_leads_nowhere_either(kept, shared, home, monkeypatch, guarded):
    before = kept.keep("spc_1", str(shared.parent / "project"), [str(shared / "deep" / "name")]).state
    (shared / "deep" / "name").unlink()
    after = kept.look("spc_1", before)
    before_calling(monkeypatch, outside._PuttingBack, "run", lambda: put_link(shared / "deep", home))
    if guarded:
        with pytest.raises(CheckpointFault, match="cannot be put back"):
            kept.undo("spc_1", before, after, dry_run=False)
    else:
        kept.undo("spc_1", before, after, dry_run=False)
    assert ((home / "name").read_text() == SECRET) is guarded


def test_a_link_that_takes_a_directorys_place_during_the_copy_gives_no_secret_away(
    kept, shared, home, monkeypatch, guarded
):
    """Else the secret is taken for a file of that directory, and the undo puts it there."""
    really = steps.directory

    def enter(path):
        if path == os.fsencode(shared / "deep") and not (shared / "aside").exists():
            put_link(shared / "deep", home)
        return really(path)

    monkeypatch.setattr(steps, "directory", enter)
    if guarded:
        with pytest.raises(CheckpointFault, match="Not a directory"):
            kept.keep("spc_1", str(shared.parent / "project"), [str(shared)])
        return
    before = kept.keep("spc_1", str(shared.parent / "project"), [str(shared)]).state
    (shared / "deep").unlink()
    shutil.move(shared / "aside", shared / "deep")
    (shared / "deep" / "name").unlink()
    kept.undo("spc_1", before, kept.look("spc_1", before), dry_run=False)
    assert (shared / "deep" / "name").read_text() == SECRET


def test_a_file_that_is_exchanged_for_a_pipe_is_not_waited_for(kept, project, shared, monkeypatch):
    def exchange():
        (shared / "first").unlink()
        os.mkfifo(shared / "first")

    before_calling(monkeypatch, outside, "_read_file", exchange)
    with pytest.raises(CheckpointFault, match="exchanged"):
        kept.keep("spc_1", str(project), [str(shared / "first")])


@pytest.mark.parametrize(("stranger", "mode"), [(0, 0o6755), (1, 0o755)])
def test_another_users_program_does_not_come_back_with_our_rights(tmp_path, monkeypatch, stranger, mode):
    """Who may not give a file away gets it as their own: set-user-ID would make it run as them, for anybody."""
    place = tmp_path / "program"
    place.write_bytes(b"x")
    found = place.stat()
    monkeypatch.setattr(outside.os, "geteuid", lambda: 1000)
    entry = outside._Entry("file", 0o6755, found.st_uid + stranger, found.st_gid + stranger)
    with open(place, "rb") as file:
        outside._own(file.fileno(), entry)
    assert place.stat().st_mode & 0o7777 == mode


def test_a_place_that_is_another_for_every_process_is_not_taken_for_ours(kept, project, tmp_path, monkeypatch):
    """The daemon's own directory is not the agent's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text("of the daemon")
    (project / "link").symlink_to("/proc/self/cwd/mine")
    for path in ("/proc/self/cwd/mine", "/proc/thread-self/root/etc/hosts", f"{project}/link", "/dev/fd/9"):
        with pytest.raises(CheckpointFault, match="another place for every process"):
            kept.keep("spc_1", str(project), [path])
    assert os.path.realpath("/proc/self/cwd/mine") == str(tmp_path / "mine"), "this is what would be copied"


def test_streams_of_a_command_cost_it_no_undo(kept, project, shared):
    state = kept.keep("spc_1", str(project), [str(shared / "first"), "/dev/stderr", "/dev/stdout", "/dev/null"]).state
    (shared / "first").unlink()
    kept.undo("spc_1", state, kept.look("spc_1", state), dry_run=False)
    assert (shared / "first").read_text() == "a"


def test_a_link_in_a_circle_is_a_name_like_others(kept, project, shared):
    (shared / "circle").symlink_to("circle")
    state = kept.keep("spc_1", str(project), [str(shared / "circle")]).state
    (shared / "circle").unlink()
    kept.undo("spc_1", state, kept.look("spc_1", state), dry_run=False)
    assert os.readlink(shared / "circle") == "circle"


def test_what_cannot_be_read_any_more_is_said(kept, project, shared, monkeypatch):
    state = kept.keep("spc_1", str(project), [str(shared)]).state

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(OutsideFiles, "_entries", refuse)
    with pytest.raises(CheckpointFault, match="Permission denied"):
        kept.undo("spc_1", state, None, dry_run=True)
