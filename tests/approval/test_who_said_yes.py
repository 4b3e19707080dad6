"""A run keeps who said yes to it: a person and what they showed, a rule of theirs for a while, or a rule of the policy.

What a client's own tool did is in tests/native/test_blame.py.
"""

import time

import pytest
from console_page import approves

from patience import PATIENCE

JERRY = "agent:Jerry"
PATH = "/projects/project"
DROP, DROP_OTHER = "rm -rf data", "rm -rf other"


@pytest.fixture
def scene(grove):
    return Scene(grove.house)


class Scene:
    def __init__(self, house):
        self.house = house
        house.machine.directory(PATH, {"a.txt": b"a\n"})
        for command in (DROP, DROP_OTHER):
            house.machine.command(command, does=lambda files: files.update({"dropped": b"x"}))
        self.space = house.call(JERRY, "spaces.open", {"path": PATH})["spaceId"]

    def begin(self, *operations, **more):
        params = {"spaceId": self.space, "protocolVersion": "1.0", "operations": list(operations), **more}
        return self.answer(self.house.begin(JERRY, "runs.start", params))

    def answer(self, pending):
        self.until(lambda: pending.done)
        return pending.result()

    def until(self, look):
        end = time.monotonic() + PATIENCE
        while not (found := look()) and time.monotonic() < end:
            # Threads are at work.
            time.sleep(0.0005)
            self.house.run(lambda: None)
        return found

    def question(self):
        return self.until(lambda: self.house.call("local", "approvals.list"))[0]["approvalId"]

    def view(self, run):
        (found,) = [each for each in self.house.call(JERRY, "runs.list") if each["runId"] == run["runId"]]
        return found

    def approvers(self, run):
        self.until(lambda: self.view(run)["status"] in ("completed", "awaiting_approval"))
        return self.view(run).get("approvedBy", [])


def shell(command):
    return {"type": "shell", "command": command}


WRITE = {"type": "createFile", "path": "new.txt", "content": "new\n"}
READ = {"type": "readFile", "path": "a.txt"}


def test_what_a_rule_allows_names_the_rule_and_a_read_has_nobodys_yes(scene):
    (named,) = scene.approvers(scene.begin(WRITE, READ))
    assert named == f"rule: {scene.house.ledger()[-2]['rule']}"
    assert scene.approvers(scene.begin(READ)) == []


def test_a_touch_a_typed_passphrase_and_a_terminal_are_told_apart(scene, page, key):
    run = scene.begin(shell(DROP))
    assert scene.approvers(run) == []
    page.act(key, "approvals.decide", approves(scene.question()))
    assert scene.approvers(run) == ["person: passkey"]

    run = scene.begin(shell(DROP))
    answer = approves(scene.question())
    typed = page.type_passphrase(page.challenge(("approvals.decide", answer)))
    page.call("approvals.decide", answer, proof=typed["proofId"])
    assert scene.approvers(run) == ["person: passphrase"]

    run = scene.begin(shell(DROP))
    scene.house.call("person", "approvals.decide", approves(scene.question()))
    assert scene.approvers(run) == ["person: passphrase"]


def test_a_rule_for_a_while_is_named_with_its_id(scene, page, key):
    run = scene.begin(shell(DROP))
    made = page.act(key, "approvals.decide", approves(scene.question(), scope="rule", offer=1))["rule"]
    assert scene.approvers(run) == ["person: passkey"]
    (named,) = scene.approvers(scene.begin(shell(DROP)))
    assert named.startswith("timed rule: ")
    assert named.endswith(f", {made['ruleId']}")


def test_a_run_that_was_approved_as_a_whole_has_both(scene, page, key):
    run = scene.begin(shell(DROP), shell(DROP_OTHER))
    page.act(key, "approvals.decide", approves(scene.question(), scope="run"))
    first, second = scene.approvers(run)
    assert first == "person: passkey"
    assert second.startswith("timed rule: timed.run, rul_")


def test_a_run_on_a_copy_has_the_yes_of_who_took_it_over(scene, page, key):
    run = scene.begin(shell(DROP), onCopy=True)
    assert scene.approvers(run) == []
    pending = scene.house.begin(JERRY, "runs.commit", {"runId": run["runId"]})
    page.act(key, "approvals.decide", approves(scene.question()))
    scene.answer(pending)
    assert scene.approvers(run) == ["person: passkey"]


def test_a_restart_forgets_no_yes(scene, page, key):
    run = scene.begin(shell(DROP))
    page.act(key, "approvals.decide", approves(scene.question()))
    assert scene.approvers(run) == ["person: passkey"]
    scene.house.restart()
    assert scene.view(run)["approvedBy"] == ["person: passkey"]
