"""Both ends of a GABP session against each other, against scripts, and against noise. No socket anywhere."""

import json
import random
import uuid
from itertools import product

import msgspec
import pytest
from scripted_mod import TOOL
from two_ends import LAUNCH, TOKEN, WELCOME, hello, message, notes_of, opened

from gabp import envelopes, messages
from gabp.bridge_session import Answered, BridgeSession, Came, Refused, Welcomed
from gabp.envelopes import Mode, to_json
from gabp.errors import LIB_GAB_CODES, MEANINGS, ErrorCode, RequestTooLarge, TooManyRequests, from_peer
from gabp.mod_session import Asked, Greeted, ModSession, arguments_of
from gabp.session import Broken, Noted, SessionLimits
from gabp.states import REFUSALS, TRANSITIONS, IllegalMove, Move, Side, State, after

# -- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "side", "move"), list(product(State, Side, Move)))
def test_every_cell_of_the_table_is_legal_or_refused(state, side, move):
    following = after(state, side, move)
    assert (following is not None) == ((side, move) in TRANSITIONS[state])
    if following is None:
        # Our own code is stopped before it sends; a bridge's illegal request has an answer.
        session = (BridgeSession if side is Side.BRIDGE else ModSession)()
        session.state = state
        with pytest.raises(IllegalMove):
            session._move(move)
        assert session.take() == b""
        if side is Side.BRIDGE and move in (Move.HELLO, Move.REQUEST) and state is not State.CLOSED:
            assert (state, move) in REFUSALS


def test_a_closed_session_stays_closed_whatever_comes():
    bridge, mod = opened()
    mod.end()
    bridge.request(messages.TOOLS_LIST, b"{}")
    assert mod.receive(bridge.take()) == []
    assert mod.take() == b""


# -- greeting -----------------------------------------------------------------------------------


@pytest.mark.req("GABP-3.1-2", "GABP-MET-1")
@pytest.mark.parametrize("mode", Mode)
def test_hello_is_answered_with_welcome_in_both_modes(mode):
    bridge, mod = opened(mode)
    assert bridge.state is mod.state is State.OPEN
    assert bridge.welcome.app.name == "Arena"


@pytest.mark.req("GABP-MET-9")
def test_a_request_before_hello_is_refused_and_the_session_stays_usable():
    mod = ModSession()
    assert mod.receive(message(type="request", method="tools/list")) == []
    assert [code for _, code in notes_of(mod)] == [ErrorCode.AUTHENTICATION_REQUIRED]
    assert isinstance(mod.receive(message(type="request", method="session/hello", params={"token": TOKEN}))[0], Greeted)


def test_a_second_hello_is_refused():
    _, mod = opened()
    mod.receive(message(type="request", method="session/hello", params=json.loads(to_json(hello()))))
    assert [code for _, code in notes_of(mod)] == [ErrorCode.INVALID_REQUEST]
    assert mod.state is State.OPEN


def test_a_refused_hello_closes_the_session_at_both_ends():
    bridge, mod = BridgeSession(), ModSession()
    bridge.hello(hello())
    mod.receive(bridge.take())
    mod.refuse(ErrorCode.AUTHENTICATION_FAILED, "wrong token")
    (refused,) = bridge.receive(mod.take())
    assert isinstance(refused, Refused)
    assert refused.error.code == ErrorCode.AUTHENTICATION_FAILED
    assert bridge.state is mod.state is State.CLOSED


@pytest.mark.parametrize(
    "params",
    [
        {"token": "short", "bridgeVersion": "1", "platform": "linux", "launchId": LAUNCH},
        {"token": TOKEN, "bridgeVersion": "1", "platform": "darwin", "launchId": LAUNCH},
        {"token": TOKEN, "bridgeVersion": "1", "platform": "linux"},
        {"token": TOKEN, "bridgeVersion": "1", "platform": "linux", "launchId": "session-1"},
        {"token": TOKEN, "bridgeVersion": "1", "platform": "linux", "launchId": LAUNCH, "extra": 1},
    ],
)
def test_hellos_of_real_bridges_are_taken_in_compat_and_refused_in_strict(params):
    request = message(type="request", method="session/hello", params=params)
    assert isinstance(ModSession(Mode.COMPAT).receive(request)[0], Greeted)
    strict = ModSession(Mode.STRICT)
    assert strict.receive(request) == []
    assert [code for _, code in notes_of(strict)] == [ErrorCode.INVALID_PARAMS]


