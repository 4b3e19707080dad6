"""The resource of recent transactions: read, and watched in both eras, through the program."""

import json
import uuid

import pytest
from fake_link import HANG_UP, HOLD, FakeLink
from living import Living, eventually, short_dir
from raw_client import SUBSCRIPTION_KEY, RawClient, modern

from bascule.surfaces.mcp.link_sessions import MAX_LISTENERS
from bascule.surfaces.mcp.recent import RECENT_URI

LEGACY: dict[str, object] = {}
MODERN = {"_meta": modern()}


def answers(value):
    return lambda _peer, _params: value


def update(number=None):
    params = {"uri": RECENT_URI}
    if number is not None:
        params["_meta"] = {SUBSCRIPTION_KEY: number}
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}


def listen(client, **notifications):
    return client.ask("subscriptions/listen", notifications=notifications, _meta=modern())


def agent(daemon, **more):
    """A client of an agent of its own."""
    return RawClient(daemon.state, "--no-start", "--agent", f"Watcher-{uuid.uuid4().hex[:8]}", **more)


def own_name(client):
    return client.call("co_workers")["structuredContent"]["you"]


def send_to_oneself(client):
    client.call("send_message", agentId=own_name(client), payload="x", awaitResponse=False)


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("meta", [LEGACY, MODERN], ids=["legacy", "modern"])
def test_the_resource_is_listed_and_read(daemon, meta):
    with agent(daemon) as client:
        listed = client.request("resources/list", **meta)["result"]
        assert [resource["uri"] for resource in listed["resources"]] == [RECENT_URI]
        assert client.request("resources/templates/list", **meta)["result"]["resourceTemplates"] == []
        send_to_oneself(client)
        read = client.request("resources/read", uri=RECENT_URI, **meta)["result"]
    (content,) = read["contents"]
    assert (content["uri"], content["mimeType"]) == (RECENT_URI, "application/json")
    assert "ticket.sent" in [event["event"] for event in json.loads(content["text"])]
    assert ("ttlMs" in read) == ("ttlMs" in listed) == bool(meta)


def test_the_resource_is_listed_before_a_daemon_runs(state):
    with RawClient(state, "--no-start") as client:
        assert client.request("resources/list")["result"]["resources"]


def test_both_openings_say_that_there_are_resources(state):
    with FakeLink(state), RawClient(state) as client:
        assert client.initialize()["capabilities"]["resources"]["subscribe"] is True
        found = client.request("server/discover", _meta=modern())["result"]
        assert found["capabilities"]["resources"]["subscribe"] is True


@pytest.mark.parametrize("method", ["resources/read", "resources/subscribe", "resources/unsubscribe"])
def test_an_unknown_resource_is_named_in_the_error(daemon, method):
    with agent(daemon) as client:
        error = client.request(method, uri="bascule://nothing")["error"]
    assert (error["code"], error["data"]) == (-32002, {"uri": "bascule://nothing"})


def test_the_newer_revision_has_another_number_for_an_unknown_resource(daemon):
    with agent(daemon) as client:
        assert client.request("resources/read", uri="x", _meta=modern())["error"]["code"] == -32602


def test_each_era_has_its_own_way_to_subscribe_and_not_the_others(daemon):
    with agent(daemon) as client:
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


def test_a_subscriber_of_the_older_revisions_hears_of_news(daemon):
    with agent(daemon) as client:
        client.initialize()
        assert client.request("resources/subscribe", uri=RECENT_URI)["result"] == {}
        send_to_oneself(client)
        assert (client.aside or [client.next()]) == [update()]
        assert client.request("resources/unsubscribe", uri=RECENT_URI)["result"] == {}
        client.aside.clear()
        send_to_oneself(client)
        # Longer than news is held back for.
        client.call("wait_for_message")
        client.call("await_reply", ticketId="none", timeoutMs=300)
        assert client.aside == []


def test_a_listener_is_acknowledged_first_and_its_news_have_its_id(daemon):
    with agent(daemon) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI, "bascule://nothing"], toolsListChanged=True)
        first = client.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        # Only what we can do is promised: our tools do not change, and there is no other resource.
        assert first["params"] == {
            "notifications": {"resourceSubscriptions": [RECENT_URI]},
            "_meta": {SUBSCRIPTION_KEY: number},
        }
        send_to_oneself(client)
        assert (client.aside or [client.next()]) == [update(number)]


