"""wire.jsonrpc: envelopes in and out, and the code that a broken one is answered with."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.wire import jsonrpc
from bascule.wire.jsonrpc import (
    INVALID_REQUEST,
    PARSE_ERROR,
    BadEnvelope,
    Notification,
    Request,
    Response,
    RpcError,
)
from gabp import codec
from gabp.codec import MAX_ANSWER_DEPTH, MAX_DEPTH, BadJson, Raw

texts = st.text(st.characters(blacklist_categories=("Cs",)))
ids = st.integers() | texts
values = st.none() | st.booleans() | st.integers() | texts | st.lists(texts) | st.dictionaries(texts, texts)
params = st.lists(texts) | st.dictionaries(texts, values)


def refused(body: bytes | str) -> tuple[int, object]:
    with pytest.raises(BadEnvelope) as caught:
        jsonrpc.parse(body.encode() if isinstance(body, str) else body)
    assert caught.value.message
    return caught.value.code, caught.value.id


def read(raw: Raw | None) -> object:
    assert raw is not None
    return codec.decode(raw)


@settings(deadline=None, max_examples=50)
@given(ids, texts, params)
def test_a_request_reads_back_as_written(id_, method, value):
    body = jsonrpc.request(id_, method, codec.encode(value))
    message = jsonrpc.parse(body)

    assert isinstance(message, Request)
    assert (message.id, message.method, read(message.params)) == (id_, method, value)
    assert json.loads(body) == {"jsonrpc": "2.0", "id": id_, "method": method, "params": value}


@settings(deadline=None, max_examples=50)
@given(texts, params)
def test_a_notification_reads_back_as_written(method, value):
    body = jsonrpc.notification(method, codec.encode(value))
    message = jsonrpc.parse(body)

    assert isinstance(message, Notification)
    assert (message.method, read(message.params)) == (method, value)
    assert json.loads(body) == {"jsonrpc": "2.0", "method": method, "params": value}


@settings(deadline=None, max_examples=50)
@given(ids, values)
def test_a_response_reads_back_as_written(id_, value):
    body = jsonrpc.response(id_, codec.encode(value))
    message = jsonrpc.parse(body)

    assert isinstance(message, Response)
    assert (message.id, read(message.result), message.error) == (id_, value, None)
    assert json.loads(body) == {"jsonrpc": "2.0", "id": id_, "result": value}


@settings(deadline=None, max_examples=50)
@given(ids | st.none(), st.integers(-(2**40), 2**40), texts, values)
def test_an_error_response_reads_back_as_written(id_, code, text, data):
    message = jsonrpc.parse(jsonrpc.error_response(id_, code, text, data))

    assert message == Response(id_, None, RpcError(code, text, data))


def test_an_error_without_data_says_nothing_about_data():
    assert json.loads(jsonrpc.error_response(1, -32601, "no such method")) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -32601, "message": "no such method"},
    }


@settings(deadline=None, max_examples=200)
@given(
    st.binary()
    | st.fixed_dictionaries(
        {},
        optional={
            "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
            "id": ids | st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans(),
            "method": texts | st.integers(),
            "params": values,
            "result": values,
            "error": st.none() | st.fixed_dictionaries({}, optional={"code": ids, "message": ids, "data": values}),
            "extra": values,
        },
    ).map(lambda message: json.dumps(message).encode())
)
def test_any_body_is_a_message_or_refused_with_a_code(body):
    code = None
    try:
        message: object = jsonrpc.parse(body)
    except BadEnvelope as error:
        code = error.code
        message = jsonrpc.parse(jsonrpc.error_response(error.id, error.code, error.message))

    assert code in (None, PARSE_ERROR, INVALID_REQUEST)
    assert isinstance(message, (Request, Notification, Response))


def test_missing_params_are_an_empty_object():
    asked = jsonrpc.parse(b'{"jsonrpc":"2.0","id":1,"method":"m"}')
    notification = jsonrpc.parse(b'{"jsonrpc":"2.0","method":"m"}')

    assert isinstance(asked, Request)
    assert isinstance(notification, Notification)
    assert bytes(asked.params) == bytes(notification.params) == b"{}"


def test_a_result_of_null_is_a_result():
    message = jsonrpc.parse(b'{"jsonrpc":"2.0","id":1,"result":null}')

    assert isinstance(message, Response)
    assert read(message.result) is None
    assert message.result is not None


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', b"\xef\xbb\xbf{}"]
)
def test_what_is_not_json_is_a_parse_error_without_id(body):
    assert refused(body) == (PARSE_ERROR, None)


@pytest.mark.parametrize(
    "rest",
    [
        '"method":"m"',
        '"jsonrpc":"1.0","method":"m"',
        '"jsonrpc":2.0,"method":"m"',
        '"jsonrpc":"2.0","method":1',
        '"jsonrpc":"2.0","method":null',
        '"jsonrpc":"2.0","method":"m","params":1',
        '"jsonrpc":"2.0","method":"m","params":null',
        '"jsonrpc":"2.0","method":"m","params":"{}"',
        '"jsonrpc":"2.0","method":"m","result":1',
        '"jsonrpc":"2.0","method":"m","error":{"code":1,"message":""}',
        '"jsonrpc":"2.0","method":"m","extra":1',
        '"jsonrpc":"2.0"',
        '"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""}',
        '"jsonrpc":"2.0","result":1,"params":{}',
        '"jsonrpc":"2.0","error":null',
        '"jsonrpc":"2.0","error":{"code":"1","message":""}',
        '"jsonrpc":"2.0","error":{"code":1}',
    ],
)
def test_json_that_is_no_message_is_an_invalid_request_with_the_id_it_had(rest):
    assert refused('{"id":"abc",' + rest + "}") == (INVALID_REQUEST, "abc")
    assert refused('{"id":7,' + rest + "}") == (INVALID_REQUEST, 7)


@pytest.mark.parametrize("bad_id", ["null", "1.5", "true", "[]", "{}"])
def test_the_id_of_a_request_is_a_string_or_an_integer(bad_id):
    assert refused('{"jsonrpc":"2.0","method":"m","id":' + bad_id + "}") == (INVALID_REQUEST, None)
    assert refused('{"jsonrpc":"2.0","result":1,"id":' + bad_id + "}") == (INVALID_REQUEST, None)


def test_an_error_that_answers_an_unreadable_request_has_no_id():
    assert jsonrpc.parse(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}') == Response(
        None, None, RpcError(PARSE_ERROR, "x")
    )


@pytest.mark.parametrize("body", ["[]", ' [{"jsonrpc":"2.0","id":1,"method":"m"}]'])
def test_a_batch_is_refused_by_name(body):
    with pytest.raises(BadEnvelope, match="batches are not supported") as caught:
        jsonrpc.parse(body.encode())

    assert (caught.value.code, caught.value.id) == (INVALID_REQUEST, None)


@pytest.mark.parametrize("body", ["1", '"text"', "null", "{}"])
def test_other_json_is_an_invalid_request(body):
    assert refused(body) == (INVALID_REQUEST, None)


def test_a_frame_is_checked_whole_so_that_raw_params_are_sound_text():
    assert refused(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\xff"}}') == (PARSE_ERROR, None)
    assert refused(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\ud800"}}') == (PARSE_ERROR, None)


def test_params_that_only_their_decoder_can_judge_are_refused_there():
    message = jsonrpc.parse(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1e400}}')

    assert isinstance(message, Request)
    with pytest.raises(BadJson, match="out of range"):
        codec.decode(message.params)


def test_the_envelope_leaves_room_around_params_of_full_depth():
    def body(levels: int) -> bytes:
        return jsonrpc.request(1, "m", b"[" * levels + b"]" * levels)

    message = jsonrpc.parse(body(MAX_DEPTH))
    deeper = jsonrpc.parse(body(MAX_DEPTH + 1))

    assert isinstance(message, Request)
    assert isinstance(deeper, Request)
    codec.decode(message.params)
    with pytest.raises(BadJson, match="deeper than 64 levels"):
        codec.decode(deeper.params)
    assert refused(body(MAX_ANSWER_DEPTH)) == (INVALID_REQUEST, None)


def test_an_id_cannot_break_out_of_its_place():
    hostile = '","result":{"admin":true},"x":"'

    assert json.loads(jsonrpc.response(hostile, b"{}")) == {"jsonrpc": "2.0", "id": hostile, "result": {}}
