"""Claude Code, Codex and a person in one project: what Codex did is taken back, and nothing else is."""

import re
from typing import NamedTuple

import pytest
from client_program import DONE, PATIENCE, Client, until
from scripted_model import call

from native_scene import git, make_project, snapshot
from typed_commands import bascule

pytestmark = pytest.mark.clients
TEST = "from src import m1\n\n\ndef test_changed():\n    assert m1.changed\n"
LINES = "".join(f"{number}\n" for number in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
CLEAN_UP = "rm -rf src && git stash drop"


class Together(NamedTuple):
    claude: Client
    codex: Client

    @property
    def project(self):
        return self.claude.project

    def person(self, *words):
        """What a person types in the project's directory: exit code, output and messages."""
        return bascule(self.claude.daemon.state_dir, self.project, *words)


@pytest.fixture
def together(make_client):
    """Both clients, with hooks, in one project with commits, a stash, and a file that is not committed."""
    claude = make_client("claude")
    make_project(claude.project)
    claude.options = ["--allowedTools", "Bash,Edit,Write,Read"]
    claude.switch_on()
    codex = make_client("codex", beside=claude)
    # Its own sandbox and questions are not what is looked at here.
    codex.options = ["--dangerously-bypass-approvals-and-sandbox"]
    with open(codex.home / ".codex" / "config.toml", "a") as config:
        # What a person has answered once.
        config.write(f'\n[projects."{claude.project}"]\ntrust_level = "trusted"\n')
    codex.switch_on()
    return Together(claude, codex)


def says(*replies):
    """A model that gives these replies to a prompt and to what comes of them, one after the other, and is done."""
    left = list(replies)
    begun = []

    def script(prompt):
        if "please" in prompt:
            begun.append(prompt)
        return left.pop(0) if begun and left else DONE

    return script


def codex_runs(model, command):
    """Its shell has another name in every other version, and a long command is looked at again and again."""

    def script(prompt):
        running = re.search(r"running with session ID (\d+)", prompt)
        if running:
            return call("write_stdin", session_id=int(running[1]), chars="", yield_time_ms=30_000)
        if "please" not in prompt:
            return DONE
        if "exec_command" in model.tools:
            return call("exec_command", cmd=command)
        return call("shell_command", command=command)

    return script


# -- the scene: one writes tests, one edits by hand, one cleans up too much --


def test_what_codex_cleaned_up_comes_back_and_the_work_of_claude_and_of_the_person_stays(together, wire, terminal):
    claude, codex, project = together.claude, together.codex, together.project
    test_file = project / "tests" / "test_m1.py"
    claude.model.script = says(
        call("Write", file_path=str(test_file), content=TEST.replace("changed", "chagned", 1)),
        call("Edit", file_path=str(test_file), old_string="chagned", new_string="changed"),
        call("Bash", command="printf 'pytest\\n' > tests/requirements.txt && chmod +x tests", description="x"),
    )
    claude.run("please write tests")
    assert test_file.read_text() == TEST, claude.model.prompts
    assert (project / "tests" / "requirements.txt").read_text() == "pytest\n", claude.model.prompts
    # By hand, in an editor.
    (project / "src" / "m4.py").write_text("by_hand = 'in what will be gone'\n")
    (project / "run.sh").write_text("#!/bin/sh\n# by hand, not committed\nexit 0\n")
    was = snapshot(project)

    codex.model.script = codex_runs(codex.model, CLEAN_UP)
    # It runs no `rm -rf` that nobody said yes to.
    options = ["--sandbox", "danger-full-access", "--ask-for-approval", "on-request"]
    screen = terminal(codex, codex.program, *options, "please clean up")
    screen.sees("Would you like to run")
    until(lambda: "Would you like to run" not in screen.shown() or screen.type("y"), "the dialog hears the key")
    screen.sees(DONE)
    cleaned = snapshot(project)
    assert not (project / "src").exists(), codex.model.prompts
    assert len(git(project, "stash", "list").splitlines()) == 1
    rest = {name: each for name, each in was[0].items() if name.split("/")[0] != "src"}
    assert cleaned[0] == rest, "the trigger changes nothing else"

    undo = together.person("undo", "--session", "codex")
    assert undo.code == 0, undo
    assert snapshot(project) == was
    shown = undo.out + undo.errors
    assert re.search(r"put back \d+ files of session codex: 1 operation", shown), undo
    assert "src/m1.py" in shown
    assert "refs/stash" in shown, undo
    assert "bascule redo" in shown
    assert "tests/test_m1.py" not in shown
    assert "run.sh" not in shown
    assert "left alone" not in shown

    redo = together.person("redo")
    assert redo.code == 0, redo
    assert snapshot(project) == cleaned

    again = together.person("undo", "--session", "codex")
    assert again.code == 0, again
    assert snapshot(project) == was
    assert git(project, "fsck") == ""

    # -- who did what --
    daemon = wire(claude.daemon)
    sessions = {each["client"]: each["session"] for each in daemon.call("sessions.list", {})}
    log = together.person("log")
    assert log.code == 0, log
    rows = log.out.splitlines()
    (cleaning,) = (row for row in rows if CLEAN_UP in row and "undo of" not in row)
    assert " codex " in cleaning
    (writing,) = (row for row in rows if "printf 'pytest" in row)
    assert " claude " in writing
    assert [kind for row in rows for kind in re.findall(r"\b(undo|redo) of ", row)[:1]] == ["undo", "redo", "undo"]

    blame = together.person("blame", "tests/test_m1.py")
    assert blame.code == 0, blame
    assert all(" claude " in line for line in blame.out.splitlines()), blame
    line = together.person("blame", "tests/test_m1.py:1")
    assert f"claude, session {sessions['claude']}" in line.out, line
    assert "nobody known" in together.person("blame", "run.sh").out

    show = together.person("show", cleaning.split()[0])
    assert show.code == 0, show
    assert f"codex, session {sessions['codex']}" in show.out
    assert CLEAN_UP in show.out
    assert "-changed = True" in show.out
    assert "-by_hand = 'in what will be gone'" in show.out


# -- at the same time, on the same files --

AT_WORK = (
    "sed -i s/eight/EIGHT/ first.txt; echo codex > codex.txt; touch began; "
    "until [ -e go ]; do sleep 0.05; done; rm began go; sed -i s/eight/EIGHT/ last.txt"
)


def test_of_two_sessions_at_work_at_the_same_time_one_is_taken_back(together):
    """Codex works on one file before Claude Code and on another after it, in one command that goes on meanwhile."""
    claude, codex, project = together.claude, together.codex, together.project
    for name in ("first.txt", "last.txt"):
        (project / name).write_text(LINES)
    was = snapshot(project)
    codex.model.script = codex_runs(codex.model, AT_WORK)
    working = codex.start("please work")
    until((project / "began").exists, "Codex works")
    replies = [call("Write", file_path=str(project / "claude.txt"), content="claude\n")]
    for name in ("first.txt", "last.txt"):
        replies.append(call("Read", file_path=str(project / name)))
        replies.append(call("Edit", file_path=str(project / name), old_string="two", new_string="TWO"))
    claude.model.script = says(*replies)
    claude.run("please work")
    assert working.poll() is None, "both were at work at the same time"
    (project / "go").touch()
    assert working.wait(PATIENCE) == 0, codex.model.prompts

    of_claude = LINES.replace("two", "TWO")
    of_both = of_claude.replace("eight", "EIGHT")
    worked = snapshot(project)
    assert (project / "first.txt").read_text() == (project / "last.txt").read_text() == of_both, claude.model.prompts
    assert set(worked[0]) - set(was[0]) == {"codex.txt", "claude.txt"}

    undo = together.person("undo", "--session", "codex")
    assert undo.code == 0, undo
    assert not (project / "codex.txt").exists()
    assert (project / "claude.txt").read_text() == "claude\n"
    # Its own change came last there: it alone is gone.
    assert (project / "last.txt").read_text() == of_claude
    # Claude Code changed this one later.
    assert (project / "first.txt").read_text() == of_both
    (left,) = re.findall(r"left alone (.*)", undo.out + undo.errors)
    assert re.fullmatch(r"first\.txt: was changed later by run_\w+ \(claude: .*first\.txt.*\)", left), undo

    redo = together.person("redo")
    assert redo.code == 0, redo
    assert snapshot(project) == worked

    merged = together.person("undo", "--session", "codex", "--merge")
    assert merged.code == 0, merged
    assert (project / "first.txt").read_text() == (project / "last.txt").read_text() == of_claude
    assert not (project / "codex.txt").exists()
    assert (project / "claude.txt").read_text() == "claude\n"
    assert "left alone" not in merged.out + merged.errors
