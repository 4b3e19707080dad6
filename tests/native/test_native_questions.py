"""Where a client cannot ask, a person is asked at the desk: one yes is good for one call."""

import time

import pytest

from bascule.foundation.errors import ApprovalRequired, BasculeError, InvalidRequest, PolicyDenied
from bascule.native import texts
from bascule.native.protocol import MAX_EDITS, EditText
from bascule.native.texts import MAX_COMPARED_LINES, MAX_SHOWN_CHARS
from bascule.testing.house import House
from patience import PATIENCE

PROJECT = "/projects/project"
PUSH = "git push origin main"


@pytest.fixture
def house():
    with House() as made:
        made.machine.directory(PROJECT, {"a.txt": b"a"})
        made.call("local", "native.mode", {"client": "codex", "mode": "enforce"})
        yield made


def settled(house, pending):
    end = time.monotonic() + PATIENCE
    while not pending.done and time.monotonic() < end:
        house.advance(0.01)
    return pending.result()


def before(house, command, client="codex", call_id="t1"):
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "cwd": PROJECT,
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "tool_use_id": call_id,
    }
    return settled(house, house.begin("local", "native.before", {"client": client, "event": event}))


def waiting(house):
    """The one question that is open."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := house.call("local", "approvals.list", {}):
            return found[0]
        house.advance(0.01)
    raise AssertionError("nobody was asked")


def decide(house, approval_id, decision):
    return house.call("person", "approvals.decide", {"approvalId": approval_id, "decision": decision})


def ask(house, question):
    return settled(house, house.begin("local", "native.question", question))


def test_a_yes_lets_exactly_that_call_through_once(house):
    answer = before(house, PUSH)
    assert answer["output"]["hookSpecificOutput"]["permissionDecision"] == "deny"
    with pytest.raises(ApprovalRequired):
        ask(house, answer["question"])
    decide(house, waiting(house)["approvalId"], "approved")
    # The agent tries the same again, under another id.
    assert ask(house, before(house, PUSH, call_id="t2")["question"])["record"] == "answered"
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, PUSH, call_id="t3")["question"])


def test_a_yes_is_for_no_other_command(house):
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, PUSH)["question"])
    decide(house, waiting(house)["approvalId"], "approved")
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, "git push --force")["question"])


def test_a_no_stays_a_no(house):
    with pytest.raises(ApprovalRequired):
        ask(house, before(house, PUSH)["question"])
    decide(house, waiting(house)["approvalId"], "denied")
    with pytest.raises(BasculeError):
        ask(house, before(house, PUSH, call_id="t2")["question"])


def test_a_question_has_nothing_in_it_that_differs_when_the_agent_tries_again(house):
    assert before(house, PUSH, call_id="t1")["question"] == before(house, PUSH, call_id="t2")["question"]


@pytest.mark.parametrize(("client", "command"), [("codex", "npm test"), ("codex", "rm -rf /"), ("claude", PUSH)])
def test_only_what_asks_and_cannot_be_asked_by_the_client_comes_to_the_desk(house, client, command):
    house.call("local", "native.mode", {"client": "claude", "mode": "enforce"})
    assert "question" not in before(house, command, client)


def test_nobody_is_asked_while_hooks_only_observe(house):
    house.call("local", "native.mode", {"client": "codex", "mode": "observe"})
    assert "question" not in before(house, PUSH)


def test_a_question_of_a_denied_call_is_refused_and_never_shown(house):
    question = {"client": "codex", "kind": "shell", "cwd": PROJECT, "command": "rm -rf /"}
    with pytest.raises(PolicyDenied):
        ask(house, question)
    assert house.call("local", "approvals.list", {}) == []


# -- what would be written --


def asked_about(house, tool, arguments, client="claude"):
    """The question that a dialog of the client puts to the desk."""
    house.call("local", "native.mode", {"client": client, "mode": "enforce"})
    event = {"hook_event_name": "PermissionRequest", "session_id": "s", "cwd": PROJECT}
    event |= {"tool_name": tool, "tool_input": arguments}
    return house.call("local", "sessions.note", {"client": client, "event": event})["question"]


def shown(house, question):
    house.call("local", "person.set", {"passphrase": "correct horse battery staple"})
    pending = house.begin("local", "native.question", question)
    approval = waiting(house)["approvalId"]
    return approval, pending, house.call("person", "approvals.show", {"approvalId": approval})["preview"]


@pytest.mark.parametrize(
    ("client", "tool", "arguments", "lines"),
    [
        ("claude", "Write", {"file_path": "/p/a", "content": "one\ntwo"}, ["the whole new text:", "  one", "  two"]),
        (
            "claude",
            "Edit",
            {"file_path": "/p/a", "old_string": "x\nold", "new_string": "x\nnew"},
            [" x", "-old", "+new"],
        ),
        (
            "claude",
            "MultiEdit",
            {
                "file_path": "/p/a",
                "edits": [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "d"}],
            },
            ["-a", "+b", "-c", "+d"],
        ),
        (
            "codex",
            "apply_patch",
            {"command": "*** Begin Patch\n*** Add File: n\n+y\n*** End Patch"},
            ["the patch:", "  *** Add File: n", "  +y"],
        ),
    ],
)
def test_a_person_is_shown_what_would_be_written(house, client, tool, arguments, lines):
    *_, preview = shown(house, asked_about(house, tool, {"file_path": "/p/a", **arguments}, client))
    found = preview.split("\n")
    assert [each for each in found if each in lines] == lines


def test_a_long_text_is_cut_and_says_so_and_a_yes_is_for_all_of_it(house):
    long = "x" * (2 * MAX_SHOWN_CHARS)
    questions = [asked_about(house, "Write", {"file_path": "/p/a", "content": long + end}) for end in ("1", "2")]
    assert questions[0]["edits"] == questions[1]["edits"]
    assert questions[0]["whole"] != questions[1]["whole"]
    *_, preview = shown(house, questions[0])
    assert "this is the beginning of" in preview
    assert len(preview) < 2 * MAX_SHOWN_CHARS


OTHER = {"file_path": "/p/a", "content": "other words"}


def test_a_yes_is_for_the_text_that_was_shown_and_the_ledger_has_its_digest_alone(house):
    question = asked_about(house, "Write", {"file_path": "/p/a", "content": "harmless words"})
    approval, pending, _ = shown(house, question)
    other = house.begin("local", "native.question", asked_about(house, "Write", OTHER))
    decide(house, approval, "approved")
    assert settled(house, pending)["record"] == "answered"
    # The other text is a question of its own, which is still open.
    assert waiting(house)["approvalId"] != approval
    assert not other.done
    records = house.call("person", "ledger.tail", {"limit": 200})
    assert "harmless words" not in str(records)
    assert any("text" in each.get("details", {}) for each in records if each["method"] == "native.question")


def test_no_file_is_read_for_a_question(house, tmp_path):
    """Whoever can ask would see it, code in a sandbox too."""
    (tmp_path / "secret").write_text("the secret words")
    question = asked_about(house, "Write", {"file_path": str(tmp_path / "secret"), "content": "new"})
    *_, preview = shown(house, question)
    assert "the secret words" not in preview


# A text, and a patch that names a file.
WRITTEN = "*** Add File: what is written"
EDIT = {"old_string": "a", "new_string": "b"}


@pytest.mark.parametrize(
    ("client", "tool", "arguments"),
    [
        ("claude", "Write", {"content": WRITTEN, "edits": [EDIT]}),
        ("claude", "Write", {"content": WRITTEN, **EDIT}),
        ("claude", "NotebookEdit", {"new_source": WRITTEN, "content": "other"}),
        ("claude", "Edit", {"old_string": "a", "new_string": WRITTEN, "edits": [EDIT]}),
        ("codex", "apply_patch", {"command": [WRITTEN], "content": "other"}),
        ("codex", "apply_patch", {"command": "", "input": WRITTEN}),
    ],
)
def test_a_field_that_a_tool_does_not_have_hides_nothing_of_what_it_writes(house, client, tool, arguments):
    (edit,) = asked_about(house, tool, {"file_path": "/p/a", "notebook_path": "/p/a", **arguments}, client)["edits"]
    assert edit["new"] == WRITTEN


@pytest.mark.parametrize(
    ("tool", "arguments", "place"),
    [
        ("Edit", {**EDIT, "replace_all": True}, "replace_all: True"),
        ("NotebookEdit", {"new_source": "", "edit_mode": "delete", "cell_id": "c1"}, "edit_mode: delete, cell_id: c1"),
    ],
)
def test_a_yes_is_for_the_places_that_were_shown(house, tool, arguments, place):
    named = {"file_path": "/p/a", "notebook_path": "/p/a"}
    question = asked_about(house, tool, {**named, **arguments})
    *_, preview = shown(house, question)
    assert place in preview.split("\n")
    without = {name: value for name, value in arguments.items() if name in ("old_string", "new_string", "new_source")}
    assert asked_about(house, tool, {**named, **without})["edits"] != question["edits"]


def test_one_edit_more_than_is_shown_is_said_and_a_yes_is_for_it_too(house):
    def asked(*more):
        return asked_about(house, "MultiEdit", {"file_path": "/p/a", "edits": [EDIT] * MAX_EDITS + list(more)})

    last = [asked({"old_string": "c", "new_string": new}) for new in ("d", "e")]
    assert last[0]["edits"] == last[1]["edits"]
    assert last[0]["whole"] != last[1]["whole"]
    # The control: all that there is can be shown.
    assert asked()["whole"] is None


def test_no_text_passes_for_the_beginning_of_the_next():
    long = "x" * (2 * MAX_SHOWN_CHARS)
    one = (EditText(old=long, new="b\0c\0d"), EditText(old="e", new="f"))
    other = (EditText(old=long, new="b"), EditText(old="c\0d\0e", new="f"))
    assert texts.cut(one)[0] == texts.cut(other)[0]
    assert texts.cut(one)[1] != texts.cut(other)[1]


def test_a_question_with_more_than_anybody_reads_is_refused(house):
    question = {"client": "claude", "kind": "write", "cwd": PROJECT, "paths": ["/p/a"], "dialog": "s"}
    with pytest.raises(InvalidRequest, match="characters"):
        ask(house, {**question, "edits": [{"new": "x" * (MAX_SHOWN_CHARS + 1)}]})
    *_, preview = shown(house, {**question, "edits": [{"new": "x" * MAX_SHOWN_CHARS}]})
    assert "xxx" in preview


def test_the_lines_that_are_compared_are_counted_over_all_edits(monkeypatch):
    compared = []
    monkeypatch.setattr(texts.difflib, "unified_diff", lambda old, new, **_: compared.append(len(old) + len(new)) or [])
    edit = EditText(old="a\n" * 99 + "a", new="b\n" * 99 + "b")
    made = texts.preview([edit] * 100, None)
    assert len(made) == 100
    assert 0 < sum(compared) <= MAX_COMPARED_LINES
    assert made[-1].text.startswith("@@ -1,100 +1,100 @@\n-a")
