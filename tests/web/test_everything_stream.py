"""`events.all` over HTTP: the cursor is the id of each event, a reader comes back with it, and agents stay outside."""

import pytest
from wires import Caller


@pytest.fixture(scope="module")
def local(daemon) -> Caller:
    return Caller(daemon)


def test_the_id_of_an_event_is_the_cursor_to_come_back_with(local):
    with local.open("/v1/events/all?kinds=agent,ticket") as events:
        opened = events.event()
        assert (opened["event"], opened["data"]["event"]) == ("daemon", "open")
        local.register("Ada")
        ticket = local.send("Ada")
        seen = events.event()
        while seen["event"] != "ticket":
            seen = events.event()
        assert (seen["data"]["id"], seen["data"]["event"], seen["data"]["agentId"]) == (ticket, "sent", "Ada")
        assert int(seen["id"]) == seen["data"]["cursor"]
    another = local.send("Ada")
    with local.open(f"/v1/events/all?kinds=ticket&after={seen['id']}") as events:
        assert events.event()["data"]["id"] == another


def test_a_reader_with_a_cursor_of_long_ago_is_sent_a_gap_and_what_is_kept(local):
    local.register("Eve")
    with local.open("/v1/events/all?after=0") as events:
        gap = events.event()["data"]
        assert (gap["kind"], gap["event"]) == ("daemon", "gap")
        assert events.event()["data"]["event"] == "started"


def test_more_than_a_reader_takes_at_once_comes_in_pieces_and_in_order(local):
    for name in ("Many", "More"):
        local.register(name)
    with local.open("/v1/events/all?kinds=ticket") as events:
        events.event()
        sent = [local.send(name, expectReply=False) for _ in range(150) for name in ("Many", "More")]
        came = [events.event()["data"] for _ in sent]
    assert [each["id"] for each in came] == sent
    assert [each["cursor"] for each in came] == sorted(each["cursor"] for each in came)


def test_an_agent_is_refused(local):
    agent = local.register("Mallory")
    assert agent.get("/v1/events/all").status == 403


@pytest.mark.parametrize(
    "path",
    ["/v1/runs", "/v1/processes", "/conversations", "/tickets?limit=1&text=nobody", "/v1/desktop/evidence"],
)
def test_lists_over_everything_have_a_route(local, path):
    answer = local.get(path)
    assert (answer.status, answer.json) == (200, [])


@pytest.mark.parametrize("path", ["/v1/runs/run_1", "/v1/runs/run_1/diff", "/v1/desktop/evidence/nobody"])
def test_one_of_them_is_found_by_its_id_alone_or_not_at_all(local, path):
    assert local.get(path).status == 404
