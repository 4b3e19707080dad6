"""wire.gabp: envelopes in and out, strict and compat, and every way a message can be none."""

import json

import pytest
from cutting import cuts, pieces, single_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from gabp import envelopes
from gabp.content_length import FrameTooLarge, frame
from gabp.envelopes import BadMessage, BrokenStream, Event, Mode, Reader, Request, Response, parse

ID = "550e8400-e29b-41d4-a716-446655440000"
CODES = {-32700, -32600, -32200, -32201, -32202, -32203}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def body(**fields) -> bytes:
    return json.dumps({"v": "gabp/1", "id": ID, **fields}).encode()


def refusal(text: bytes, mode: Mode = Mode.COMPAT) -> BadMessage:
    with pytest.raises(BadMessage) as caught:
        parse(text, mode)
    return caught.value


# -- what we write ------------------------------------------------------------------------------


@pytest.mark.req("GABP-2.1-1", "GABP-2.1-6")
@settings(deadline=None)
@given(json_values)
def test_what_we_write_is_ascii_and_reads_back_strictly_as_it_was(value):
    frames = (
        envelopes.request(ID, "tools/call", envelopes.to_json({"arguments": value}))
        + envelopes.response(ID, envelopes.to_json(value))
        + envelopes.error_response(ID, -32402, "failed \u00e9", value)
        + envelopes.event(ID, "a/b", 7, envelopes.to_json(value))
    )
    assert frames.isascii()
    request, response, error, event = Reader(Mode.STRICT).feed(frames)

    assert json.loads(bytes(request.params)) == {"arguments": value}
    assert json.loads(bytes(response.result)) == value
    assert (error.error.code, error.error.message, error.error.data) == (-32402, "failed \u00e9", value)
    assert (event.channel, event.seq, json.loads(bytes(event.payload))) == ("a/b", 7, value)


@pytest.mark.req("GABP-2.1-4", "GABP-2.1-5")
def test_both_headers_are_written_in_the_spelling_of_the_specification():
    text = envelopes.response(ID, b"null")
    assert text.startswith(b"Content-Length: ")
    assert b"\r\nContent-Type: application/json\r\n\r\n" in text


@pytest.mark.req("GABP-ENV-8")
def test_integers_of_any_size_and_the_data_of_errors_survive():
    (answer,) = Reader().feed(envelopes.error_response(ID, 1, "x", {"big": 2**100, "none": None}))
    assert answer.error.data == {"big": 2**100, "none": None}


@pytest.mark.req("GABP-ENV-8")
def test_characters_beyond_the_basic_plane_are_written_as_surrogate_pairs():
    assert envelopes.to_json({"\u00e9": "\U0001f600"}) == b'{"\\u00e9":"\\ud83d\\ude00"}'


@pytest.mark.req("GABP-2.1-2")
def test_the_length_of_the_specifications_own_example_is_wrong_and_ours_is_right():
    example = (
        b'{"v":"gabp/1","id":"550e8400-e29b-41d4-a716-446655440000","type":"request",'
        b'"method":"session/hello","params":{"token":"abc123","bridgeVersion":"1.0.0"}}'
    )
    assert len(example) == 152
    # With the printed length the reader waits for four more bytes, and would read them from the next header.
    assert Reader().feed(b"Content-Length: 156\r\nContent-Type: application/json\r\n\r\n" + example) == []
    (request,) = Reader(Mode.STRICT).feed(frame(example, content_type="application/json"))
    assert request.method == "session/hello"


# -- what we read -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"type": "request", "method": "tools/list"}, Request),
        ({"type": "request", "method": "tools/list", "params": {}}, Request),
        ({"type": "response", "result": None}, Response),
        ({"type": "response", "result": 5}, Response),
        ({"type": "response", "error": {"code": 1, "message": "x"}}, Response),
        ({"type": "event", "channel": "c", "seq": 0, "payload": None}, Event),
    ],
)
def test_what_the_envelope_schema_allows_is_taken_in_both_modes(mode, fields, kind):
    assert isinstance(parse(body(**fields), mode), kind)