@pytest.mark.parametrize("result", [{}, {"agentId": "x"}, {"app": {"name": "x", "version": "1"}}])
def test_a_poor_welcome_is_taken_in_compat_and_refused_in_strict(result):
    for mode, kind in ((Mode.COMPAT, Welcomed), (Mode.STRICT, Refused)):
        bridge = BridgeSession(mode)
        bridge.hello(hello())
        (request,) = envelopes.Reader().feed(bridge.take())
        (happened,) = bridge.receive(envelopes.response(request.id, to_json(result)))
        assert isinstance(happened, kind)


@pytest.mark.req("GABP-SEC-1")
def test_the_token_is_in_no_printed_form_of_hello():
    assert TOKEN not in repr(hello())
    assert TOKEN not in repr(Greeted("id", hello()))


# -- requests -----------------------------------------------------------------------------------


@pytest.mark.req("GABP-ENV-3", "GABP-ENV-4")
def test_answers_find_their_requests_in_any_order():
    bridge, mod = opened()
    ids = [bridge.request(messages.TOOLS_CALL, to_json({"name": "a/b", "arguments": {"n": n}})) for n in range(20)]
    asked = mod.receive(bridge.take())
    random.Random(1).shuffle(asked)
    for each in asked:
        mod.answer(each.id, bytes(arguments_of(each.params)))
    answers = {each.id: json.loads(bytes(each.value)) for each in bridge.receive(mod.take())}
    assert answers == {id_: {"n": n} for n, id_ in enumerate(ids)}


def test_a_request_is_answered_once():
    bridge, mod = opened()
    bridge.request(messages.TOOLS_LIST, b"{}")
    (asked,) = mod.receive(bridge.take())
    mod.answer(asked.id, b'{"tools":[]}')
    mod.fail(asked.id, -32603, "again")
    assert len(notes_of(mod)) == 1


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/destroy", {}, ErrorCode.METHOD_NOT_FOUND),
        ("session/welcome", {}, ErrorCode.METHOD_NOT_FOUND),
        ("tools/call", {}, ErrorCode.INVALID_PARAMS),
        ("tools/call", {"name": 5}, ErrorCode.INVALID_PARAMS),
        ("events/subscribe", {"channels": "a"}, ErrorCode.INVALID_PARAMS),
        ("resources/read", {}, ErrorCode.INVALID_PARAMS),
        ("state/set", {"updates": []}, ErrorCode.INVALID_PARAMS),
        ("attention/ack", {}, ErrorCode.INVALID_PARAMS),
    ],
)
def test_a_request_that_is_not_what_the_method_takes_never_reaches_the_game(method, params, code):
    _, mod = opened()
    assert mod.receive(message(type="request", method=method, params=params)) == []
    assert [answer for _, answer in notes_of(mod)] == [code]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "NoSlash"}),
        ("tools/call", {"name": "a/b", "parameters": {}}),
        ("tools/list", {"cursor": 1}),
        ("events/subscribe", {"channels": []}),
        ("events/subscribe", {"channels": ["a", "a"]}),
        ("resources/read", {"uri": "not a uri"}),
    ],
)
def test_a_strict_mod_checks_the_published_schema(method, params):
    _, mod = opened(Mode.STRICT)
    assert mod.receive(message(type="request", method=method, params=params)) == []
    assert [answer for _, answer in notes_of(mod)] == [ErrorCode.INVALID_PARAMS]
    _, mod = opened(Mode.COMPAT)
    assert isinstance(mod.receive(message(type="request", method=method, params=params))[0], Asked)


