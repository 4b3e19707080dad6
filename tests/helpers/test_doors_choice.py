"""Which door, whose token: a token goes to our socket or to a loopback address, nowhere else."""

import os
import socket

import pytest
from fake_http import FakeHttp, answer

from bascule import places
from bascule.doors import choice, exits, http


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:5050", ("127.0.0.1", 5050)),
        ("http://localhost:5050/", ("127.0.0.1", 5050)),
        ("http://[::1]:5050", ("::1", 5050)),
        ("http://127.0.0.1", ("127.0.0.1", 80)),
    ],
)
def test_loopback_urls_are_dialled_by_number(state, monkeypatch, url, address):
    monkeypatch.setenv("BRIDGE_BROKER_URL", url)
    assert choice.find_door(state).address == address


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com:5050",
        "https://127.0.0.1:5050",
        "http://127.0.0.1.example.com:5050",
        "http://127.0.0.1:5050@example.com",
        "http://user@127.0.0.1:5050",
        "http://127.0.0.1:5050/prefix",
        "http://0.0.0.0:5050",
        "http://127.0.0.1:99999999",
        "127.0.0.1:5050",
        "http://127.0.0.1:50\r\nX: y",
    ],
)
def test_any_other_url_is_refused_before_anything_is_sent(state, monkeypatch, url):
    monkeypatch.setenv("BRIDGE_BROKER_URL", url)
    with pytest.raises(exits.WrongUsage, match="only http://127"):
        choice.find_door(state)


def test_over_tcp_the_local_token_is_the_bearer_unless_an_agent_is_chosen(state, monkeypatch):
    places.write_private_file(places.local_token_file(state), "local-secret\n")
    with FakeHttp(("127.0.0.1", 0), [answer(200, []), answer(200, [])]) as daemon:
        monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{daemon.port}")
        door = choice.find_door(state)
        http.call(door, "GET", "/agents")
        http.call(door, "GET", "/agents", token="of-jerry")
    assert [got.bearer for got in daemon.got] == ["local-secret", "of-jerry"]
    assert f"http://{daemon.got[0].headers['host']}" == door.where


def test_the_default_is_the_socket_in_the_state_directory(state):
    door = choice.find_door(state)
    assert (door.family, door.address) == (socket.AF_UNIX, places.http_socket(state))


def test_a_state_directory_too_deep_for_a_socket_is_told_so():
    with pytest.raises(exits.DoorError, match="too long"):
        choice.find_door("/" + "x" * 120)


def test_the_named_agent_wins_over_the_environment(state, keep_token, monkeypatch):
    keep_token("Jerry", "of-jerry")
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", "of-environment")
    assert choice.chosen_token(state, "Jerry") == "of-jerry"
    assert choice.chosen_token(state, None) == "of-environment"


def test_the_environment_names_an_agent_by_handle(state, keep_token, monkeypatch):
    keep_token("Jerry", "of-jerry")
    monkeypatch.setenv("BRIDGE_AGENT_ID", "Jerry")
    assert choice.chosen_token(state, None) == "of-jerry"


def test_nobody_named_is_nobody(state):
    assert choice.chosen_token(state, None) is None


def test_a_handle_without_a_token_says_how_to_get_one(state):
    with pytest.raises(exits.NoIdentity) as caught:
        choice.chosen_token(state, "Jerry")
    assert "bridge-register --agent Jerry" in str(caught.value.hint)


def test_two_handles_that_differ_in_case_have_two_tokens(state, keep_token):
    keep_token("Jerry", "one")
    keep_token("jerry", "two")
    assert choice.stored_token(state, "Jerry") == "one"
    assert choice.stored_token(state, "jerry") == "two"


def test_a_token_that_others_can_read_is_not_used(state, keep_token):
    keep_token("Jerry", "of-jerry")
    os.chmod(places.token_file(state, "Jerry"), 0o644)
    with pytest.raises(exits.NoIdentity, match="open to other users"):
        choice.stored_token(state, "Jerry")


@pytest.mark.parametrize("token", ["a\r\nX-Evil: 1", "a b", "tökén"])
def test_a_token_that_would_break_a_header_is_not_used(state, keep_token, monkeypatch, token):
    keep_token("Jerry", token)
    with pytest.raises(exits.NoIdentity):
        choice.stored_token(state, "Jerry")
    monkeypatch.setenv("BRIDGE_AGENT_TOKEN", token)
    with pytest.raises(exits.NoIdentity):
        choice.environment_token()
