"""Being told that there is more to read: by `resources/subscribe` and by `subscriptions/listen`."""

import asyncio
import json

import pytest
from living import Living, eventually, short_dir
from speaking import RECENT, SUBSCRIPTION, Agent

from patience import PATIENCE

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
WANTED = {"resourceSubscriptions": [RECENT]}


def events(client) -> list[dict]:
    return json.loads(client.ask("resources/read", uri=RECENT)["contents"][0]["text"])


@pytest.mark.parametrize("era", ["modern", "session"])
def test_the_resource_shows_what_concerns_the_agent_and_nothing_else(agent, era):
    ann, bob, eve = agent("Ann"), agent("Bob"), agent("Eve")
    ticket = ann.caller.send(bob.handle, "secret words")
    for side in (ann, bob):
        assert ticket in {event.get("ticketId") for event in events(getattr(side, era)())}
    seen = events(getattr(eve, era)())
    assert {event.get("agentId") for event in seen} == {eve.handle}
    assert "secret words" not in json.dumps(events(getattr(bob, era)()))


def test_a_session_is_told_over_its_open_stream(agent):
    ann = agent("Ann")
    session = ann.session()
    with session.listen() as stream:
        assert session.ask("resources/subscribe", uri=RECENT) == {}
        ann.caller.send(ann.handle)
        assert stream.message() == {"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": RECENT}}


def test_a_session_that_subscribed_first_is_told_when_it_listens(agent):
    ann = agent("Ann")
    session = ann.session()
    session.ask("resources/subscribe", uri=RECENT)
    with session.listen() as stream:
        ann.caller.send(ann.handle)
        assert stream.message()["method"] == UPDATED


def test_a_session_that_unsubscribed_is_told_no_more(agent):
    ann = agent("Ann")
    session = ann.session()
    with session.listen() as stream:
        session.ask("resources/subscribe", uri=RECENT)
        session.ask("resources/unsubscribe", uri=RECENT)
        ann.caller.send(ann.handle)
        session.ask("resources/subscribe", uri=RECENT)
        ann.caller.send(ann.handle)
        assert stream.message()["method"] == UPDATED
        assert session.end().status == 200
        # One piece of news, not two: the stream ends behind it.
        assert stream.message() is None


def test_a_listening_client_is_told_on_its_own_stream(agent):
    ann = agent("Ann")
    wanted = {**WANTED, "promptsListChanged": True}
    with ann.modern().open("subscriptions/listen", notifications=wanted) as stream:
        first = stream.message()
        assert first["method"] == ACKNOWLEDGED
        # What can never come is not promised.
        assert first["params"]["notifications"] == WANTED
        ann.caller.send(ann.handle)
        notified = stream.message()
        assert (notified["method"], notified["params"]["uri"]) == (UPDATED, RECENT)
        assert notified["params"]["_meta"][SUBSCRIPTION] == first["params"]["_meta"][SUBSCRIPTION]


def test_nobody_is_told_about_others(agent):
    ann, bob, eve = agent("Ann"), agent("Bob"), agent("Eve")
    with eve.modern().open("subscriptions/listen", notifications=WANTED) as stream, eve.session().listen() as old:
        assert stream.message()["method"] == ACKNOWLEDGED
        for _ in range(3):
            ann.caller.send(bob.handle)
        # The next thing that concerns Eve is the first she hears of.
        ann.caller.send(eve.handle)
        assert stream.message()["method"] == UPDATED
        assert len([event for event in events(eve.modern()) if event["event"] == "ticket.sent"]) == 1
        old.wire.close()


def test_a_burst_of_events_is_reported_once_or_twice(agent):
    ann = agent("Ann")
    with ann.modern().open("subscriptions/listen", notifications=WANTED) as stream:
        assert stream.message()["method"] == ACKNOWLEDGED
        for _ in range(20):
            ann.caller.send(ann.handle)
        notified = 0
        while len(events(ann.modern())) < 20:
            assert stream.message()["method"] == UPDATED
            notified += 1
        assert notified < 20


@pytest.mark.parametrize("era", ["modern", "session"])
def test_another_resource_does_not_exist(agent, era):
    client = getattr(agent("Ann"), era)()
    with client.open("resources/read", uri="bascule://transactions/all") as stream:
        error = stream.message()["error"]
    assert error["code"] == (-32602 if era == "modern" else -32002)
    assert error["data"] == {"uri": "bascule://transactions/all"}


def test_listeners_who_left_hold_nothing(daemon, agent):
    # More than one agent may hold: without release the last ones would be refused.
    ann = agent("Ann")
    for _ in range(150):
        with ann.modern().open("subscriptions/listen", notifications=WANTED) as stream:
            assert stream.message()["method"] == ACKNOWLEDGED


def test_the_official_client_listens(agent):
    ann = agent("Ann")

    async def story():
        async with ann.official("auto") as client, client.listen(resource_subscriptions=[RECENT]) as subscription:
            await asyncio.to_thread(ann.caller.send, ann.handle)
            async for event in subscription:
                assert event.uri == RECENT
                return

    asyncio.run(asyncio.wait_for(story(), PATIENCE))


def test_a_stopping_daemon_ends_every_stream_in_order():
    with short_dir() as folder, Living(f"{folder}/s", mcp="on") as daemon:
        ann = Agent(daemon, "Ann")
        session = ann.session()
        with (
            session.listen() as old,
            ann.modern().open("subscriptions/listen", notifications=WANTED) as new,
            session.open("tools/call", name="wait_for_message", arguments={}) as waiting,
            ann.modern().begin_call("wait_for_message") as modern_wait,
        ):
            session.ask("resources/subscribe", uri=RECENT)
            assert new.message()["method"] == ACKNOWLEDGED
            eventually(lambda: ann.caller.gauge("bascule_waits") == 4, "two wait and two listen")
            assert daemon.stop() == 0
            # Who waited is told to come again, who listened that it was ended on purpose.
            assert waiting.result()["structuredContent"]["status"] == "empty"
            from speaking import Stream

            with Stream(modern_wait) as answered:
                assert answered.result()["structuredContent"]["status"] == "empty"
            assert new.result()["resultType"] == "complete"
            assert old.message() is None
        assert "Traceback" not in daemon.terminal()