# Each is sent by a peer that exists; see docs/decisions.md.
TOLERATED = [
    body(type="response", result=None, error={"code": 1, "message": "x"}),
    body(type="response", result=5, error=None),
    body(type="response", result=None, error=None),
    body(type="response", result=5, more=1),
    body(type="response", error={"code": 1, "message": "x", "stack": "..."}),
    body(type="event", channel="c", seq=1, payload=1, timestamp="2025-01-02T10:30:00.1234567Z"),
    body(type="request", method="minecraft/world/get_blocks"),
    body(type="request", method="tools/list", jsonrpc="2.0"),
    body(type="request", method="tools/list").replace(ID.encode(), b"17"),
]


@pytest.mark.req("GABP-2.3-3", "DEC-GABP-2", "GABP-MET-11")
@pytest.mark.parametrize("text", TOLERATED)
def test_what_real_peers_send_is_taken_in_compat_and_refused_in_strict(text):
    parse(text, Mode.COMPAT)
    assert refusal(text, Mode.STRICT).code in CODES


@pytest.mark.req("GABP-ENV-5")
def test_an_error_beside_a_null_result_is_the_error_and_two_nulls_are_a_success():
    error = parse(TOLERATED[0])
    assert error.error.code == 1
    nothing = parse(TOLERATED[2])
    assert bytes(nothing.result) == b"null"
    assert not isinstance(nothing.error, envelopes.ErrorBody)


@pytest.mark.req("GABP-2.3-2", "GABP-ENV-1", "GABP-ENV-2", "GABP-ERR-1", "GABP-ENV-6")
@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (b"", -32700, "empty"),
        (b"{", -32700, "cut short"),
        (b"\xff", -32700, "UTF-8"),
        (b'"\xc3\x28"', -32700, "UTF-8"),
        (b"\xef\xbb\xbf{}", -32700, "byte order mark"),
        (b"[" * 100_000, -32700, ""),
        (b'{"v":"gabp/1","a":' + b"[" * 80 + b"]" * 80 + b"}", -32700, "nested"),
        (b"[]", -32600, "object, not an array"),
        (b"null", -32600, "object, not null"),
        (b"{}", -32202, "`v` is missing"),
        (b'{"v":"gabp/2","id":"a","type":"request","method":"a/b"}', -32200, 'gabp/2"; this side speaks gabp/1'),
        (b'{"v":1,"id":"a","type":"request","method":"a/b"}', -32200, "`v` is 1"),
        (body(type="batch"), -32201, 'not "batch"'),
        (body(type=["request"]), -32201, "`type` must be"),
        (body(), -32202, "`type` is missing"),
        (b'{"v":"gabp/1","type":"request","method":"a/b"}', -32202, "`id` is missing"),
        (body(type="request"), -32202, "needs `method`"),
        (body(type="event", channel="c", seq=1), -32202, "needs `payload`"),
        (body(type="event", channel="c", payload=1), -32202, "needs `seq`"),
        (body(type="response"), -32202, "needs `result` or `error`"),
        (body(type="response", result=1, error={"code": 1, "message": "x"}), -32600, "exactly one"),
        (body(type="request", method="List Tools"), -32203, "like tools/call"),
        (body(type="request", method="tools"), -32203, "like tools/call"),
        (body(type="request", method="a/b", params=[1]), -32203, "must be an object"),
        (body(type="request", method="a/" + "b" * 300), -32203, "like tools/call"),
        (body(type="event", channel="", seq=1, payload=1), -32203, "`channel`"),
        (body(type="event", channel="c", seq=-1, payload=1), -32203, "`seq`"),
        (body(type="event", channel="c", seq=1.5, payload=1), -32203, "`seq`"),
        (body(type="response", error={"code": "x", "message": "y"}), -32203, "`error.code`"),
        (body(type="request", method="a/b").replace(ID.encode(), b"x" * 200), -32203, "`id` must have"),
    ],
)
def test_what_is_no_message_is_refused_with_a_code_of_the_registry_and_a_reason(text, code, words):
    bad = refusal(text)
    assert bad.code == code
    assert words in bad.message
    assert bad.fatal == (code == -32700)


