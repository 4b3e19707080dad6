"""`bascule exec`, `run`, `runs`, `spaces` and `processes` as people use them: a real daemon, a real sandbox."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from exit_codes import INTERRUPTED, REFUSED, USAGE
from living import eventually, run_command

from daemon_process import DaemonProcess
from inside import BASCULE
from patience import PATIENCE
from terminal import on_a_terminal

if shutil.which("bwrap") is None and os.environ.get("CI") != "true":
    pytest.skip("bubblewrap is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def house():
    daemon = DaemonProcess(None, "--durability", "memory")
    yield daemon
    daemon.remove()


@pytest.fixture
def project(house, tmp_path, monkeypatch):
    """A directory of the test's own, which we are in."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def bascule(house, project):
    def run(*arguments, message=None):
        if message is not None:
            path = project.parent / "ops.json"
            path.write_text(message)
            arguments = (*arguments, "-f", str(path))
        verb = 2 if arguments[0] in ("runs", "spaces", "processes") else 1
        command = (*arguments[:verb], "--state-dir", house.state_dir, *arguments[verb:])
        return run_command(*command)

    return run


def test_a_command_is_live_and_has_its_own_exit_code(bascule, project):
    done = bascule("exec", "--", "sh", "-c", "echo out; echo err >&2; pwd; exit 7")
    assert (done.returncode, done.stderr) == (7, "err\n")
    assert done.stdout == f"out\n{project}\n"


def test_one_text_is_a_shell_line_and_several_words_are_a_program(bascule):
    assert bascule("exec", "echo 'a  b' && echo $((1 + 1))").stdout == "a  b\n2\n"
    assert bascule("exec", "--", "echo", "$HOME", "a  b").stdout == "$HOME a  b\n"


def test_what_a_command_makes_is_there_with_usual_modes_and_nothing_else_of_the_machine_is_seen(bascule, project):
    done = bascule("exec", "echo x > made; ls /root /home; ls -a /run")
    assert oct((project / "made").stat().st_mode & 0o777) == "0o644"
    assert "No such file" in done.stderr
    assert "sock" not in done.stdout.replace("space.sock", "")


def test_a_denied_command_says_what_to_change(bascule):
    done = bascule("exec", "--", "sudo", "id")
    assert done.returncode == REFUSED
    assert done.stderr == "[denied: Command 'sudo' is blocked; Remove sudo from command]\n"


def test_a_command_that_takes_too_long_is_ended(bascule):
    done = bascule("exec", "--timeout", "300ms", "--", "sleep", "60")
    assert done.returncode == 124
    assert "everything it started was ended" in done.stderr


def test_what_asks_is_not_waited_for_when_nobody_wants_to(bascule, project):
    (project / "data").mkdir()
    done = bascule("exec", "--no-wait", "rm -rf data")
    assert done.returncode == REFUSED
    assert "asks: Destructive command requires approval" in done.stderr
    assert (project / "data").is_dir()


def test_while_a_person_is_waited_for_the_terminal_says_so_and_where_to_answer(house, project):
    (project / "data").mkdir()
    session = on_a_terminal(
        *("exec", "--state-dir", house.state_dir, "rm -rf data"),
        typed=[("has been waiting for your answer", "")],
        seconds=PATIENCE,
        until=lambda: True,
    )
    assert session.code == INTERRUPTED
    assert re.search(r"the command has been waiting .*: bascule approvals show apr_\w+, in another", session.shown)
    # Nobody could answer: no passphrase is set on this daemon.
    assert "first, in another terminal: bascule person set" in session.shown
    assert "quiet for" not in session.shown
    assert (project / "data").is_dir()


