"""Cards and addresses of agents elsewhere: what a stranger's server says, before anything is sent there."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.a2a.cards import ONCE, BadCard, BadUrl, card_url, check_url, read_card
from bascule.foundation.errors import BasculeError

HERE = "https://agents.example.org/.well-known/agent-card.json"


def card(**more):
    return {
        "name": "Weather",
        "description": "rain",
        "skills": [{"name": "rain"}],
        "supportedInterfaces": [interface()],
        **more,
    }


def interface(url="https://agents.example.org/rpc", binding="JSONRPC", version="1.0", **more):
    return {"url": url, "protocolBinding": binding, "protocolVersion": version, **more}


def read(value, origin=HERE):
    return read_card(json.dumps(value).encode(), origin)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("https://agents.example.org", HERE),
        ("https://agents.example.org/", HERE),
        ("https://agents.example.org/jerry", "https://agents.example.org/jerry/.well-known/agent-card.json"),
        ("https://agents.example.org/x/card.json", "https://agents.example.org/x/card.json"),
        ("http://127.0.0.1:5052/Jerry", "http://127.0.0.1:5052/Jerry/.well-known/agent-card.json"),
        ("http://[::1]:5052", "http://[::1]:5052/.well-known/agent-card.json"),
        ("http://localhost:1", "http://localhost:1/.well-known/agent-card.json"),
    ],
)
def test_where_a_card_is(given, found):
    assert card_url(given) == found


@pytest.mark.parametrize(
    "url",
    [
        "http://agents.example.org",
        "http://10.0.0.1",
        "http://169.254.169.254/latest",
        "http://localhost.example.org",
        "http://127.0.0.1.example.org",
        "http://0.0.0.0",
        "ftp://127.0.0.1",
        "file:///etc/passwd",
        "https://user:secret@example.org",
        "https://example.org?x=1",
        "https://example.org#x",
        "https://",
        "https://example.org:99999",
        "https://exam ple.org",
        "https://example.org\\@evil.org",
        "https://example.org/\r\nHost: evil",
        "//example.org",
        "",
    ],
)
def test_addresses_that_nothing_is_sent_to(url):
    with pytest.raises(BadUrl):
        check_url(url)


def test_the_newest_version_that_is_spoken_is_taken_and_json_rpc_first():
    chosen = read(
        card(
            supportedInterfaces=[
                interface(version="0.3"),
                interface(binding="GRPC"),
                interface(binding="HTTP+JSON"),
                interface(version="1.0.2", url="https://agents.example.org/new"),
            ]
        )
    )
    assert (chosen.endpoint, chosen.protocol, chosen.binding) == ("https://agents.example.org/new", "1.0", "JSONRPC")


def test_a_card_of_version_0_3():
    chosen = read(
        {
            "name": "Old",
            "url": "https://agents.example.org/grpc",
            "preferredTransport": "GRPC",
            "protocolVersion": "0.3.0",
            "additionalInterfaces": [{"url": "https://agents.example.org/a2a", "transport": "HTTP+JSON"}],
        }
    )
    assert (chosen.endpoint, chosen.protocol, chosen.binding) == ("https://agents.example.org/a2a", "0.3", "HTTP+JSON")


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example.org/rpc",
        "http://agents.example.org/rpc",
        "https://agents.example.org:8443/rpc",
        "http://127.0.0.1:5050/agents/register",
        "http://169.254.169.254/",
        "javascript:alert(1)",
        "",
    ],
)
def test_a_card_cannot_send_messages_and_tokens_to_another_place(url):
    with pytest.raises(BadCard, match="another address"):
        read(card(supportedInterfaces=[interface(url=url)]))


def test_an_interface_that_lies_elsewhere_is_passed_over_for_one_that_does_not():
    both = [interface(url="https://evil.example.org/rpc"), interface(binding="HTTP+JSON")]
    assert read(card(supportedInterfaces=both)).endpoint == "https://agents.example.org/rpc"


@pytest.mark.parametrize("value", [[], {}, {"name": ""}, {"name": "x"}, card(supportedInterfaces="x"), card(skills=3)])
def test_what_is_not_a_card_is_said_to_be_none(value):
    with pytest.raises(BadCard):
        read(value)


def test_a_card_that_changes_in_any_place_is_another_card_and_a_new_signature_is_not():
    known = read(card())
    assert read(dict(reversed(card().items()))).digest == known.digest
    assert read(card(signatures=[{"protected": "x", "signature": "y"}])).digest == known.digest
    for changed in (card(description="hail"), card(iconUrl="x"), card(supportedInterfaces=[interface(version="0.3")])):
        assert read(changed).digest != known.digest


def test_only_a_card_that_says_so_takes_a_message_id_once():
    assert not read(card()).once
    assert read(card(capabilities={"extensions": [{"uri": ONCE}]})).once


def test_what_a_card_says_is_shown_on_one_line_and_bounded():
    chosen = read(card(name="W\x1b[31m\n" * 100, description="x" * 10_000, skills=[{"name": "s"}] * 100))
    assert "\x1b" not in chosen.title
    assert "\n" not in chosen.title
    assert len(chosen.title) < 200
    assert len(chosen.description) < 600
    assert len(chosen.skills) == 16


@given(st.binary(max_size=300))
def test_any_bytes_are_a_card_or_refused_with_a_sentence(data):
    with pytest.raises(BasculeError):
        read_card(data, HERE)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_refused_with_a_sentence(text):
    try:
        url = check_url(text)
    except BadUrl:
        return
    assert url.scheme == "https" or url.hostname in ("localhost", "::1") or url.hostname.startswith("127.")
