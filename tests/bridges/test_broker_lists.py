"""Pages of tickets and conversations, and what a search looks at: for whom, and how far."""

import pytest

from bascule.broker import lists
from bascule.foundation.errors import InvalidRequest, NotFound
from bascule.testing.house import House


@pytest.fixture
def house():
    with House() as house:
        for name in ("Tom", "Jerry", "Ann"):
            house.register(name)
        yield house


def send(house, ticket, to="Jerry", who="agent:Tom", payload="hello", **more):
    house.call(who, "messages.send", {"agentId": to, "payload": payload, "ticketId": ticket, **more})


def listed(house, who="local", **params):
    return [each["ticketId"] for each in house.call(who, "tickets.list", params)]


# -- pages --


def test_pages_of_tickets_are_the_whole_list(house):
    sent = [f"t{number}" for number in range(7)]
    for ticket in sent:
        send(house, ticket)
    pages, before = [], {}
    while page := listed(house, limit=3, **before):
        pages.append(page)
        before = {"before": page[-1]}
    assert pages == [["t6", "t5", "t4"], ["t3", "t2", "t1"], ["t0"]]


def test_a_page_keeps_its_place_when_newer_tickets_come(house):
    for number in range(4):
        send(house, f"t{number}")
    first = listed(house, limit=2)
    send(house, "new")
    assert listed(house, limit=2, before=first[-1]) == ["t1", "t0"]


def test_a_page_behind_a_ticket_that_is_gone_says_so(house):
    with pytest.raises(NotFound, match="unknown ticket"):
        listed(house, before="nobody")


# -- searching --


@pytest.mark.parametrize("text", ["t1", "jerry", "TOM", "Plan"])
def test_a_search_finds_ids_names_and_conversations_for_everybody(house, text):
    send(house, "t1", conversationId="plan-b")
    send(house, "x2", to="Ann", who="local")
    for who in ("local", "person", "agent:Ann"):
        assert listed(house, who=who, text=text) == ["t1"]


def test_what_was_said_is_found_by_its_two_sides_and_the_person_alone(house):
    send(house, "t1", payload={"text": 'the Käse "is" here\n'})
    house.call("agent:Jerry", "replies.post", {"ticketId": "t1", "payload": "a late WORD"})
    for text in ("käse", "KÄSE", '"is"', "late word", "here\n"):
        for who, found in (("agent:Tom", ["t1"]), ("agent:Jerry", ["t1"]), ("person", ["t1"])):
            assert listed(house, who=who, text=text) == found, (who, text)
        for who in ("local", "agent:Ann"):
            assert listed(house, who=who, text=text) == [], (who, text)


def test_a_search_goes_on_behind_before_and_keeps_the_other_filters(house):
    for number in range(4):
        send(house, f"t{number}", payload="word")
        send(house, f"a{number}", to="Ann", payload="word")
    assert listed(house, who="person", text="word", agentId="Jerry", before="t2") == ["t1", "t0"]


def test_a_search_looks_at_so_many_bytes_and_no_further(house):
    send(house, "old", payload="needle")
    for number in range(4):
        send(house, f"t{number}", payload="x" * 1_000)
    house.broker.lists._max_bytes = 3_000
    assert listed(house, who="person", text="needle") == []
    # The control: with more room it is found.
    house.broker.lists._max_bytes = lists.MAX_SEARCHED_BYTES
    assert listed(house, who="person", text="needle") == ["old"]


def test_the_replies_of_one_ticket_count_as_well(house):
    """One may have a hundred, of a megabyte each, and nothing else happens while they are looked at."""
    send(house, "long")
    for word in ("x" * 1_000, "y" * 1_000, "needle"):
        house.call("agent:Jerry", "replies.post", {"ticketId": "long", "payload": word})
    house.broker.lists._max_bytes = 1_500
    assert listed(house, who="person", text="needle") == []
    # The control: with more room it is found.
    house.broker.lists._max_bytes = lists.MAX_SEARCHED_BYTES
    assert listed(house, who="person", text="needle") == ["long"]


def test_an_empty_search_is_refused(house):
    with pytest.raises(InvalidRequest):
        listed(house, text="")


# -- conversations --


def test_conversations_are_listed_by_their_newest_ticket(house):
    send(house, "t1", conversationId="plan")
    send(house, "t2", conversationId="review", to="Ann")
    send(house, "t3")
    send(house, "t4", conversationId="plan", who="agent:Jerry", to="Tom")
    house.call("agent:Jerry", "replies.post", {"ticketId": "t1", "payload": "done"})
    plan, review = house.call("local", "conversations.list")
    assert (plan["conversationId"], plan["tickets"], plan["open"]) == ("plan", 2, 1)
    assert sorted(plan["members"]) == ["Jerry", "Tom"]
    assert (review["conversationId"], review["open"], sorted(review["members"])) == ("review", 1, ["Ann", "Tom"])
    assert plan["lastAt"].endswith("Z")
    assert house.call("local", "conversations.list", {"before": "plan"}) == [review]
    assert house.call("local", "conversations.list", {"before": "review"}) == []
    with pytest.raises(NotFound, match="unknown conversation"):
        house.call("local", "conversations.list", {"before": "nobody"})


def test_conversations_are_the_same_after_a_restart(house):
    for number in range(6):
        send(house, f"t{number}", conversationId=f"talk{number % 3}")
    before = house.call("local", "conversations.list")
    house.restart()
    assert house.call("local", "conversations.list") == before
    assert [each["conversationId"] for each in before] == ["talk2", "talk1", "talk0"]


def test_a_conversation_with_many_sides_names_some_of_them(house):
    for number in range(lists.MAX_NAMED_MEMBERS + 8):
        house.register(f"agent-{number}")
        send(house, f"t{number}", to=f"agent-{number}", conversationId="all")
    (talk,) = house.call("local", "conversations.list")
    assert len(talk["members"]) == lists.MAX_NAMED_MEMBERS