def test_ctrl_c_ends_the_command_and_all_it_started(house, project):
    command = [*BASCULE, "exec", "--state-dir", house.state_dir]
    process = subprocess.Popen([*command, "setsid sleep 61 & exec sleep 62"], stderr=subprocess.PIPE, text=True)
    listed = [*BASCULE, "processes", "list", "--json", "--state-dir"]

    def running():
        answer = subprocess.run(
            [*listed, house.state_dir], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        return [each for each in json.loads(answer.stdout) if each["running"]]

    eventually(running, "the command runs")
    process.send_signal(signal.SIGINT)
    _, output = process.communicate(timeout=PATIENCE)
    assert process.returncode == INTERRUPTED
    assert "cancelled" in output
    eventually(lambda: not running(), "nothing of it is left")


def test_a_file_of_operations_is_one_run_that_can_be_shown_and_undone(bascule, project):
    (project / "old.txt").write_text("before\n")
    operations = [
        {"type": "message", "content": "working"},
        {"type": "createFile", "path": "src/new.txt", "content": "hello\n"},
        {"type": "editFile", "path": "old.txt", "edits": [{"oldContent": "before", "newContent": "after"}]},
        {"type": "shell", "command": "cat src/new.txt old.txt"},
    ]
    message = json.dumps({"protocolVersion": "1.0", "operations": operations})
    done = bascule("run", message=message)
    assert (done.returncode, done.stdout) == (0, "hello\nafter\n")
    assert "completed: 4 operations, 0 without success" in done.stderr
    diff = bascule("runs", "diff", "last")
    assert "+hello" in diff.stdout
    assert "-before\n+after" in diff.stdout
    dry = bascule("undo", "--dry-run")
    assert "would put back 2 files" in dry.stderr
    assert (project / "src" / "new.txt").exists()
    assert "put back 2 files" in bascule("undo").stderr
    assert (project / "old.txt").read_text() == "before\n"
    assert not (project / "src" / "new.txt").exists()
    listed = json.loads(bascule("runs", "list", "--json").stdout)
    assert (listed[0]["status"], listed[0]["undone"]) == ("completed", True)


def test_an_undo_that_would_lose_something_later_leaves_it_and_names_it(bascule, project):
    bascule("exec", "echo one > shared.txt")
    (project / "shared.txt").write_text("mine\n")
    done = bascule("undo")
    assert "put back 0 files" in done.stderr
    assert "left alone shared.txt: was changed since" in done.stderr
    assert (project / "shared.txt").read_text() == "mine\n"


def test_a_message_that_is_none_is_reported_in_one_sentence(bascule):
    done = bascule("run", message='{"protocolVersion": "9", "operations": []}')
    assert done.returncode == USAGE
    assert "protocolVersion" in done.stderr
    answer = json.loads(bascule("run", "--json", message='{"protocolVersion": "9"}').stdout)
    assert answer["events"][0]["category"] == "validation"


def test_a_run_on_a_copy_changes_nothing_until_it_is_taken_over(bascule, project):
    message = json.dumps({"protocolVersion": "1.0", "operations": [{"type": "shell", "command": "echo x > copied"}]})
    assert bascule("run", "--on-copy", message=message).returncode == 0
    assert not (project / "copied").exists()
    assert "+x" in bascule("runs", "diff", "last").stdout
    assert bascule("runs", "commit", "last").returncode == 0
    assert (project / "copied").read_text() == "x\n"


def test_a_command_in_the_background_is_listed_read_and_stopped(bascule):
    started = json.loads(bascule("exec", "--background", "--json", "echo begun; exec sleep 600").stdout)["processId"]
    eventually(lambda: bascule("processes", "logs", started).stdout == "begun\n", "it has begun")
    assert started in bascule("processes", "list").stdout
    assert bascule("processes", "stop", started).stdout == f"{started} stopped\n"
    (view,) = (
        each for each in json.loads(bascule("processes", "list", "--json").stdout) if each["processId"] == started
    )
    assert (view["running"], view["exitCode"]) == (False, 137)


def test_spaces_are_listed_opened_by_name_and_closed(bascule, project):
    opened = json.loads(bascule("spaces", "open", "--json", "--name", "otter").stdout)
    assert opened["path"] == str(project)
    assert "otter" in bascule("spaces", "list").stdout
    assert bascule("exec", "--space", "otter", "--", "pwd").stdout == f"{project}\n"
    assert "is closed" in bascule("spaces", "close", "otter").stdout
    assert "otter" not in bascule("spaces", "list").stdout


@pytest.mark.parametrize("noun", ["spaces", "runs", "processes", "agents"])
def test_a_noun_without_a_verb_lists(house, bascule, noun):
    bascule("exec", "--background", "--", "true")
    alone = run_command(noun, "--state-dir", house.state_dir, "--json")
    listed = run_command(noun, "list", "--state-dir", house.state_dir, "--json")
    assert (alone.returncode, listed.returncode) == (0, 0)
    assert [sorted(each) for each in json.loads(alone.stdout)] == [sorted(each) for each in json.loads(listed.stdout)]
    assert json.loads(listed.stdout)


def test_a_place_that_is_no_project_is_refused_with_the_reason(bascule):
    done = bascule("exec", "--space", "/", "--", "ls")
    assert done.returncode != 0
    assert "ls" not in done.stdout
    assert done.stderr


def test_a_link_to_a_private_place_is_seen_through(bascule, tmp_path):
    secret = tmp_path / ".ssh"
    secret.mkdir()
    (tmp_path / "innocent").symlink_to(secret)
    done = bascule("exec", "--space", str(tmp_path / "innocent"), "--", "ls")
    assert done.returncode != 0
    assert f"leads to {secret}" in done.stderr


# -- what cannot be undone is said, and the rest is undone ---------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "path", "reason"),
    [
        ("head -c 68157440 /dev/zero > large", "large", "has more than 67,108,864 bytes"),
        (f"mkdir -p {'/'.join(['d'] * 205)}", "/".join(["d"] * 201), "lies deeper than 200 directories"),
        ("mkfifo pipe", "pipe", "is a pipe, socket or device"),
    ],
)
def test_one_extra_file_does_not_keep_the_rest_from_being_undone(bascule, project, command, path, reason):
    (project / "kept").write_text("before\n")
    done = bascule("exec", f"echo after > kept; {command}")
    assert done.returncode == 0
    assert f"[undo leaves alone {path}: {reason}" in done.stderr
    diff = bascule("runs", "diff", "last")
    assert "-before\n+after\n" in diff.stdout
    assert f"unknown   {path}: {reason}" in diff.stderr
    assert path in json.loads(bascule("runs", "list", "--json").stdout)[0]["note"]
    undone = bascule("undo")
    assert undone.returncode == 0
    assert (project / "kept").read_text() == "before\n"
    if path != "pipe":
        assert f"left alone {path}: {reason}" in undone.stderr
        assert (project / path).exists()


