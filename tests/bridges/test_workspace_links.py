"""Links inside a workspace: a path is judged as it was written and as it was resolved, and the stricter word counts."""

import pytest
from workspace_scene import JERRY, Scene, create, delete, edit, make_machine, read, shell

from bascule.bridge_list import presets_of
from bascule.foundation.errors import ApprovalRequired, PolicyDenied
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.rules import Rule
from bascule.testing.house import House

PRESETS = presets_of()

CONFIG = b"[core]\n"
FILES = {
    ".git/config": CONFIG,
    ".env": b"TOKEN=1\n",
    "keys/id": b"secret\n",
    "src/a.py": b"one\n",
    "src/b.py": b"two\n",
}
LINKS = {"gg": ".git", "c": ".git/config", "e": ".env", "k": "keys", "s": "src"}
POLICY = Policy(
    (
        *PRESETS["standard"],
        Rule(name="no-env", decision=Decision.DENY, reason="{path} is mine", methods=("workspace.*",), paths=(".env",)),
        Rule(name="ask-keys", decision=Decision.ASK, reason="keys ask", methods=("workspace.*",), paths=("keys/**",)),
        Rule(name="no-lists", decision=Decision.DENY, reason="no lists", methods=("files.list",), paths=("keys/**",)),
        Rule(name="no-reads", decision=Decision.DENY, reason="no reads", methods=("files.read",), paths=("src/b.py",)),
        Rule(name="no-x", decision=Decision.DENY, reason="no x", methods=("workspace.*",), paths=("x/**",)),
    ),
    "links",
    "digest-1",
)


@pytest.fixture
def scene():
    with House(machine=make_machine(), policy=POLICY) as house:
        house.machine.links = dict(LINKS)
        made = Scene(house, FILES)
        yield made
        assert made.faults() == []


def asked(run):
    assert run["status"] == "awaiting_approval", run
    return run["events"][-1]["details"]["approvalId"]


def shown(scene, run):
    return scene.house.call("local", "approvals.show", {"approvalId": asked(run)})


# -- deny --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [read("e"), edit("e", "1", "2"), create("e", overwrite=True)])
def test_what_a_rule_denies_is_denied_through_a_link(scene, operation):
    event = scene.event(operation)
    assert event["type"] == "policyDenied"
    assert event["reason"] == ".env is mine (`e` leads to `.env` through a link)"
    assert scene.files == FILES
    (record,) = scene.records(f"workspace.{operation['type']}")
    assert (record["outcome"], record["rule"]) == ("policy_denied", "no-env")


def test_deleting_a_link_is_about_the_link(scene):
    """A link at the end is not followed: its target is not what goes."""
    scene.files["e"] = b""
    assert scene.event(delete("e"))["success"] is True
    assert scene.files == FILES


def test_what_a_rule_denies_as_written_is_denied_wherever_it_leads(scene):
    scene.machine.links["x"] = "src"
    assert scene.event(read("x/a.py"))["type"] == "policyDenied"


def test_a_link_to_what_is_allowed_is_followed(scene):
    """The control: a link alone is no reason."""
    assert scene.event(read("s/a.py"))["content"] == "one\n"
    assert scene.event(edit("s/a.py", "one", "uno"))["success"] is True
    assert scene.files["src/a.py"] == b"uno\n"
    begun = next(row for row in scene.records("workspace.editFile") if row["outcome"] == "begun")
    assert (begun["details"]["path"], begun["details"]["resolved"]) == ("s/a.py", "src/a.py")


# -- ask ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        (edit("gg/config", "[core]", "[core]\n\tfsmonitor = evil"), ".git/config"),
        (edit("c", "[core]", "[core]\n\tfsmonitor = evil"), ".git/config"),
        (create("c", "evil", overwrite=True), ".git/config"),
        (create("gg/hooks/pre-commit", "evil"), ".git/hooks/pre-commit"),
        (delete("gg/config"), ".git/config"),
        (read("k/id"), "keys/id"),
    ],
)
def test_what_asks_asks_through_a_link_and_both_paths_are_shown(scene, operation, path):
    scene.machine.links["gg/hooks"] = ".git/hooks"
    run = scene.run(operation)
    event = run["events"][-1]
    assert (event["type"], event["details"]["path"]) == ("approvalRequired", operation["path"])
    assert event["details"]["resolved"] == path
    assert f"`{operation['path']}` leads to `{path}` through a link" in event["reason"]
    question = shown(scene, run)
    assert question["summary"] == f"{operation['type']} {operation['path']} (leads to {path})"
    assert question["summary"] in question["preview"]
    assert scene.files == FILES
    assert scene.resume(run)["events"][0]["success"] is True


def test_a_link_that_leads_elsewhere_since_the_approval_is_asked_about_anew(scene):
    scene.files["keys/other"] = b"other\n"
    run = scene.run(read("k/id"))
    scene.machine.links["k"] = "keys/other-directory"
    scene.files["keys/other-directory/id"] = b"not for you\n"
    again = scene.resume(run)
    assert asked(again) != asked(run)
    assert again["events"][-1]["details"]["again"] == "its path leads elsewhere since it was approved"
    assert again["events"][-1]["details"]["resolved"] == "keys/other-directory/id"


def test_a_link_that_did_not_change_since_the_approval_is_followed(scene):
    # The control of the test before.
    assert scene.resume(scene.run(read("k/id")))["events"][0]["content"] == "secret\n"