@pytest.mark.req("GABP-MET-3")
def test_arguments_are_found_under_the_name_gabs_gives_them():
    _, mod = opened(Mode.COMPAT)
    (asked,) = mod.receive(message(type="request", method="tools/call", params={"name": "a/b", "parameters": {"x": 1}}))
    assert bytes(arguments_of(asked.params)) == b'{"x": 1}'


@pytest.mark.req("GABP-SEC-2")
def test_more_requests_than_a_mod_takes_are_refused_as_not_executed():
    mod = ModSession(limits=SessionLimits(max_in_flight=3))
    mod.receive(message(type="request", method="session/hello", params={"token": TOKEN}))
    mod.welcome(WELCOME)
    mod.take()
    happened = mod.receive(b"".join(message(type="request", method="tools/list") for _ in range(5)))
    assert len(happened) == 3
    assert [code for _, code in notes_of(mod)] == [ErrorCode.TOOL_UNAVAILABLE] * 2


@pytest.mark.req("GABP-MET-10")
def test_a_bridge_keeps_to_the_mods_own_limits():
    limits = messages.Limits(max_message_size=2048, max_concurrent_requests=2)
    welcome = messages.Welcome(
        agent_id="a",
        app=messages.App(name="a", version="1"),
        capabilities=messages.Capabilities(limits=limits, methods=["tools/list"]),
        schema_version="1.0",
    )
    bridge, _ = opened(welcome=welcome)
    assert bridge.max_concurrent == 2
    assert bridge.offers("tools/list")
    assert not bridge.offers("state/get")
    with pytest.raises(RequestTooLarge, match="over the game's limit of 2048"):
        bridge.request(messages.TOOLS_CALL, b'{"a":"' + b"x" * 3000 + b'"}')


@pytest.mark.parametrize("name", [messages.OUR_SERVER_NAME, "Lib.GAB"])
def test_a_request_that_fits_only_without_escapes_reaches_a_mod_that_counts_bytes(name):
    """400,000 letters: 0.8 MB, and 2.4 MB with escapes. Lib.GAB waits for characters where the frame counts bytes."""
    bridge, mod = opened(welcome=msgspec.structs.replace(WELCOME, server_info=messages.ServerInfo(name=name)))
    params = to_json({"name": "a/b", "arguments": {"text": "é" * 400_000}})
    assert len(params) > 2_400_000
    if name == "Lib.GAB":
        with pytest.raises(RequestTooLarge):
            bridge.request(messages.TOOLS_CALL, params)
        return
    bridge.request(messages.TOOLS_CALL, params)
    (asked,) = mod.receive(bridge.take())
    assert bytes(asked.params.arguments).decode() == '{"text":"' + "é" * 400_000 + '"}'
    # And what fits as it is has escapes, whoever reads it.
    bridge.request(messages.TOOLS_CALL, to_json({"name": "a/b", "arguments": {"text": "é"}}))
    assert bridge.take().isascii()


def test_a_bridge_does_not_pile_up_requests():
    bridge, _ = opened(limits=SessionLimits(max_in_flight=2))
    for _ in range(2):
        bridge.request(messages.TOOLS_LIST, b"{}")
    with pytest.raises(TooManyRequests):
        bridge.request(messages.TOOLS_LIST, b"{}")


def test_a_late_answer_to_a_call_given_up_is_let_pass():
    bridge, mod = opened()
    id_ = bridge.request(messages.TOOLS_CALL, to_json({"name": "a/b"}))
    mod.receive(bridge.take())
    bridge.forget(id_)
    mod.answer(id_, b"1")
    assert bridge.receive(mod.take()) == []


def test_an_answer_to_nothing_ends_a_strict_session_and_is_noted_in_a_compat_one():
    for mode, kind in ((Mode.COMPAT, Noted), (Mode.STRICT, Broken)):
        bridge, _ = opened(mode)
        (happened,) = bridge.receive(envelopes.response(str(uuid.uuid4()), b"1"))
        assert isinstance(happened, kind)


