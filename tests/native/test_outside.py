"""What agents' own tools change outside of the project comes back, and nothing that came later is lost."""

import contextlib
import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bascule.client import SyncClient
from bascule.workspace.machine.checkpoints.outside import OutsideFiles, OutsideLimits
from bascule.workspace.ports import CheckpointFault
from patience import PATIENCE
from undo_of import left_alone


def snapshot(*tops):
    found = {}
    for top in tops:
        names = [top, *(path for path in top.rglob("*") if not top.is_symlink())] if os.path.lexists(top) else []
        for path in names:
            mode = path.lstat().st_mode
            content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            noted = {name: os.getxattr(path, name) for name in os.listxattr(path)} if path.is_file() else {}
            found[str(path)] = (stat.S_IFMT(mode), stat.S_IMODE(mode), content, noted)
    return found


@pytest.fixture
def there(tmp_path):
    """A directory outside of the project, with everything that a copy has to hold."""
    place = tmp_path / "home" / "documents"
    (place / "deep" / "empty").mkdir(parents=True)
    (place / "text").write_text("a\n")
    (place / "deep" / "bytes").write_bytes(bytes(range(256)))
    with contextlib.suppress(OSError):
        # Not every file system has attributes.
        os.setxattr(place / "text", "user.note", b"1")
    (place / "script").write_text("#!/bin/sh\n")
    (place / "script").chmod(0o750)
    (place / "link").symlink_to("text")
    (place / "dangling").symlink_to("nowhere")
    (place / "shut").mkdir(mode=0o700)
    (place / "shut" / "inside").write_text("b")
    (place / "shut").chmod(0o500)
    (place / os.fsdecode(b"not \xff text")).write_bytes(b"x")
    return place


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "home" / "project"
    root.mkdir(parents=True)
    return root


@pytest.fixture
def kept(tmp_path):
    return OutsideFiles(str(tmp_path / "state"))


def around(kept, project, command, *paths, into=False):
    """Before and after a command that names these paths."""
    before = kept.keep("spc_1", str(project), [str(path) for path in paths], into=into).state
    # `rm` stops at a directory that is shut to who is not root.
    subprocess.run(["bash", "-c", command], cwd=project, check=False, capture_output=True, timeout=PATIENCE)
    return before, kept.look("spc_1", before)