def test_a_plain_path_that_became_a_link_since_the_approval_is_asked_about_anew(scene):
    run = scene.run(edit("keys/id", "secret", "new"))
    scene.machine.links["keys/id"] = "keys/second"
    scene.files["keys/second"] = b"secret\n"
    again = scene.resume(run)
    assert asked(again) != asked(run)
    assert scene.files["keys/second"] == b"secret\n"


def test_a_link_that_leads_to_what_is_denied_since_the_approval_is_denied(scene):
    run = scene.run(read("k/id"))
    scene.machine.links["k/id"] = ".env"
    assert scene.resume(run)["events"][0]["type"] == "policyDenied"


def test_an_answer_about_a_link_is_given_for_this_time_only(scene):
    """A rule for some minutes would be about a name whose target may change."""
    assert shown(scene, scene.run(read("k/id"))).get("offers", []) == []
    # The control: for the path itself there are offers.
    assert shown(scene, scene.run(read("keys/id"))).get("offers", []) != []


# -- files.* -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params", "rule"),
    [
        ("files.read", {"path": "e"}, "no-env"),
        ("files.read", {"path": "k/id"}, "ask-keys"),
        ("files.read", {"path": "s/b.py"}, "no-reads"),
        ("files.list", {"path": "k"}, "no-lists"),
    ],
)
def test_files_are_not_read_nor_listed_past_a_rule_through_a_link(scene, method, params, rule):
    with pytest.raises(PolicyDenied) as refused:
        scene.answer(scene.house.begin(JERRY, method, {"spaceId": scene.space, **params}))
    assert refused.value.details["rule"] == rule
    assert "through a link" in refused.value.message


def test_files_are_read_and_listed_through_a_link_where_no_rule_is_against_it(scene):
    where = {"spaceId": scene.space}
    assert scene.answer(scene.house.begin(JERRY, "files.read", {**where, "path": "s/a.py"}))["content"] == "one\n"
    listed = scene.answer(scene.house.begin(JERRY, "files.list", {**where, "path": "s"}))
    assert [entry["name"] for entry in listed["entries"]] == ["a.py", "b.py"]


def test_a_file_is_not_written_past_a_rule_through_a_link(scene):
    where = {"spaceId": scene.space, "path": "e", "content": "x", "overwrite": True}
    event = scene.answer(scene.house.begin(JERRY, "files.write", where))["events"][0]
    assert event["type"] == "policyDenied"
    where = {"spaceId": scene.space, "path": "gg/config"}
    assert scene.answer(scene.house.begin(JERRY, "files.delete", where))["status"] == "awaiting_approval"
    assert scene.files == FILES


# -- undo and commit ---------------------------------------------------------------------------------------------


def evil(files):
    files[".envrc"] = b"evil\n"


def test_what_a_command_wrote_on_a_copy_is_asked_about_before_it_is_taken_over(scene):
    """Nothing of the command says that it writes there."""
    scene.machine.command("make configure", does=evil)
    run = scene.run(shell("make configure"), onCopy=True)
    with pytest.raises(ApprovalRequired) as refused:
        scene.call("runs.commit", run)
    question = scene.house.call("local", "approvals.show", {"approvalId": refused.value.details["approvalId"]})
    assert question["rule"] == "steering-files-ask"
    assert "Writing .envrc requires approval" in question["reason"]
    assert "+evil" in question["preview"]
    assert scene.files == FILES
    scene.decide(question["approvalId"])
    scene.call("runs.commit", run)
    assert scene.files[".envrc"] == b"evil\n"


@pytest.mark.parametrize(("path", "change"), [(".env", b"other\n"), (".env", None), ("x/new", b"new\n")])
def test_what_a_rule_denies_is_not_taken_over_from_a_copy(scene, path, change):
    def act(files):
        files[path] = change
        if change is None:
            del files[path]

    scene.machine.command("make it", does=act)
    run = scene.run(shell("make it"), onCopy=True)
    with pytest.raises(PolicyDenied):
        scene.call("runs.commit", run)
    assert scene.files == FILES


def test_putting_back_what_the_person_had_is_not_asked_about(scene):
    scene.files[".envrc"] = b"mine\n"
    run = scene.resume(scene.run(create(".envrc", "good\n", overwrite=True)))
    assert scene.files[".envrc"] == b"good\n"
    scene.call("runs.undo", run)
    assert scene.files[".envrc"] == b"mine\n"


def test_taking_away_what_was_not_there_is_not_asked_about(scene):
    run = scene.resume(scene.run(create(".envrc", "good\n")))
    scene.call("runs.undo", run)
    assert ".envrc" not in scene.files


def test_putting_back_what_an_agent_had_written_asks(scene):
    """It was never the person's: the yes to the next change may have been a no to this one."""
    scene.resume(scene.run(create(".envrc", "evil\n", overwrite=True)))
    run = scene.resume(scene.run(create(".envrc", "good\n", overwrite=True)))
    assert scene.files[".envrc"] == b"good\n"
    assert scene.call("runs.undo", run, dryRun=True)["changes"][0]["path"] == ".envrc"
    with pytest.raises(ApprovalRequired) as refused:
        scene.call("runs.undo", run)
    question = scene.house.call("local", "approvals.show", {"approvalId": refused.value.details["approvalId"]})
    assert "\n-good\n+evil" in question["preview"]
    assert scene.files[".envrc"] == b"good\n"
    scene.decide(question["approvalId"])
    scene.call("runs.undo", run)
    assert scene.files[".envrc"] == b"evil\n"


def test_the_person_is_not_asked_about_their_own_undo(scene):
    run = scene.resume(scene.run(create(".envrc", "good\n")))
    scene.call("runs.undo", run, who="person")
    assert ".envrc" not in scene.files