def test_a_run_that_only_made_what_no_checkpoint_holds_has_not_changed_nothing(bascule):
    bascule("exec", "head -c 68157440 /dev/zero > large")
    output = bascule("runs", "diff", "last").stderr
    assert "unknown   large" in output
    assert "changed nothing" not in output


def test_large_files_that_were_there_before_are_left_alone_and_named(bascule, project):
    with (project / "large").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    (project / "kept").write_text("before\n")
    bascule("exec", "echo after > kept; echo more >> large")
    assert "unknown   large" in bascule("runs", "diff", "last").stderr
    undone = bascule("undo").stderr
    assert "left alone large: has more than" in undone
    assert (project / "kept").read_text() == "before\n"
    assert (project / "large").stat().st_size == 65 * 1024 * 1024 + 5


def test_a_command_in_the_background_is_a_run_with_a_diff_and_an_undo(bascule, project):
    (project / "mine").write_text("before\n")
    started = json.loads(bascule("exec", "--background", "--json", "echo x > served; exec sleep 600").stdout)
    eventually((project / "served").exists, "it has begun", PATIENCE)
    assert bascule("exec", "echo after > mine").returncode == 0
    (listed,) = (each for each in json.loads(bascule("runs", "list", "--json").stdout) if each.get("background"))
    assert (listed["runId"], listed["status"]) == (started["runId"], "running")
    refused = bascule("undo", started["runId"])
    assert refused.returncode != 0
    assert "stop it first: bascule runs cancel" in refused.stderr
    bascule("processes", "stop", started["processId"])
    diff = bascule("runs", "diff", started["runId"])
    assert "served" in diff.stdout
    assert "note: others worked here at the same time" in diff.stderr
    undone = bascule("undo", started["runId"])
    assert "note: others worked here at the same time" in undone.stderr
    assert "left alone mine: was changed at the same time by run_" in undone.stderr
    assert not (project / "served").exists()
    assert (project / "mine").read_text() == "after\n"


@pytest.mark.parametrize("arguments", [("exec",), ("exec", "--background")])
def test_a_run_that_a_killed_daemon_left_is_undone_in_its_next_life(tmp_path, monkeypatch, arguments):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "kept").write_text("before\n")
    monkeypatch.chdir(folder)
    daemon = DaemonProcess(None)
    try:
        where = ("--state-dir", daemon.state_dir)
        command = [*BASCULE, *arguments[:1], *where, *arguments[1:]]
        process = subprocess.Popen([*command, "echo after > kept; echo x > made; exec sleep 600"])
        eventually((folder / "made").exists, "it works", PATIENCE)
        daemon.kill()
        daemon.start()
        # One that follows the run waits for the daemon to come back.
        process.wait(PATIENCE)
        (listed,) = json.loads(run_command("runs", "list", *where, "--json", seconds=PATIENCE).stdout)
        assert (listed["status"], listed["undoable"]) == ("unknown", True)
        diff = run_command("runs", "diff", *where, "last", seconds=PATIENCE)
        assert "-before\n+after\n" in diff.stdout
        assert "no checkpoint after it" in diff.stderr
        assert run_command("undo", *where, seconds=PATIENCE).returncode == 0
        assert sorted(path.name for path in folder.iterdir()) == ["kept"]
        assert (folder / "kept").read_text() == "before\n"
    finally:
        daemon.remove()