def test_a_listener_that_wants_nothing_we_have_hears_nothing(daemon):
    with agent(daemon) as client:
        listen(client, promptsListChanged=True)
        assert client.next()["params"]["notifications"] == {}
        send_to_oneself(client)
        client.call("await_reply", ticketId="none", timeoutMs=300)
        assert client.aside == []


def test_a_cancelled_listener_hears_no_more(daemon):
    with agent(daemon) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI])
        assert client.next()["method"] == "notifications/subscriptions/acknowledged"
        client.notify("notifications/cancelled", requestId=number)
        send_to_oneself(client)
        client.call("await_reply", ticketId="none", timeoutMs=300)
        assert client.aside == []


def test_an_open_listener_ends_with_its_result_when_we_leave(daemon):
    with agent(daemon) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI])
        client.next()
        client.process.stdin.close()
        last = client.next()
    assert (last["id"], last["result"]["resultType"]) == (number, "complete")
    assert last["result"]["_meta"][SUBSCRIPTION_KEY] == number


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_after_a_restart_of_the_daemon_the_client_is_sent_to_read_and_hears_of_news_again(era):
    with short_dir() as folder, RawClient(f"{folder}/s", "--no-start", "--agent", "Jerry") as client:
        with Living(f"{folder}/s"):
            client.initialize()
            number = None
            if era == "legacy":
                assert client.request("resources/subscribe", uri=RECENT_URI)["result"] == {}
            else:
                number = listen(client, resourceSubscriptions=[RECENT_URI])
                client.next()
            client.call("co_workers")
            client.aside.clear()
        with Living(f"{folder}/s"):
            # What happened meanwhile is not known: the client reads. It is not acknowledged a second time.
            client.call("co_workers")
            eventually(lambda: client.aside or client.aside.append(client.next()), "the news")
            assert client.aside[0] == update(number)
            client.aside.clear()
            send_to_oneself(client)
            assert (client.aside or [client.next()])[0] == update(number)


def test_a_change_of_name_moves_the_subscription(daemon):
    with agent(daemon) as client:
        client.initialize()
        client.request("resources/subscribe", uri=RECENT_URI)
        name = own_name(client)
        client.call("register_agent", agentId=f"{name}-new")
        client.aside.clear()
        with RawClient(daemon.state, "--no-start", "--agent", f"{name}-other") as other:
            other.initialize()
            other.call("send_message", agentId=f"{name}-new", payload="x", awaitResponse=False)
        assert client.next() == update()


def test_only_so_many_listeners_and_only_good_ones(daemon):
    with agent(daemon) as client:
        assert client.request("subscriptions/listen", _meta=modern())["error"]["code"] == -32602
        for _ in range(MAX_LISTENERS):
            listen(client)
            assert client.next()["method"] == "notifications/subscriptions/acknowledged"
        error = client.answer_to(listen(client))["error"]
        assert "cancel one first" in error["message"]


def test_an_id_in_use_by_a_listener_is_refused(state):
    with FakeLink(state, subscriptions_listen=answers(HOLD)) as daemon, RawClient(state) as client:
        number = listen(client, resourceSubscriptions=[RECENT_URI])
        daemon.wait_for("subscriptions/listen")
        line = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "co_workers"}}
        client.write(json.dumps(line).encode() + b"\n")
        assert client.next()["error"]["code"] == -32600


def test_a_subscription_waits_for_the_next_daemon_however_long_it_takes(state):
    with RawClient(state, "--no-start") as client:
        with FakeLink(state, subscriptions_listen=answers(HANG_UP)) as daemon:
            listen(client, resourceSubscriptions=[RECENT_URI])
            first = daemon.wait_for("subscriptions/listen")
        with FakeLink(state, subscriptions_listen=answers(HOLD)) as daemon:
            again = daemon.wait_for("subscriptions/listen")
    assert (again["call"], first["again"], again["again"]) == (first["call"], False, True)