@pytest.mark.req("GABP-ENV-6")
@pytest.mark.parametrize("kind", ["request", "event"])
def test_what_only_the_other_side_sends_is_never_dispatched(kind):
    fields = {"method": "a/b"} if kind == "request" else {"channel": "c", "seq": 1, "payload": 1}
    bridge, mod = opened(Mode.COMPAT)
    if kind == "request":
        assert isinstance(bridge.receive(message(type=kind, **fields))[0], Noted)
    else:
        assert isinstance(mod.receive(message(type=kind, **fields))[0], Noted)
        # An event is nobody's question.
        assert mod.take() == b""


def test_an_answer_of_another_shape_fails_its_call_alone():
    bridge, mod = opened()
    id_ = bridge.request(messages.TOOLS_LIST, b"{}")
    mod.receive(bridge.take())
    mod.answer(id_, b'{"tools":7}')
    (answered,) = bridge.receive(mod.take())
    assert isinstance(answered, Answered)
    assert answered.error.executed == "yes"
    assert bridge.state is State.OPEN


@pytest.mark.req("DEC-GABP-8")
def test_cancelling_is_a_request_of_its_own_and_only_where_it_is_announced():
    bridge, mod = opened()
    id_ = bridge.request(messages.TOOLS_CALL, to_json({"name": "a/b"}))
    assert bridge.cancel(id_)
    _, cancelled = mod.receive(bridge.take())
    assert (cancelled.method, cancelled.params.request_id) == (messages.TOOLS_CANCEL, id_)
    plain = messages.Welcome(
        agent_id="a",
        app=messages.App(name="a", version="1"),
        capabilities=messages.Capabilities(),
        schema_version="1.0",
    )
    bridge, _ = opened(welcome=plain)
    assert not bridge.cancel(bridge.request(messages.TOOLS_CALL, to_json({"name": "a/b"})))


@pytest.mark.req("GABP-ERR-3")
def test_errors_keep_their_data_and_lib_gabs_codes_become_the_registrys():
    bridge, mod = opened(Mode.COMPAT)
    id_ = bridge.request(messages.TOOLS_CALL, to_json({"name": "a/b"}))
    mod.receive(bridge.take())
    mod.fail(id_, -31002, "no such tool", {"big": 2**80})
    (answered,) = bridge.receive(mod.take())
    error = answered.error
    assert (error.code, error.peer_code, error.data) == (ErrorCode.TOOL_NOT_FOUND, -31002, {"big": 2**80})
    assert error.executed == "no"
    assert set(MEANINGS) == set(ErrorCode)
    assert set(LIB_GAB_CODES.values()) <= set(ErrorCode)


@pytest.mark.req("GAME-CALL-3")
@pytest.mark.parametrize(
    ("code", "data", "executed"),
    [
        (-32402, None, "yes"),
        (-32402, {"executed": False}, "no"),
        (-32602, None, "no"),
        (-32603, None, "yes"),
        (5, None, "yes"),
    ],
)
def test_whether_a_failed_call_ran_is_reported_as_far_as_it_is_known(code, data, executed):
    assert from_peer(code, "x", data).executed == executed


# -- events -------------------------------------------------------------------------------------


def came(bridge: BridgeSession, *events: tuple[str, int]) -> list[tuple[str, int, int]]:
    data = b"".join(envelopes.event(str(uuid.uuid4()), channel, seq, b"1") for channel, seq in events)
    return [(each.channel, each.seq, each.missed) for each in bridge.receive(data) if isinstance(each, Came)]


@pytest.mark.req("GABP-EVT-1", "GABP-EVT-2")
def test_events_come_in_order_and_gaps_are_counted_per_channel():
    bridge, _ = opened()
    bridge.subscribe(["a", "b"])
    assert came(bridge, ("a", 5), ("b", 1), ("a", 6), ("a", 9), ("b", 2)) == [
        ("a", 5, 0),
        ("b", 1, 0),
        ("a", 6, 0),
        ("a", 9, 2),
        ("b", 2, 0),
    ]


@pytest.mark.req("GABP-EVT-3")
def test_the_first_event_seen_is_where_counting_begins():
    bridge, _ = opened()
    bridge.subscribe(["a"])
    assert came(bridge, ("a", 1000)) == [("a", 1000, 0)]


