"""The resource of recent transactions: read, and watched in both eras."""

import json

import pytest
from fake_link import HANG_UP, HOLD, FakeLink, Refused
from raw_client import SUBSCRIPTION_KEY, RawClient, modern

from bascule.shim import mcp
from bascule.shim.resources import MAX_LISTENERS, NEWS_SECONDS, RECENT_URI, Subscriptions
from patience import PATIENCE

EVENT = {"id": 7, "event": "ticket.sent", "at": "2026-11-15T00:00:00Z", "ticketId": "t", "agentId": "Jerry"}


def answers(value):
    return lambda _peer, _params: value


def streaming(*items):
    """`events.stream`: opened, and then these events."""

    def method(peer, _params):
        number = peer.stream = peer.number
        peer.answer(number, {})
        for item in items:
            peer.notify("events.item", stream=number, item=item)
        return HOLD

    return method


def update(number=None):
    params = {"uri": RECENT_URI}
    if number is not None:
        params["_meta"] = {SUBSCRIPTION_KEY: number}
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}


def listen(client, **notifications):
    return client.ask("subscriptions/listen", notifications=notifications, _meta=modern())


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [{}, {"_meta": modern()}], ids=["legacy", "modern"])
def test_the_resource_is_listed_and_read(state, meta):
    with FakeLink(state, events_recent=answers([EVENT])) as daemon, RawClient(state, "--agent", "Jerry") as client:
        listed = client.request("resources/list", **meta)["result"]
        assert [resource["uri"] for resource in listed["resources"]] == [RECENT_URI]
        assert client.request("resources/templates/list", **meta)["result"]["resourceTemplates"] == []
        read = client.request("resources/read", uri=RECENT_URI, **meta)["result"]
        assert daemon.wait_for("events.recent") == {"agentId": "Jerry", "limit": 50}
    (content,) = read["contents"]
    assert (content["uri"], content["mimeType"]) == (RECENT_URI, "application/json")
    assert json.loads(content["text"]) == [EVENT]
    assert ("ttlMs" in read) == ("ttlMs" in listed) == bool(meta)


def test_both_openings_say_that_there_are_resources(state):
    with FakeLink(state), RawClient(state) as client:
        assert client.initialize()["capabilities"]["resources"]["subscribe"] is True
        found = client.request("server/discover", _meta=modern())["result"]
        assert found["capabilities"]["resources"]["subscribe"] is True


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe", "resources/unsubscribe"])
def test_an_unknown_resource_is_named_in_the_error(state, method):
    with RawClient(state, "--no-start") as client:
        error = client.request(method, uri="bascule://nothing")["error"]
    assert (error["code"], error["data"]) == (-32002, {"uri": "bascule://nothing"})


def test_the_newer_revision_has_another_number_for_an_unknown_resource(state):
    with RawClient(state, "--no-start") as client:
        assert client.request("resources/read", uri="x", _meta=modern())["error"]["code"] == -32602


def test_a_resource_that_cannot_be_read_is_an_error_with_a_next_step(state):
    def refuse(_peer, _params):
        raise Refused("forbidden", "not yours")

    with FakeLink(state, events_recent=refuse), RawClient(state) as client:
        error = client.request("resources/read", uri=RECENT_URI)["error"]
    assert error["code"] == -32603
    assert error["message"].startswith("not yours\nNext: ")


def test_each_era_has_its_own_way_to_subscribe_and_not_the_others(state):
    with RawClient(state, "--no-start") as client:
        assert client.request("resources/subscribe", uri=RECENT_URI, _meta=modern())["error"]["code"] == -32601
        assert client.request("subscriptions/listen", notifications={})["error"]["code"] == -32601


def test_without_the_agents_tools_there_is_nothing_to_read(state):
    with FakeLink(state), RawClient(state, "--toolset", "workspace") as client:
        opened = client.initialize()
        assert "resources" not in opened["capabilities"]
        assert "send_message" not in opened["instructions"]
        assert client.request("resources/list")["error"]["code"] == -32601
        assert client.request("tools/call", name="send_message")["error"]["code"] == -32602


# -- watching -------------------------------------------------------------------------------------


def test_a_subscriber_of_the_older_revisions_is_told(state):
    with FakeLink(state, events_stream=streaming(EVENT)) as daemon, RawClient(state, "--agent", "Jerry") as client:
        client.initialize()
        assert client.request("resources/subscribe", uri=RECENT_URI)["result"] == {}
        assert daemon.wait_for("events.stream") == {"agentId": "Jerry"}
        assert client.next() == update()
        peer = daemon.peers[0]
        assert client.request("resources/unsubscribe", uri=RECENT_URI)["result"] == {}
        with daemon.happened:
            assert daemon.happened.wait_for(lambda: peer.stream in daemon.cancelled, PATIENCE)
        # What was under way before the daemon heard of it goes nowhere.
        peer.notify("events.item", stream=peer.stream, item=EVENT)
        assert client.request("ping")["result"] == {}
        assert client.aside == []


