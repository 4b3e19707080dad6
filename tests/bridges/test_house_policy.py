"""The policy in force: a preset, or what a person accepted; an edited file is reported and not applied."""

import os

import pytest

from bascule.admin.machine.policy_file import PolicyFile
from bascule.admin.records import DaemonFact
from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest, NotFound, PolicyDenied
from bascule.kernel.journal import Table
from bascule.kernel.policy.rules import BadPolicy
from bascule.kernel.policy.text import text_digest
from bascule.stores.memory import MemoryStore
from bascule.testing.house import House

QUIET = """version = 1
extends = "standard"
[[rule]]
name = "quiet"
decision = "deny"
reason = "nobody talks today"
suggestion = "Try tomorrow"
methods = ["messages.send"]
match = [{ principal = "agent:Jerry", method = "messages.send" }]
"""


@pytest.fixture
def house():
    with House() as house:
        house.register("Jerry")
        yield house


def accept(house, text=QUIET, digest=None):
    house.policy_file.text = text
    return house.call("person", "policy.accept", {"digest": digest or text_digest(text)})


def send(house):
    return house.call("local", "messages.send", {"agentId": "Jerry", "payload": "x"})


def test_the_preset_in_force_is_shown_as_a_text_that_could_be_edited(house):
    view = house.call("local", "policy.show")
    assert (view["name"], view.get("pending", False)) == ("standard", False)
    assert view["text"].startswith("# the preset standard\nversion = 1\n")
    assert view["digest"] == text_digest(view["text"])


def test_an_edited_file_is_reported_once_and_not_applied(house):
    house.policy_file.text = QUIET
    view = house.call("local", "policy.show")
    assert view["pending"] is True
    assert view["fileDigest"] == text_digest(QUIET)
    assert view["fileText"] == QUIET
    assert view["name"] == "standard"
    send(house)
    house.call("local", "policy.show")
    assert [fields["level"] for event, fields in house.log if event == "policy_edited"] == ["warning"]


def test_what_a_person_accepts_is_in_force_at_once_and_after_a_restart(house):
    view = accept(house)
    assert (view["name"], view["text"], view.get("pending", False)) == ("custom", QUIET, False)
    with pytest.raises(PolicyDenied, match="nobody talks today"):
        send(house)
    record = next(record for record in house.ledger() if record["method"] == "policy.accept")
    assert record["details"]["digest"] == text_digest(QUIET)
    house.restart()
    assert house.call("local", "policy.show")["text"] == QUIET
    with pytest.raises(PolicyDenied):
        send(house)


def test_a_text_that_is_not_the_one_that_was_shown_is_not_accepted(house):
    with pytest.raises(Conflict, match="is not the text you were shown"):
        accept(house, digest=text_digest(QUIET + "# more"))
    send(house)


def test_a_file_that_is_edited_after_it_was_accepted_waits_again(house):
    accept(house)
    house.policy_file.text = 'version = 1\nextends = "standard"\n'
    assert house.call("local", "policy.show")["pending"] is True
    with pytest.raises(PolicyDenied):
        send(house)
    accept(house, house.policy_file.text)
    send(house)


def test_a_file_that_is_gone_changes_nothing(house):
    accept(house)
    house.policy_file.text = None
    assert house.call("local", "policy.show").get("pending", False) is False
    with pytest.raises(PolicyDenied):
        send(house)
    with pytest.raises(NotFound, match=r"there is no policy\.toml"):
        house.call("person", "policy.accept", {"digest": "x"})


def test_a_file_with_a_mistake_is_shown_with_it_and_cannot_be_accepted(house):
    wrong = QUIET.replace("agent:Jerry", "nobody")
    house.policy_file.text = wrong.replace('methods = ["messages.send"]', 'methods = ["messages.sand"]')
    assert "no method matches 'messages.sand'" in house.call("local", "policy.show")["problem"]
    with pytest.raises(BadPolicy):
        accept(house, house.policy_file.text)
    send(house)


@pytest.mark.parametrize("principal", ["local", "agent:Jerry"])
def test_only_the_person_accepts(house, principal):
    house.policy_file.text = QUIET
    with pytest.raises(Forbidden):
        house.call(principal, "policy.accept", {"digest": text_digest(QUIET)})
    send(house)


def test_an_accepted_text_that_cannot_be_read_any_more_leaves_the_narrowest_preset_in_force():
    store = MemoryStore()
    with House(store=store) as house:
        facts = Table("house", DaemonFact)
        from bascule.kernel.journal import Transaction

        tx = Transaction()
        tx.put(facts, "policy", DaemonFact("version = 2", 1))
        house.run(lambda: house.journal.commit(tx, "person", "policy.accept"))
        house.restart()
        view = house.call("local", "policy.show")
        assert view["name"] == "restrictive"
        assert "restrictive is in force instead" in view["problem"]
        assert any(event == "policy_unusable" for event, _ in house.log)


# -- explain --


def test_explain_says_what_would_happen_by_which_rule_and_why(house):
    accept(house)
    explained = house.call("agent:Jerry", "policy.explain", {"method": "messages.send", "params": {"agentId": "Tom"}})
    assert (explained["decision"], explained["rule"]) == ("deny", "quiet")
    assert explained["reason"] == "nobody talks today"
    assert explained["suggestion"] == "Try tomorrow"
    assert "deny: agent:Jerry calling messages.send" in explained["text"]


def test_explain_can_be_asked_for_somebody_else(house):
    explained = house.call("local", "policy.explain", {"method": "daemon.gc", "principal": "agent:Jerry"})
    assert (explained["decision"], explained["rule"]) == ("deny", "no-admin-by-agents")
    assert house.call("local", "policy.explain", {"method": "daemon.gc"})["decision"] == "allow"


def test_explain_of_an_ask_says_who_would_be_asked(house):
    text = QUIET.replace('"deny"', '"ask"')
    accept(house, text)
    explained = house.call("local", "policy.explain", {"method": "messages.send"})
    assert explained["decision"] == "ask"
    assert "nobody can be asked about this method" in explained["text"]


@pytest.mark.parametrize("principal", ["root", "agent:", "agent:a b", "Agent:Jerry"])
def test_explain_refuses_somebody_who_cannot_be(house, principal):
    with pytest.raises(InvalidRequest):
        house.call("local", "policy.explain", {"method": "daemon.gc", "principal": principal})


def test_explain_refuses_a_method_that_is_not(house):
    with pytest.raises(NotFound, match=r"no method 'daemon\.gcc'"):
        house.call("local", "policy.explain", {"method": "daemon.gcc"})


# -- the file itself --


def test_the_file_is_read_whole_or_refused_and_nothing_hangs(tmp_path):
    file = PolicyFile(os.fspath(tmp_path))
    assert file.read() is None
    path = tmp_path / "policy.toml"
    path.write_text("version = 1 # ü")
    assert file.read() == "version = 1 # ü"
    path.write_bytes(b"version = 1 # \xff")
    with pytest.raises(BadPolicy, match="is not UTF-8"):
        file.read()
    path.write_bytes(b"#" * (4 * 256 * 1024 + 1))
    with pytest.raises(BadPolicy, match="no policy is that long"):
        file.read()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(BadPolicy, match="is not a regular file"):
        file.read()
    path.unlink()
    path.mkdir()
    with pytest.raises(BadPolicy):
        file.read()