def test_an_event_that_goes_back_ends_a_strict_session_and_is_noted_in_a_compat_one():
    bridge, _ = opened(Mode.COMPAT)
    bridge.subscribe(["a"])
    assert came(bridge, ("a", 5), ("a", 4), ("a", 5)) == [("a", 5, 0), ("a", 4, 0), ("a", 5, 0)]
    bridge, _ = opened(Mode.STRICT)
    bridge.subscribe(["a"])
    assert came(bridge, ("a", 5), ("a", 4), ("a", 6)) == [("a", 5, 0)]
    assert bridge.state is State.CLOSED


def test_what_nobody_subscribed_to_is_dropped():
    bridge, _ = opened()
    bridge.subscribe(["a/*"])
    assert came(bridge, ("b", 1), ("a/x", 1), ("ab", 1)) == [("a/x", 1, 0)]
    bridge.unsubscribe(["a/*"])
    assert came(bridge, ("a/x", 2)) == []
    assert bridge.seen == {}


def test_after_a_reconnect_to_the_same_mod_lost_events_are_counted():
    first, _ = opened()
    first.subscribe(["a", "b"])
    came(first, ("a", 5), ("b", 5))
    second, _ = opened(seen=first.seen)
    second.subscribe(["a", "b"])
    # Of channel a three were missed; b began to count anew: its mod was restarted.
    assert came(second, ("a", 9), ("b", 0), ("b", 1)) == [("a", 9, 3), ("b", 0, 0), ("b", 1, 0)]


ITEM = {
    "attentionId": "a",
    "state": "open",
    "severity": "error",
    "blocking": True,
    "stateInvalidated": False,
    "summary": "look",
    "openedAtSequence": 1,
    "latestSequence": 1,
    "totalUrgentEntries": 1,
}


@pytest.mark.parametrize(
    "payload",
    [
        5,
        None,
        {name: value for name, value in ITEM.items() if name != "blocking"},
        {**ITEM, "blocking": "yes"},
        {**ITEM, "attentionId": ""},
        {**ITEM, "summary": ""},
        {**ITEM, "extra": 1},
    ],
)
def test_an_attention_event_that_is_none_ends_a_strict_session_and_is_an_event_in_a_compat_one(payload):
    event = message(type="event", channel="attention/opened", seq=0, payload=payload)
    strict, compat = opened()[0], opened(Mode.COMPAT)[0]
    for bridge in (strict, compat):
        bridge.subscribe(["attention/*"])
    (broken,) = strict.receive(event)
    assert isinstance(broken, Broken)
    assert "is not a valid attention" in broken.message
    assert [each.channel for each in compat.receive(event)] == ["attention/opened"]
    # The control: one that is an attention.
    strict = opened()[0]
    strict.subscribe(["attention/*"])
    assert [each.seq for each in strict.receive(message(type="event", channel="attention/opened", seq=0, payload=ITEM))]


@pytest.mark.parametrize(
    ("method", "result", "fits"),
    [
        ("tools/list", {"tools": [{**TOOL, "title": "B"}]}, True),
        ("tools/list", {"tools": [{**TOOL, "title": ""}]}, False),
        ("tools/list", {"tools": [{**TOOL, "description": ""}]}, False),
        ("attention/current", {"attention": ITEM}, True),
        ("attention/current", {"attention": {**ITEM, "attentionId": ""}}, False),
        ("state/set", {"applied": {}, "errors": [{"field": "a", "message": "b", "why": {"c": 1}}]}, True),
        ("state/set", {"applied": {}, "errors": [{"field": "a"}]}, False),
        ("state/set", {"applied": {}, "extra": 1}, False),
    ],
)
def test_a_strict_bridge_checks_results_against_the_published_schemas(method, result, fits):
    bridge, mod = opened()
    bridge.request(method, b'{"updates":{}}' if method == "state/set" else b"{}")
    (asked,) = mod.receive(bridge.take())
    mod.answer(asked.id, envelopes.to_json(result))
    (answered,) = bridge.receive(mod.take())
    assert (answered.error is None) is fits
