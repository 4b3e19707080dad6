"""Which broker, whose token: stored tokens go to our socket, the environment's to a loopback address, no other."""

import json
import os
import socket

import pytest
from fake_http import FakeHttp, answer

from bascule.foundation import paths
from bascule.local_client import choice, exits, http


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:5050", ("127.0.0.1", 5050)),
        ("http://localhost:5050/", ("127.0.0.1", 5050)),
        ("http://[::1]:5050", ("::1", 5050)),
        ("http://127.0.0.1", ("127.0.0.1", 80)),
        ("https://localhost", ("127.0.0.1", 443)),
        ("https://[::1]:5050", ("::1", 5050)),
    ],
)
def test_loopback_urls_are_dialled_by_number(state, monkeypatch, url, address):
    monkeypatch.setenv("BRIDGE_BROKER_URL", url)
    assert choice.find_door(state).address == address


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com:5050",
        "https://example.com",
        "ftp://127.0.0.1:5050",
        "http://127.0.0.1.example.com:5050",
        "http://127.0.0.1:5050@example.com",
        "http://user@127.0.0.1:5050",
        "http://127.0.0.1:5050/prefix",
        "http://0.0.0.0:5050",
        "http://127.0.0.1:99999999",
        "http://127.0.0.1:65536",
        "http://127.0.0.1:0",
        "http://127.0.0.1:\u00b2",
        "http://127.0.0.1:\u0663\u0663",
        "http://[::1%lo]:5050",
        "127.0.0.1:5050",
        "http://127.0.0.1:50\r\nX: y",
    ],
)
def test_any_other_url_is_refused_before_anything_is_sent(state, monkeypatch, url):
    monkeypatch.setenv("BRIDGE_BROKER_URL", url)
    with pytest.raises(exits.WrongUsage, match="only http:// and https://"):
        choice.find_door(state)


def note_address(state, url):
    """What the daemon writes into its lock."""
    note = {"pid": 1, "version": "0", "doors": {"link": "l", "http": "h", "tcp": url}}
    paths.write_private_file(paths.lock_file(state), json.dumps(note).ljust(1_024))


@pytest.mark.parametrize("url", ["http://127.0.0.1:5050", "http://localhost:5050/", "http://127.0.0.1:05050"])
def test_the_address_of_our_own_daemon_is_its_socket(state, monkeypatch, url):
    note_address(state, "http://127.0.0.1:5050")
    monkeypatch.setenv("BRIDGE_BROKER_URL", url)
    assert choice.find_door(state).address == paths.http_socket(state)


@pytest.mark.parametrize("url", ["http://127.0.0.1:5051", "http://[::1]:5050", "https://127.0.0.1:5050"])
def test_any_other_address_is_another_broker(state, monkeypatch, url):
    note_address(state, "http://127.0.0.1:5050")
    monkeypatch.setenv("BRIDGE_BROKER_URL", url)
    assert choice.find_door(state).state is None


@pytest.mark.parametrize(
    "note", ["", " " * 1_024, "{", "[]", '{"doors":{}}', '{"doors":{"tcp":7}}', '{"doors":{"tcp":"x"}}']
)
def test_a_lock_that_notes_no_address_means_no_daemon_of_ours(state, monkeypatch, note):
    paths.write_private_file(paths.lock_file(state), note)
    monkeypatch.setenv("BRIDGE_BROKER_URL", "http://127.0.0.1:5050")
    assert choice.find_door(state).state is None


def test_a_token_of_our_daemon_leads_to_its_socket_whatever_the_address(state, keep_token, monkeypatch):
    """As under `bridge-wrap`, when the daemon has stopped or come back with another port."""
    keep_token("Jerry", "of-jerry")
    monkeypatch.setenv("BRIDGE_BROKER_URL", "http://127.0.0.1:5050")
    monkeypatch.setenv("BRIDGE_AGENT_ID", "Jerry")
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "of-jerry")
    assert choice.find_door(state).state == state
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "of another broker".replace(" ", "-"))
    assert choice.find_door(state).state is None


def test_another_broker_is_shown_the_token_of_the_environment_and_no_stored_one(state, keep_token, monkeypatch):
    paths.write_private_file(paths.local_token_file(state), "local-secret\n")
    keep_token("Jerry", "of-jerry")
    with FakeHttp(("127.0.0.1", 0), [answer(200, [])] * 3) as daemon:
        monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{daemon.port}")
        door = choice.find_door(state)
        http.call(door, "GET", "/agents", token=choice.chosen_token(door, None))
        http.call(door, "GET", "/agents", token=choice.chosen_token(door, "Jerry"))
        monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "of-environment")
        http.call(door, "GET", "/agents", token=choice.chosen_token(door, "Jerry"))
    assert [got.bearer for got in daemon.got] == [None, None, "of-environment"]
    assert f"http://{daemon.got[0].headers['host']}" == door.where
    assert choice.stored_token(door, "Jerry") is None


def test_the_default_is_the_socket_in_the_state_directory(state):
    door = choice.find_door(state)
    assert (door.family, door.address) == (socket.AF_UNIX, paths.http_socket(state))


def test_a_state_directory_too_deep_for_a_socket_is_told_so():
    with pytest.raises(exits.DoorError, match="too long"):
        choice.find_door("/" + "x" * 120)


def test_the_named_agent_wins_over_the_environment(state, keep_token, monkeypatch):
    keep_token("Jerry", "of-jerry")
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "of-environment")
    assert choice.chosen_token(choice.own_door(state), "Jerry") == "of-jerry"
    assert choice.chosen_token(choice.own_door(state), None) == "of-environment"


def test_the_environment_names_an_agent_by_handle(state, keep_token, monkeypatch):
    keep_token("Jerry", "of-jerry")
    monkeypatch.setenv("BRIDGE_AGENT_ID", "Jerry")
    assert choice.chosen_token(choice.own_door(state), None) == "of-jerry"


def test_nobody_named_is_nobody(state):
    assert choice.chosen_token(choice.own_door(state), None) is None


def test_a_handle_without_a_token_says_how_to_get_one(state):
    with pytest.raises(exits.NoIdentity) as caught:
        choice.chosen_token(choice.own_door(state), "Jerry")
    assert "bridge-register --agent Jerry" in str(caught.value.hint)


def test_two_handles_that_differ_in_case_have_two_tokens(state, keep_token):
    keep_token("Jerry", "one")
    keep_token("jerry", "two")
    assert choice.stored_token(choice.own_door(state), "Jerry") == "one"
    assert choice.stored_token(choice.own_door(state), "jerry") == "two"


def test_a_token_that_others_can_read_is_not_used(state, keep_token):
    keep_token("Jerry", "of-jerry")
    os.chmod(paths.token_file(state, "Jerry"), 0o644)
    with pytest.raises(exits.NoIdentity, match="open to other users"):
        choice.stored_token(choice.own_door(state), "Jerry")


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "a b", "tökén"])
def test_a_token_that_would_break_a_header_is_not_used(state, keep_token, monkeypatch, token):
    keep_token("Jerry", token)
    with pytest.raises(exits.NoIdentity):
        choice.stored_token(choice.own_door(state), "Jerry")
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", token)
    with pytest.raises(exits.NoIdentity):
        choice.environment_token()
