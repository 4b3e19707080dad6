"""`bascule stop`, `resume` and questions in words as people use them: real commands, a passphrase on a terminal."""

import json
import os
import shutil
import sys

import pytest

from patience import PATIENCE

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "approval"))

from living import eventually, run_command, short_dir
from living_grove import PASSPHRASE, Grove, person
from wires import Caller, LinkWire

from terminal import on_a_terminal

TYPED = PASSPHRASE["passphrase"]


@pytest.fixture
def grove():
    with short_dir() as folder:
        grove = Grove(folder)
        with grove.live(approval_hold_ms=50) as daemon:
            person(daemon, new=True).close()
            grove.daemon = daemon
            yield grove


def run(grove, *arguments):
    return run_command(*arguments, "--state-dir", grove.state)


def on_tty(grove, *arguments, typed, **more):
    return on_a_terminal(*arguments, "--state-dir", grove.state, typed=typed, **more)


@pytest.mark.skipif(
    shutil.which("bwrap") is None and os.environ.get("CI") != "true", reason="bubblewrap is not installed"
)
def test_a_real_command_is_ended_and_none_begins_until_the_person_resumes(grove):
    project = os.path.join(grove.folder, "project")
    os.mkdir(project)
    with LinkWire(grove.daemon.link_socket).hello() as link:
        space = link.call("spaces.open", {"path": project})["spaceId"]
        started = link.call("processes.start", {"spaceId": space, "command": "echo up; sleep 600"})
        logs = {"processId": started["processId"], "stream": "stdout", "waitMs": 1_000}
        eventually(lambda: link.call("processes.logs", logs)["text"], "it runs")
        done = run(grove, "stop", "--json")
        assert done.returncode == 0, done.stderr
        results = {each["bridge"]: each["text"] for each in json.loads(done.stdout)["results"]}
        assert results["workspace"] == "1 runs and 1 commands ended"
        assert not link.call("processes.logs", logs)["running"]
        refused = link.refusal("processes.start", {"spaceId": space, "command": "echo again"})
        assert refused["code"] == "stopped"
        session = on_tty(grove, "resume", typed=[("Passphrase: ", TYPED)])
        assert session.code == 0, session.shown
        assert link.call("processes.start", {"spaceId": space, "command": "echo again"})


def test_a_wrong_passphrase_resumes_nothing_and_none_is_needed_to_stop(grove):
    assert run(grove, "stop").returncode == 0
    assert on_tty(grove, "resume", typed=[("Passphrase: ", "wrong wrong wrong")]).code != 0
    with LinkWire(grove.daemon.link_socket).hello() as link:
        assert link.call("daemon.status")["stopped"]["by"] == "local"
    assert on_tty(grove, "resume", typed=[("Passphrase: ", TYPED)]).code == 0
    assert "nothing is stopped" in run(grove, "resume").stderr


def test_a_question_in_words_is_listed_read_and_answered(grove):
    jerry = Caller(grove.daemon).register("Jerry")
    ticket = jerry.send("person", {"question": "Which \x1b[31mbranch?", "choices": ["main", "next"]})
    listed = run(grove, "approvals")
    assert ticket in listed.stdout
    assert "branch" not in listed.stdout, "the words are the person's to read"
    assert ticket in run(grove, "top", "--once").stdout
    session = on_tty(grove, "approvals", "answer", ticket[-8:], typed=[("Passphrase: ", TYPED), ("Your answer", "2")])
    assert session.code == 0, session.shown
    assert "⟨ESC⟩[31mbranch?" in session.shown
    reply = jerry.get(f"/replies/{ticket}").json
    assert (reply["payload"], reply["from"]) == ("next", "person")


def test_watch_offers_a_question_in_words(grove):
    jerry = Caller(grove.daemon).register("Jerry")
    ticket = jerry.send("person", "Which branch?")

    def answered():
        return jerry.get(f"/replies/{ticket}?waitMs=0").status == 200

    session = on_tty(
        grove,
        "approvals",
        "watch",
        typed=[("r = read and answer", "r"), ("Passphrase: ", TYPED), ("Your answer", "the old one")],
        until=answered,
        seconds=PATIENCE,
    )
    assert "Jerry asks you something in words" in session.shown
    assert jerry.get(f"/replies/{ticket}").json["payload"] == "the old one"


def test_the_person_writes_to_an_agent(grove):
    jerry = Caller(grove.daemon).register("Jerry")
    session = on_tty(grove, "agents", "write", "Jerry", "use main", typed=[("Passphrase: ", TYPED)])
    assert session.code == 0, session.shown
    (item,) = jerry.get("/agents/Jerry/inbox").json["messages"]
    assert (item["from"], item["payload"]) == ("person", "use main")
