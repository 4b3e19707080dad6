"""No, said with the button of a notification: taken, and not recorded as the person's word."""

import pytest
from workspace_scene import Scene, make_machine, shell

from bascule.admin.denying import deny_by_notification
from bascule.testing.house import House


@pytest.fixture
def scene(make_house):
    house = make_house(machine=make_machine())
    house.register("Jerry")
    return Scene(house, {"data/1": b"1"})


def deny(house: House, approval_id):
    return house.run(lambda: deny_by_notification(house.desk, house.journal, approval_id))


def test_a_button_says_no_and_the_ledger_says_that_it_was_a_button(scene):
    run = scene.run(shell("rm -rf data", id="rm"))
    approval = run["events"][-1]["details"]["approvalId"]
    assert deny(scene.house, approval)
    scene.until(lambda: scene.view(run)["status"] == "completed", "its end")
    assert "data/1" in scene.files
    shown = scene.house.call("local", "approvals.show", {"approvalId": approval})
    assert (shown["state"], shown["decidedReason"]) == ("denied", "denied by notification")
    (record,) = scene.records("approvals.decide")
    assert (record["principal"], record["subject"]) == ("daemon", approval)
    assert (record["details"]["decision"], record["details"]["by"]) == ("denied", "notification")


def test_a_button_changes_nothing_that_was_answered(scene):
    run = scene.run(shell("rm -rf data", id="rm"))
    approval = run["events"][-1]["details"]["approvalId"]
    scene.decide(approval)
    assert not deny(scene.house, approval)
    scene.until(lambda: scene.view(run)["status"] == "completed", "its end")
    assert "data/1" not in scene.files
    assert not deny(scene.house, "apr_unknown")
