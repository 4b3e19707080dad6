"""Looking for something in the ledger: what a line of words means, and pages that lose nothing."""

import pytest

from bascule.admin.ledger_search import MAX_WORDS, parse_query
from bascule.admin.service import Admin
from bascule.foundation.errors import Forbidden, InvalidRequest
from bascule.kernel.ledger import Record
from bascule.testing.house import House

# 2025-10-20T08:00:00Z
NOW = 1_760_947_200_000
RECORD = Record(
    seq=7,
    at=NOW - 3_600_000,
    principal="agent:Jerry",
    method="desktop.typeText",
    outcome="policy_denied",
    subject="org.gnome.TextEditor",
    rule="desktop-acting-asks",
)


def finds(text, record=RECORD):
    return parse_query(text, NOW).matches(record)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "who:Jerry",
        "who:agent:Jerry",
        "who:J*",
        "method:desktop.*",
        "outcome:denied",
        "outcome:policy_denied",
        "rule:desktop-*",
        "subject:org.gnome.*",
        "since:2025-10-20",
        "since:2025-10-20T06:59",
        "since:2025-10-20T09:00+02:00",
        "since:2h",
        "until:30m",
        "until:2025-10-21",
        "gnome",
        "TYPETEXT",
        "agent:Jerry",
        '"agent:Jerry"',
        "who:Jerry outcome:denied gnome since:1d",
    ],
)
def test_a_query_finds(text):
    assert finds(text)


@pytest.mark.parametrize(
    "text",
    [
        "who:Tom",
        "who:jerry",
        "method:desktop",
        "outcome:ok",
        "outcome:den",
        "rule:x",
        "subject:gnome",
        "since:30m",
        "until:2h",
        "since:2025-10-21",
        "firefox",
        "who:Jerry firefox",
        '"gnome TextEditor"',
        "denied",
    ],
)
def test_a_query_does_not_find(text):
    assert not finds(text)


def test_a_record_without_subject_or_rule_matches_none():
    bare = Record(seq=1, at=NOW, principal="local", method="daemon.gc", outcome="ok")
    assert finds("daemon", bare)
    assert not finds("rule:x", bare)
    assert not finds("subject:x", bare)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("whom:Jerry", "no field `whom:`"),
        ("since:yesterday", "is not a time"),
        ("since:2025-13-01", "is not a time"),
        (" ".join("a" * (MAX_WORDS + 1)), "at most 20"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_hint(text, words):
    with pytest.raises(InvalidRequest, match=words):
        parse_query(text, NOW)


@pytest.fixture
def house():
    with House() as made:
        yield made


def search(house, q="", **more):
    return house.call("local", "ledger.search", {"q": q, **more})


def fill(house, count):
    house.register("Jerry")
    for number in range(count):
        house.call("local", "messages.send", {"agentId": "Jerry", "payload": number, "ticketId": f"t-{number}"})


def test_pages_give_every_record_once_and_end(house):
    fill(house, 25)
    every = [record["seq"] for record in reversed(house.ledger())]
    seen, before = [], None
    while True:
        page = search(house, limit=7, **({"before": before} if before else {}))
        assert len(page["records"]) <= 7
        seen += [record["seq"] for record in page["records"]]
        before = page.get("next")
        if before is None:
            break
    assert seen == every


def test_one_call_reads_a_part_of_the_ledger_and_says_where_to_go_on(house):
    fill(house, 25)
    admin = house.life.bridges["admin"].service
    assert isinstance(admin, Admin)
    admin.ledger._search_scan = 10
    found, before, pages = [], None, 0
    while True:
        page = search(house, "subject:t-3", **({"before": before} if before else {}))
        assert page["scanned"] <= 10
        found += page["records"]
        pages += 1
        before = page.get("next")
        if before is None:
            break
    assert [record["subject"] for record in found] == ["t-3"]
    assert pages >= 3


def test_an_agent_may_not_search(house):
    house.register("Jerry")
    with pytest.raises(Forbidden):
        house.call("agent:Jerry", "ledger.search", {})


def test_a_followed_verification_says_how_far_it_is_and_ends_with_its_result(house):
    fill(house, 5)
    stream = house.call("local", "ledger.verifyStream")
    items = stream.items()
    assert items[-1]["result"]["ok"]
    assert items[-1]["done"] == items[-1]["total"] == items[-1]["result"]["records"]
    stream.close()