def test_a_bad_message_keeps_the_id_that_an_answer_to_it_needs():
    assert refusal(body(type="request")).id == ID
    assert refusal(b"{}").id == envelopes.NIL_ID
    numbered = body(type="request").replace(ID.encode(), b"17")
    assert refusal(numbered, Mode.COMPAT).id == "17"
    assert refusal(numbered, Mode.STRICT).id == envelopes.NIL_ID
    assert refusal(body(type="response")).type == "response"


@pytest.mark.req("GABP-2.1-3", "GABP-ENV-7")
def test_strict_mode_wants_a_uuid_known_fields_and_the_content_type():
    assert refusal(body(type="request", method="a/b").replace(ID.encode(), b"17"), Mode.STRICT).code == -32203
    assert refusal(body(type="request", method="a/b", extra=1), Mode.STRICT).code == -32600
    with pytest.raises(BrokenStream, match="Content-Type"):
        Reader(Mode.STRICT).feed(frame(body(type="request", method="a/b")))
    Reader(Mode.COMPAT).feed(frame(body(type="request", method="a/b")))


@pytest.mark.req("GABP-7.1-2")
def test_a_frame_above_the_limit_is_refused_by_its_header_alone():
    with pytest.raises(BrokenStream) as caught:
        Reader(max_body_bytes=1000).feed(b"Content-Length: 1001\r\n\r\n")
    assert isinstance(caught.value.error, FrameTooLarge)


@pytest.mark.req("GABP-2.3-1")
@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from([*TOLERATED, b"[]", b"{", b"\xff", b"null"]), max_size=5), cuts, st.sampled_from(Mode))
def test_the_same_messages_come_out_however_the_stream_is_cut(bodies, places, mode):
    stream = b"".join(frame(each, content_type="application/json") for each in bodies)
    whole = [shown(each) for each in Reader(mode).feed(stream)]

    for parts in (pieces(stream, places), single_bytes(stream)):
        reader = Reader(mode)
        assert [shown(each) for part in parts for each in reader.feed(part)] == whole


@settings(deadline=None, max_examples=300)
@given(
    st.binary(max_size=60)
    | json_values.map(lambda value: json.dumps(value).encode())
    | st.fixed_dictionaries(
        {},
        optional={
            "v": st.just("gabp/1") | json_values,
            "id": st.just(ID) | json_values,
            "type": st.sampled_from(["request", "response", "event"]) | json_values,
            "method": st.just("a/b") | json_values,
            "params": json_values,
            "result": json_values,
            "error": st.just({"code": 1, "message": "x"}) | json_values,
            "channel": json_values,
            "seq": json_values,
            "payload": json_values,
        },
    ).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(Mode),
)
def test_any_body_is_a_message_or_is_refused_with_a_documented_code(text, mode):
    found: object
    try:
        found = parse(text, mode)
    except BadMessage as bad:
        found = bad
    assert isinstance(found, Request | Response | Event | BadMessage)
    assert not isinstance(found, BadMessage) or (found.code in CODES and found.message)


def shown(message: object) -> object:
    if isinstance(message, BadMessage):
        return (message.code, message.message)
    return json.dumps(
        [bytes(value).decode() if isinstance(value, envelopes.Raw) else str(value) for value in vars_of(message)]
    )


def vars_of(message: object) -> list[object]:
    return [getattr(message, name) for name in message.__struct_fields__]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.text(alphabet='\\"/u0\n\x00\x7f\u00e9\U0001f600'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_text_without_escapes_means_the_same_and_is_never_longer(value):
    escaped = json.dumps(value).encode()
    text = envelopes.utf8_text(escaped)
    assert json.loads(text) == value
    assert len(text) <= len(escaped)
    # Nothing is escaped that need not be.
    assert envelopes.ascii_text(text).isascii()
    assert envelopes.utf8_text(text) == text


def test_text_with_very_many_escapes_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(envelopes, "MAX_UNESCAPED_STRINGS", 3)
    many, few = json.dumps(["\u00e9"] * 4).encode(), json.dumps("\u00e9" * 1_000).encode()
    assert envelopes.utf8_text(many) == many
    assert envelopes.utf8_text(few) == json.dumps("\u00e9" * 1_000, ensure_ascii=False).encode()
