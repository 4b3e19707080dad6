"""The house's own methods: the ledger, retention, the person, and the errors people can provoke."""

import pytest
from broker_acts import JERRY, cancel, reply, send

from bascule.bridge_list import tables_of
from bascule.foundation.errors import Conflict, Forbidden, InvalidRequest
from bascule.stores.memory import MemoryStore
from bascule.stores.sqlite import SqliteStore

DAY = 86_400


def test_every_write_is_in_the_ledger_with_who_and_by_which_rule(house):
    send(house, "t")
    record = house.ledger()[-1]
    assert record | {"hash": "", "details": {}} == {
        "seq": 3,
        "at": "2025-10-20T08:00:00.000Z",
        "principal": "local",
        "method": "messages.send",
        "outcome": "ok",
        "subject": "t",
        "rule": "message",
        "details": {},
        "hash": "",
    }
    assert record["details"]["to"] == "Jerry"
    assert record["details"]["bytes"] == 4


def test_the_ledger_is_paged_backwards(house):
    for number in range(5):
        send(house, f"t{number}")
    newest = house.call("local", "ledger.tail", {"limit": 2})
    before = house.call("local", "ledger.tail", {"limit": 2, "before": newest[0]["seq"]})
    assert [each["subject"] for each in before + newest] == ["t1", "t2", "t3", "t4"]


def test_records_are_found_by_number_ticket_handle_and_method(house):
    send(house, "t")
    reply(house, "t")
    send(house, "u", by=JERRY, to="Spock")

    def found(what):
        return [record["method"] for record in house.call("local", "ledger.show", {"what": what})]

    assert found("3") == ["messages.send"]
    assert found("t") == ["messages.send", "replies.post"]
    assert found("Jerry") == ["agents.register", "messages.send", "replies.post", "messages.send"]
    assert found("messages.send") == ["messages.send", "messages.send"]
    assert found("nothing") == []


@pytest.mark.parametrize("what", ["0", "99", "9" * 30, "9" * 200])
def test_a_number_no_record_has_finds_nothing(house, what):
    assert house.call("local", "ledger.show", {"what": what}) == []


def test_paging_from_a_number_beyond_the_end_begins_at_the_end(house):
    assert len(house.call("local", "ledger.tail", {"before": 2**53})) == 2


@pytest.mark.parametrize("before", [0, -1, 10**30])
def test_paging_from_what_can_be_no_record_is_refused(house, before):
    with pytest.raises(InvalidRequest, match="before"):
        house.call("local", "ledger.tail", {"before": before})


def test_large_numbers_are_harmless_on_disk_too(make_house, tmp_path):
    house = make_house(store=SqliteStore(str(tmp_path / "b.db"), durability="relaxed", tables=tables_of()))
    house.register("Jerry")
    assert house.call("local", "ledger.show", {"what": "9" * 30}) == []
    assert len(house.call("local", "ledger.tail", {"before": 2**53})) == 1


# -- verifying and retention --


def test_an_untouched_ledger_verifies(house):
    send(house, "t")
    verdict = house.call("local", "ledger.verify")
    assert (verdict["ok"], verdict["records"], verdict["first"], verdict["last"]) == (True, 3, 1, 3)
    assert verdict["head"] == house.journal.chain.head.hex()


def test_a_changed_record_is_found(house):
    send(house, "t")
    rows = house.store._ledger
    rows[1] = type(rows[1])(rows[1].seq, rows[1].hash, rows[1].body.replace(b"Spock", b"Mallo"))
    verdict = house.call("local", "ledger.verify")
    assert verdict["ok"] is False
    assert verdict["faults"] == ["record 2 does not follow from the one before it: changed, moved or replaced"]


def test_old_segments_are_dropped_and_the_rest_still_verifies(make_house):
    house = make_house(segment_records=5, ledger_days=90)
    house.register("Jerry")
    for number in range(11):
        send(house, f"old{number}")
    house.clock.advance(91 * DAY)
    for number in range(5):
        send(house, f"new{number}")
    would = house.call("local", "daemon.gc", {"dryRun": True})["items"][-1]
    assert (would["what"], would["count"]) == ("ledger segments", 2)
    house.call("local", "daemon.gc")
    verdict = house.call("local", "ledger.verify")
    assert (verdict["ok"], verdict["first"]) == (True, 11)


def test_segments_that_are_gone_are_not_counted_again(make_house):
    house = make_house(segment_records=5)
    house.register("Jerry")
    for number in range(5):
        send(house, f"t{number}")
    house.clock.advance(91 * DAY)
    house.call("local", "daemon.gc")
    again = house.call("local", "daemon.gc", {"dryRun": True})["items"][-1]
    assert (again["what"], again["count"]) == ("ledger segments", 0)


def test_the_ledger_of_a_daemon_in_memory_verifies_when_its_window_has_moved_on(make_house):
    house = make_house(store=MemoryStore(max_ledger_rows=10), segment_records=4)
    house.register("Jerry")
    for number in range(20):
        send(house, f"t{number}")
        cancel(house, f"t{number}")
    verdict = house.call("local", "ledger.verify")
    assert (verdict["ok"], verdict["faults"]) == (True, [])


def test_the_chain_goes_on_over_a_restart(house):
    send(house, "t")
    house.restart()
    send(house, "u")
    verdict = house.call("local", "ledger.verify")
    assert (verdict["ok"], verdict["records"]) == (True, 4)


# -- refusals --


def test_a_refused_write_is_in_the_ledger_with_what_it_was_about(house):
    send(house, "t")
    for act in (lambda: reply(house, "t", by="local"), lambda: cancel(house, "t", by=JERRY)):
        with pytest.raises(Forbidden):
            act()
        record = house.ledger()[-1]
        assert (record["outcome"], record.get("subject")) == ("forbidden", "t")


# -- the person --


def test_the_passphrase_is_set_once_and_unlocks_a_connection_for_a_while(house):
    connection = house.connect("Jerry")
    assert house.call("local", "person.status", connection=connection) == {"set": False}
    assert house.call("local", "person.set", {"passphrase": "a long sentence"}, connection=connection) == {"set": True}
    with pytest.raises(Conflict, match="a passphrase is set already"):
        house.call("local", "person.set", {"passphrase": "another sentence"})
    with pytest.raises(Forbidden, match="wrong passphrase"):
        house.call("local", "person.unlock", {"passphrase": "a guess"}, connection=connection)
    assert connection.unlocked_for() is None
    house.call("local", "person.unlock", {"passphrase": "a long sentence"}, connection=connection)
    assert connection.unlocked_for() == 15 * 60
    assert "sentence" not in str(house.ledger()) + str(house.log)
    outcomes = [(each["method"], each["outcome"]) for each in house.ledger()[-3:]]
    assert outcomes == [("person.set", "ok"), ("person.unlock", "forbidden"), ("person.unlock", "ok")]


def test_no_agent_sets_or_uses_the_passphrase(house):
    for method in ("person.set", "person.unlock"):
        with pytest.raises(Forbidden):
            house.call(JERRY, method, {"passphrase": "a long sentence"})


def test_an_http_call_cannot_become_the_person(house):
    house.call("local", "person.set", {"passphrase": "a long sentence"})
    with pytest.raises(Forbidden, match="only a link connection"):
        house.call("local", "person.unlock", {"passphrase": "a long sentence"})


def test_the_status_names_who_the_caller_is_taken_for(house):
    status = house.call(JERRY, "daemon.status")
    assert (status["principal"], status["durability"], status["policy"]) == (JERRY, "memory", "standard")
    assert (status["ledgerRecords"], status["ledgerHead"]) == (2, house.journal.chain.head.hex())