COMMANDS = [
    "rm -rf ../documents",
    "rm -rf ../documents/deep ../documents/text",
    "echo x > ../documents/text",
    "echo x > ../documents/link",
    "chmod -R a+rwx ../documents",
    "rm ../documents/text && mkdir ../documents/text && touch ../documents/text/x",
    "rm -r ../documents/deep && echo x > ../documents/deep",
    "mv ../documents ../moved",
    "ln -sfn /etc ../documents/dangling",
    "mkdir -p ../documents/new/and/newer && echo x > ../documents/new/and/newer/y",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_destroys_outside_comes_back_exactly(kept, project, there, command):
    was = snapshot(there, project.parent / "moved")
    states = around(kept, project, command, there, project.parent / "moved")
    assert snapshot(there, project.parent / "moved") != was
    kept.undo("spc_1", *states, dry_run=True)
    assert snapshot(there, project.parent / "moved") != was, "a dry run changes nothing"
    kept.undo("spc_1", *states, dry_run=False)
    assert snapshot(there, project.parent / "moved") == was
    assert not list(project.parent.glob(".bascule-undo-*"))


def test_directories_that_a_call_made_on_the_way_go_as_well(kept, project):
    named = project.parent / "a" / "b" / "c"
    states = around(kept, project, "mkdir -p ../a/b && echo x > ../a/b/c", named)
    kept.undo("spc_1", *states, dry_run=False)
    assert not (project.parent / "a").exists()


def test_a_file_that_a_named_link_leads_to_is_kept_too(kept, project, there):
    states = around(kept, project, "echo x > ../documents/link", there / "link")
    kept.undo("spc_1", *states, dry_run=False)
    assert (there / "text").read_text() == "a\n"
    assert (there / "link").is_symlink()


def test_a_link_in_the_project_that_leads_outside_is_outside(kept, project, there):
    (project / "way").symlink_to(there)
    before = kept.keep("spc_1", str(project), [f"{project}/way/text"])
    assert before.state is not None
    assert not before.inside


def test_what_is_inside_is_left_to_the_checkpoint(kept, project):
    assert kept.keep("spc_1", str(project), [f"{project}/a", "/dev/null"]) == (None, True)


def test_a_pattern_means_what_it_finds(kept, project, there):
    states = around(kept, project, "rm ../documents/t*", f"{there}/t*")
    kept.undo("spc_1", *states, dry_run=False)
    assert (there / "text").read_text() == "a\n"


def test_of_a_directory_that_files_are_copied_into_only_those_are_kept(kept, project, there):
    (project / "text").write_text("new")
    before, after = around(kept, project, "cp text ../documents", there, there / "text", into=True)
    (there / "script").write_text("somebody's later work")
    kept.undo("spc_1", before, after, dry_run=False)
    assert (there / "text").read_text() == "a\n"
    assert (there / "script").read_text() == "somebody's later work"


def test_a_later_change_stops_the_undo_before_anything_is_touched(kept, project, there):
    states = around(kept, project, "rm -rf ../documents/deep; echo x > ../documents/text", there)
    (there / "text").write_text("somebody's later work")
    now = snapshot(there)
    with pytest.raises(CheckpointFault, match="text was changed since then"):
        kept.undo("spc_1", *states, dry_run=False)
    assert snapshot(there) == now


def test_an_undo_does_not_remove_a_directory_with_later_work_in_it(kept, project):
    made = project.parent / "made"
    states = around(kept, project, "mkdir ../made && touch ../made/x", made)
    (made / "later").write_text("work")
    with pytest.raises(CheckpointFault, match="later was put there since then"):
        kept.undo("spc_1", *states, dry_run=False)
    assert (made / "later").read_text() == "work"
    (made / "later").unlink()
    kept.undo("spc_1", *states, dry_run=False)
    assert not made.exists()


def test_without_a_state_after_the_call_only_what_is_gone_comes_back(kept, project, there):
    before, _ = around(kept, project, "rm ../documents/script; echo x > ../documents/text", there)
    back = kept.undo("spc_1", before, None, dry_run=False)
    assert (there / "script").read_text() == "#!/bin/sh\n"
    assert (there / "text").read_text() == "x\n"
    assert [each.path for each in back.left_alone] == [str(there / "text")]


@pytest.mark.parametrize(
    ("limits", "why"),
    [(OutsideLimits(bytes=100), "more than 100 bytes"), (OutsideLimits(files=3), "more than 3 files")],
)
def test_what_is_over_the_limit_is_not_kept_and_says_which(tmp_path, project, there, limits, why):
    kept = OutsideFiles(str(tmp_path / "state"), limits=limits)
    with pytest.raises(CheckpointFault, match=f"{there} .*{why}"):
        kept.keep("spc_1", str(project), [str(there)])
    assert os.listdir(tmp_path / "state" / "spc_1") == [], "nothing half is left"


def test_the_oldest_copies_make_room_for_newer_ones(tmp_path, project):
    kept = OutsideFiles(str(tmp_path / "state"), limits=OutsideLimits(total_bytes=2_500))
    states = []
    for number in range(3):
        place = project.parent / f"f{number}"
        place.write_bytes(bytes([number]) * 1_000)
        states.append(around(kept, project, f"rm ../f{number}", place))
        os.utime(tmp_path / "state" / "spc_1" / states[-1][0], (number, number))
    with pytest.raises(CheckpointFault, match="no longer kept"):
        kept.undo("spc_1", *states[0], dry_run=False)
    kept.undo("spc_1", *states[2], dry_run=False)
    assert (project.parent / "f2").read_bytes() == b"\2" * 1_000


def test_our_own_directories_and_what_holds_the_project_are_never_copied(tmp_path, project):
    kept = OutsideFiles(str(tmp_path / "state"), ours=(str(tmp_path / "ours"),))
    for place, why in ((project.parent, "holds the project"), (tmp_path / "ours" / "x", "Bascule itself")):
        with pytest.raises(CheckpointFault, match=why):
            kept.keep("spc_1", str(project), [str(place)])


def test_a_disk_is_never_copied(kept, project, monkeypatch):
    disk = os.stat_result((stat.S_IFBLK | 0o660, *[0] * 9))
    monkeypatch.setattr("bascule.workspace.machine.checkpoints.outside.os.stat", lambda _: disk)
    with pytest.raises(CheckpointFault, match="/dev/sdz is a disk"):
        kept.keep("spc_1", str(project), ["/dev/sdz"])


def test_a_copy_that_somebody_changed_is_not_put_back(kept, project, there, tmp_path):
    before, after = around(kept, project, "rm ../documents/text", there / "text")
    for file in (tmp_path / "state" / "spc_1" / before).iterdir():
        if file.name != "manifest":
            file.write_bytes(b"forged\n")
    with pytest.raises(CheckpointFault, match="was changed"):
        kept.undo("spc_1", before, after, dry_run=False)
    assert not (there / "text").exists()


def test_a_full_disk_keeps_nothing_half_and_says_so(small_disk, project, there):
    (there / "large").write_bytes(os.urandom(4 * 1024 * 1024))
    kept = OutsideFiles(str(small_disk))
    with pytest.raises(CheckpointFault, match="No space left on device"):
        kept.keep("spc_1", str(project), [str(there)])
    assert os.listdir(small_disk / "spc_1") == []


# -- through hooks --------------------------------------------------------------------------------


def edit(scene, path, text, tool="Edit"):
    arguments = {"file_path": str(path)}
    call_id = f"e-{path.name}-{text}"
    answer = scene.send("native.before", scene.event("PreToolUse", tool, arguments, tool_use_id=call_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    scene.send("native.after", scene.event("PostToolUse", tool, arguments, tool_use_id=call_id))
    if "runId" in answer:
        scene.wire.call("runs.wait", {"runId": answer["runId"], "waitMs": 60_000})
    return answer


def test_an_edit_outside_of_the_project_is_undone_but_for_later_work(scene):
    path = scene.root.parent / ".profile"
    path.write_text("export A=1\n")
    path.chmod(0o640)
    answer = edit(scene, path, "broken")
    shown = next(run for run in scene.wire.call("runs.list", {}) if run["runId"] == answer["runId"])
    assert shown["undoable"]
    changed = scene.wire.call("runs.diff", {"runId": answer["runId"]})["changes"]
    assert [(each["path"], each["change"]) for each in changed] == [(str(path), "modified")]
    undone = scene.undo(answer["runId"])
    assert [each["path"] for each in undone["changes"]] == [str(path)]
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("export A=1\n", 0o640)

    new = scene.root.parent / "notes" / "new.txt"
    scene.undo(edit(scene, new, "x", tool="Write")["runId"])
    assert not new.parent.exists()
    answer = edit(scene, path, "broken again")
    path.write_text("a person's own work")
    undone = scene.undo(answer["runId"])
    assert (undone["changes"], left_alone(undone)) == ([], {str(path): "was changed since"})
    assert path.read_text() == "a person's own work"


def test_a_delete_in_the_project_and_outside_is_undone_in_both_but_for_later_work(scene):
    other = scene.root.parent / "other"
    other.mkdir()
    (other / "a").write_text("a")
    was, was_there = snapshot(other, scene.root / "src"), snapshot(scene.root / "src")
    answer = scene.run("rm -rf src ../other")
    assert snapshot(other, scene.root / "src") != was
    scene.undo(answer["runId"])
    assert snapshot(other, scene.root / "src") == was
    answer = scene.run("rm -rf src; echo x > ../other/a")
    (other / "a").write_text("a person's own work")
    undone = scene.undo(answer["runId"])
    assert left_alone(undone) == {str(other / "a"): "was changed since"}
    assert (other / "a").read_text() == "a person's own work"
    assert snapshot(scene.root / "src") == was_there


def test_what_cannot_be_kept_outside_is_said_and_the_project_is_held_all_the_same(scene):
    was = snapshot(scene.root / "src")
    (Path(scene.daemon.state_dir) / "x").touch()
    answer = scene.run(f"rm -rf src {scene.daemon.state_dir}/x")
    assert answer["note"].startswith("no undo outside of the project: ")
    scene.undo(answer["runId"])
    assert snapshot(scene.root / "src") == was


def test_a_file_that_was_deleted_outside_comes_back_after_the_daemon_was_killed(scene):
    path = scene.root.parent / "letter"
    path.write_text("dear")
    _, answer = scene.before("rm ../letter")
    path.unlink()
    scene.close()
    scene.daemon.kill()
    scene.daemon.start()
    scene.wire = SyncClient.connect(scene.daemon.state_dir)
    scene.undo(answer["runId"])
    assert path.read_text() == "dear"


def test_making_room_leaves_what_other_calls_are_copying(project, tmp_path):
    """Sixty copies at once, with room for eight of them: each is made, and the oldest that are complete go."""
    kept = OutsideFiles(str(tmp_path / "state"), limits=OutsideLimits(total_bytes=4 * 1024 * 1024))
    places = []
    for number in range(60):
        place = project.parent / f"place-{number}"
        place.write_bytes(os.urandom(512 * 1024))
        places.append(str(place))
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda place: kept.keep("spc_1", str(project), [place], into=False).state, places))
    assert all(made)
    held = [entry.name for entry in os.scandir(tmp_path / "state" / "spc_1")]
    assert set(held) < set(made), "nothing unfinished is left"
    assert 1 <= len(held) <= 8


def test_the_copy_that_an_undo_needs_does_not_make_room_for_its_own_snapshot(project, tmp_path):
    kept = OutsideFiles(str(tmp_path / "state"), limits=OutsideLimits(total_bytes=600 * 1024))
    place = project.parent / "place"
    place.write_bytes(b"1" * 400 * 1024)
    states = around(kept, project, f"head -c 409600 /dev/zero > {place}", place)
    assert all(kept.expect("spc_1", *states))
    kept.undo("spc_1", *states, dry_run=False)
    assert place.read_bytes() == b"1" * 400 * 1024


@pytest.mark.parametrize(
    "command",
    [
        "mkdir {home}/made",
        "mkdir -p {home}/made/deep/er",
        "rmdir {home}/empty",
        "rmdir {home}/empty && mkdir {home}/made",
        "rm -r {home}/tree",
        "chmod 700 {home}/empty",
        "chmod 700 .",
        "chmod 700 . && rmdir {home}/empty",
    ],
)
def test_modes_and_empty_directories_come_back_outside_too(scene, command):
    """U9: they were not recorded."""
    home = scene.root.parent
    (home / "empty").mkdir(mode=0o755)
    (home / "tree" / "deep" / "er").mkdir(parents=True)
    scene.root.chmod(0o755)

    def look():
        return {
            os.path.relpath(folder, home): os.stat(folder).st_mode
            for folder, _, _ in os.walk(home)
            if "/.git" not in folder
        }

    was = look()
    answer = scene.run(command.format(home=home))
    assert look() != was
    undone = scene.undo(answer["runId"])
    assert look() == was
    assert "leftAlone" not in undone
    assert "failed" not in undone
    scene.redo()
    assert look() != was
    scene.undo(answer["runId"])
    assert look() == was