def test_a_listener_is_acknowledged_first_and_its_news_carry_its_id(state):
    with FakeLink(state, events_stream=streaming(EVENT)), RawClient(state) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI, "bascule://nothing"], toolsListChanged=True)
        first = client.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        # Only what we can do is promised: our tools do not change, and there is no other resource.
        assert first["params"] == {
            "notifications": {"resourceSubscriptions": [RECENT_URI]},
            "_meta": {SUBSCRIPTION_KEY: number},
        }
        assert client.next() == update(number)


def test_a_listener_that_wants_nothing_we_have_hears_nothing(state):
    with FakeLink(state) as daemon, RawClient(state) as client:
        listen(client, promptsListChanged=True)
        assert client.next()["params"]["notifications"] == {}
        assert client.request("ping")["result"] == {}
    assert "events.stream" not in daemon.methods_called()


def test_a_cancelled_listener_hears_no_more_and_the_stream_is_closed(state):
    with FakeLink(state, events_stream=streaming(EVENT)) as daemon, RawClient(state) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI])
        assert (client.next()["method"], client.next()) == (
            *("notifications/subscriptions/acknowledged", update(number)),
        )
        client.notify("notifications/cancelled", requestId=number)
        peer = daemon.peers[0]
        with daemon.happened:
            assert daemon.happened.wait_for(lambda: peer.stream in daemon.cancelled, PATIENCE)
        peer.notify("events.item", stream=peer.stream, item=EVENT)
        assert client.request("ping")["result"] == {}
        assert client.aside == []


def test_an_open_listener_ends_with_its_result_when_we_leave(state):
    with FakeLink(state, events_stream=streaming()), RawClient(state) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI])
        client.next()
        client.process.stdin.close()
        last = client.next()
    assert (last["id"], last["result"]["resultType"]) == (number, "complete")
    assert last["result"]["_meta"][SUBSCRIPTION_KEY] == number


def test_after_a_restart_of_the_daemon_the_news_go_on_where_they_stopped(state):
    with RawClient(state, "--no-start", "--agent", "Jerry") as client:
        with FakeLink(state, events_stream=streaming(EVENT)):
            client.initialize()
            client.request("resources/subscribe", uri=RECENT_URI)
            assert client.next() == update()
        # The next call looks for the daemon at once; without one it is found within seconds.
        later = streaming({**EVENT, "id": 8})
        with FakeLink(state, events_stream=later, agents_list=answers([])) as daemon:
            client.call("list_agents")
            assert daemon.wait_for("events.stream") == {"agentId": "Jerry", "after": 7}
            # Before the answer to the call or after it: these are two connections.
            assert update() in (client.aside or [client.next()])


def test_a_change_of_name_moves_the_stream(state):
    with FakeLink(state, events_stream=streaming()) as daemon, RawClient(state, "--agent", "Jerry") as client:
        client.initialize()
        client.request("resources/subscribe", uri=RECENT_URI)
        daemon.wait_for("events.stream")
        client.call("register_agent", agentId="Tom")
        assert daemon.wait_for("events.stream", 2)["agentId"] == "Tom"
        (closed,) = daemon.cancelled
    assert closed < daemon.peers[0].stream


@pytest.mark.parametrize("trouble", [HANG_UP, Refused("forbidden")])
def test_a_stream_that_cannot_be_had_does_not_disturb_the_calls(state, trouble):
    def method(_peer, _params):
        if trouble is HANG_UP and len(daemon.peers) == 1:
            return HANG_UP
        if isinstance(trouble, Refused):
            raise trouble
        return {}

    with FakeLink(state, events_stream=method, agents_list=answers([])) as daemon, RawClient(state) as client:
        client.initialize()
        assert client.request("resources/subscribe", uri=RECENT_URI)["result"] == {}
        assert client.call("list_agents")["structuredContent"]["agents"] == []


# -- who wants to know ----------------------------------------------------------------------------


def request(number, **notifications):
    params = {"notifications": notifications, "_meta": modern()}
    return mcp.Request(number, "subscriptions/listen", params)


def test_a_burst_of_events_is_one_piece_of_news():
    subscriptions = Subscriptions()
    subscriptions.subscribe(on=True)
    assert subscriptions.news(10.0) == []
    subscriptions.happened(10.0)
    assert subscriptions.next_time() == 10.0
    assert len(subscriptions.news(10.0)) == 1
    for _ in range(100):
        subscriptions.happened(10.01)
    assert subscriptions.news(10.02) == []
    assert subscriptions.next_time() == 10.0 + NEWS_SECONDS
    assert len(subscriptions.news(10.2)) == 1
    assert subscriptions.next_time() is None


def test_only_so_many_listeners_and_only_good_ones():
    subscriptions = Subscriptions()
    for number in range(MAX_LISTENERS):
        subscriptions.listen(request(number))
    with pytest.raises(mcp.BadRequest, match="cancel one first"):
        subscriptions.listen(request("one more"))
    with pytest.raises(mcp.BadRequest, match="must be an object"):
        Subscriptions().listen(mcp.Request(1, "subscriptions/listen", {"_meta": modern()}))
    assert not subscriptions.wanted


def test_an_id_in_use_by_a_listener_is_refused(state):
    with FakeLink(state, events_stream=streaming()), RawClient(state) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI])
        client.next()
        line = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "co_workers"}}
        client.write(json.dumps(line).encode() + b"\n")
        assert client.next()["error"]["code"] == -32600
