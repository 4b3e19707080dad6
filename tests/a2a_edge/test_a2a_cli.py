"""`bascule a2a` as people use it: with a passphrase to open something, without one to close it."""

import json

import httpx
import pytest
from edge_scene import PASSPHRASE, PeerAgent
from exit_codes import CONFLICT, NOT_FOUND
from hostile import serving
from living import eventually, run_command, short_dir

from terminal import on_a_terminal

TYPED = [("assphrase", PASSPHRASE["passphrase"])]


def plain(edge, *arguments):
    return run_command("a2a", *arguments, "--state-dir", edge.state)


def typed(edge, *arguments):
    return on_a_terminal("a2a", *arguments, "--state-dir", edge.state, typed=TYPED)


def test_a_handle_is_published_and_a_client_gets_a_token_that_is_shown_once(edge):
    edge.user.call("agents.register", {"agentId": "Jerry"})
    shown = typed(edge, "publish", "Jerry", "--skill", "reviews code", "--description", "a careful reader")
    assert shown.code == 0
    card_url = f"{edge.base}/Jerry/.well-known/agent-card.json"
    assert card_url in shown.shown
    card = httpx.get(card_url).json()
    assert (card["description"], [each["name"] for each in card["skills"]]) == ("a careful reader", ["reviews code"])
    made = typed(edge, "token", "add", "Ann")
    token = made.shown.split()[-1]
    assert (made.code, len(token)) == (0, 43)
    headers = {"authorization": f"Bearer {token}", "a2a-version": "1.0"}
    assert httpx.get(f"{edge.base}/Jerry/tasks", headers=headers).status_code == 200
    assert typed(edge, "token", "add", "Ann").code == CONFLICT
    listed = plain(edge, "token", "list")
    assert "Ann" in listed.stdout
    assert token not in listed.stdout
    published = json.loads(plain(edge, "published", "--json").stdout)
    assert [each["agentId"] for each in published["agents"]] == ["Jerry"]
    assert plain(edge, "token", "revoke", "Ann").returncode == 0
    assert httpx.get(f"{edge.base}/Jerry/tasks", headers=headers).status_code == 401
    assert plain(edge, "unpublish", "Jerry").returncode == 0
    assert plain(edge, "unpublish", "Jerry").returncode == NOT_FOUND
    assert httpx.get(card_url).status_code == 404


def test_nothing_is_opened_without_a_terminal(edge):
    for arguments in (("publish", "Jerry"), ("token", "add", "Bob"), ("add", "Weather", "http://127.0.0.1:1")):
        assert plain(edge, *arguments).returncode != 0
    assert plain(edge, "token", "list").stdout.startswith("no client")


def test_an_agent_elsewhere_is_added_listed_and_removed(edge):
    assert "nobody yet" in plain(edge).stdout
    with short_dir() as folder, PeerAgent(folder) as peer:
        added = typed(edge, "add", "Weather", peer.url)
        assert added.code == 0
        assert "Weather@a2a: Weather" in added.shown
        known = json.loads(plain(edge, "list", "--json").stdout)[0]
        assert known["digest"] in added.shown
        sent = edge.user.call("messages.send", {"agentId": "Weather@a2a", "payload": "echo x", "waitMs": 30_000})
        assert sent["reply"]["payload"] == "echo x"
        assert "Weather@a2a" in plain(edge, "list").stdout
        assert "Weather@a2a" in run_command("agents", "list", "--state-dir", edge.state).stdout
        assert plain(edge, "remove", "Weather@a2a").returncode == 0
    assert "nobody yet" in plain(edge, "list").stdout


@pytest.mark.parametrize("url", ["http://example.org", "ftp://x"])
def test_a_wrong_address_is_said_to_be_wrong(edge, url):
    assert "https" in typed(edge, "add", "Weather", url).shown


def test_doctor_says_how_it_is(edge):
    report = run_command("doctor", "--json", "--state-dir", edge.state).stdout
    checks = json.loads(report)
    line = next(each for each in checks["checks"] if each["name"] == "a2a")
    assert edge.base in json.dumps(line)
    # The same in `bascule status`.
    assert edge.base in run_command("status", "--state-dir", edge.state).stdout
    with serving(lambda *_: (503, {}, b"")) as server:
        edge.person.call("a2a.addAgent", {"name": "Gone", "url": server.url})
        edge.user.call("messages.send", {"agentId": "Gone@a2a", "payload": "x"})
        eventually(lambda: edge.user.call("a2a.agents")[0].get("problem"), "it is found to be broken")
    report = run_command("doctor", "--json", "--state-dir", edge.state).stdout
    line = next(each for each in json.loads(report)["checks"] if each["name"] == "a2a")
    assert "Gone@a2a" in line["message"]
    edge.person.call("a2a.removeAgent", {"name": "Gone"})
