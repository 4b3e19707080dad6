"""Requests in one pass: what it reads is what the long way reads; what it does not read, the long way judges."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.wire import jsonrpc
from bascule.wire.jsonrpc import BadEnvelope, Request, Requests
from gabp import codec
from gabp.codec import MAX_DEPTH, BadJson


class Say(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    text: str
    more: object = None


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


METHODS = {"say": Say, "nothing": Nothing}
REQUESTS = Requests(METHODS)


def the_long_way(body: bytes):
    try:
        message = jsonrpc.parse(body)
        if not isinstance(message, Request):
            return None
        return message.id, message.method, codec.decode(message.params, METHODS[message.method])
    except (BadEnvelope, BadJson, KeyError):
        return None


def body(**changes) -> bytes:
    message = {"jsonrpc": "2.0", "id": 7, "method": "say", "params": {"text": "hi"}} | changes
    return json.dumps({key: value for key, value in message.items() if value is not ...}).encode()


def test_a_request_is_read_with_its_params():
    assert REQUESTS.read(body()) == (7, "say", Say(text="hi"))
    assert REQUESTS.read(body(id="a", method="nothing", params={})) == ("a", "nothing", Nothing())


@pytest.mark.parametrize(
    "odd",
    [
        body(method="other"),
        body(id=...),
        body(id=None),
        body(id=True),
        body(jsonrpc="1.0"),
        body(extra=1),
        body(params={"text": 5}),
        body(params={"text": "hi", "typo": 1}),
        body(params=[]),
        body(params=...),
        body(method=...),
        b"[" + body() + b"]",
        body() + b"x",
        body()[:-1],
        b"\xff",
        b"",
        b'{"jsonrpc":"2.0","id":1,"method":"say","params":{"text":"\xff"}}',
        body(params={"text": "hi", "more": json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)}),
    ],
)
def test_everything_else_is_left_to_the_long_way(odd):
    assert REQUESTS.read(odd) is None


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(
    st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "x"]), _values, max_size=6),
    st.dictionaries(st.sampled_from(["text", "more", "x"]), _values, max_size=3),
    st.sampled_from(["say", "nothing", "other"]),
)
def test_both_ways_agree_on_whatever_they_both_read(fields, params, method):
    for message in (
        fields,
        fields | {"jsonrpc": "2.0", "id": 1, "method": method, "params": params},
        {"params": params, "method": method, "id": "x", "jsonrpc": "2.0"},
    ):
        text = json.dumps(message).encode()
        read = REQUESTS.read(text)
        if read is not None:
            assert read == the_long_way(text)
