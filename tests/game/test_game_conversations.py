"""Sessions that are broken, cut anywhere, fed noise, or talk to each other at random."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from two_ends import TOKEN, message, notes_of, opened

from gabp import envelopes, messages
from gabp.bridge_session import Came
from gabp.content_length import frame
from gabp.envelopes import Mode, to_json
from gabp.errors import ErrorCode
from gabp.mod_session import Asked, arguments_of
from gabp.session import Broken
from gabp.states import State


@pytest.mark.req("DEC-GABP-1")
@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        b"Content-Length: two\r\n\r\n{}",
        b"Content-Length: 2\n\n{}",
        b"X: " + b"y" * 9000,
        b"\r\n" * 20,
        frame(b"{", content_type="application/json"),
        frame(b'"\xff"', content_type="application/json"),
        frame(b"[" * 5000, content_type="application/json"),
    ],
)
def test_a_broken_stream_closes_with_a_clear_error_and_nothing_after_it_is_dispatched(data):
    bridge, mod = opened()
    (happened,) = mod.receive(data + message(type="request", method="tools/list"))
    assert isinstance(happened, Broken)
    assert happened.message
    assert notes_of(mod) == [(envelopes.NIL_ID, ErrorCode.PARSE_ERROR)]
    assert mod.state is State.CLOSED
    (happened,) = bridge.receive(data)
    assert isinstance(happened, Broken)
    assert bridge.take() == b""


def test_what_came_whole_before_the_break_is_dispatched():
    _, mod = opened()
    asked, broken = mod.receive(message(type="request", method="tools/list") + b"Content-Length: x\r\n\r\n")
    assert isinstance(asked, Asked)
    assert isinstance(broken, Broken)


def test_an_end_inside_a_frame_is_told_from_an_end():
    _, mod = opened()
    mod.receive(b"Content-Length: 5\r\n")
    assert isinstance(mod.end_of_stream()[0], Broken)
    _, mod = opened()
    assert mod.end_of_stream() == []
    assert mod.state is State.CLOSED


def test_a_frame_that_takes_too_long_ends_the_session():
    _, mod = opened()
    mod.receive(b"Content-Length: 5\r\n")
    assert mod.mid_frame
    assert "10 s" in mod.frame_overdue()[0].message


@settings(deadline=None, max_examples=150)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from(
            [
                message(type="request", method="tools/list"),
                message(type="request", method="session/hello", params={"token": TOKEN}),
                message(type="response", result=1),
                message(type="event", channel="c", seq=1, payload=1),
                message(type="event", channel="attention/opened", seq=1, payload=1),
                message(type="x"),
                frame(b"[]", content_type="application/json"),
            ]
        ),
        max_size=8,
    ),
    st.sampled_from(Mode),
    st.integers(1, 40),
    st.booleans(),
)
def test_no_bytes_at_all_make_a_session_raise(parts, mode, size, as_mod):
    bridge, mod = opened(mode)
    bridge.subscribe(["c", "attention/*"])
    session = mod if as_mod else bridge
    stream = b"".join(parts)
    for at in range(0, len(stream), size):
        session.receive(stream[at : at + size])
        envelopes.Reader(Mode.STRICT).feed(session.take())
    session.end_of_stream()
    assert session.state is State.CLOSED


class Conversation(RuleBasedStateMachine):
    """Two strict ends, random acts, bytes cut anywhere: every call is answered once, with its own answer."""

    def __init__(self):
        super().__init__()
        self.bridge, self.mod = opened()
        self.bridge.subscribe(["c"])
        self.to_mod, self.to_bridge = b"", b""
        self.waiting, self.asked, self.answers, self.events = {}, [], {}, []
        self.sent_events = 0

    def deliver(self, share: float) -> None:
        self.to_mod += self.bridge.take()
        cut = int(len(self.to_mod) * share)
        for each in self.mod.receive(self.to_mod[:cut]):
            if each.method == messages.SUBSCRIBE:
                self.mod.answer(each.id, b'{"subscribed":["c"]}')
            else:
                self.asked.append(each)
        self.to_mod = self.to_mod[cut:]
        self.to_bridge += self.mod.take()
        cut = int(len(self.to_bridge) * share)
        for each in self.bridge.receive(self.to_bridge[:cut]):
            if isinstance(each, Came):
                self.events.append((each.seq, each.missed))
            elif each.method == messages.TOOLS_CALL:
                assert each.id not in self.answers
                self.answers[each.id] = json.loads(bytes(each.value))
        self.to_bridge = self.to_bridge[cut:]

    @rule(n=st.integers())
    def call(self, n):
        id_ = self.bridge.request(messages.TOOLS_CALL, to_json({"name": "a/b", "arguments": {"n": n}}))
        self.waiting[id_] = {"n": n}

    @rule(which=st.randoms())
    def answer(self, which):
        if self.asked:
            each = self.asked.pop(which.randrange(len(self.asked)))
            self.mod.answer(each.id, bytes(arguments_of(each.params)))

    @rule()
    def emit(self):
        self.mod.emit("c", self.sent_events, b"1")
        self.sent_events += 1

    @rule(share=st.floats(0, 1))
    def some_bytes_arrive(self, share):
        self.deliver(share)

    @invariant()
    def answers_belong_to_their_calls(self):
        assert all(self.waiting[id_] == value for id_, value in self.answers.items())
        assert self.events == [(seq, 0) for seq in range(len(self.events))]

    def teardown(self):
        self.deliver(1)
        for each in self.asked:
            self.mod.answer(each.id, bytes(arguments_of(each.params)))
        self.asked = []
        self.deliver(1)
        assert self.answers == self.waiting
        assert len(self.events) == self.sent_events


TestConversation = Conversation.TestCase
TestConversation.settings = settings(deadline=None, max_examples=30, stateful_step_count=40)
