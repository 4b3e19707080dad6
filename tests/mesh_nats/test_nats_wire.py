"""The protocol of NATS without a server: however bytes are cut, and whatever they are."""

import itertools

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from bascule.mesh.machine import nats_wire, nkeys
from bascule.mesh.machine.nats_wire import MAX_LINE_BYTES, BadFrame, Control, FrameReader, Message

tokens = st.text(st.sampled_from("abcXYZ019-_$"), min_size=1, max_size=8)
subjects = st.lists(tokens, min_size=1, max_size=5).map(".".join)
names = st.text(st.sampled_from("abcXYZ-"), min_size=1, max_size=8)
values = st.text(st.sampled_from("abc 019:."), max_size=8).map(str.strip)
statuses = st.sampled_from(["", "100 Idle Heartbeat", "408 Request Timeout", "503"])
messages = st.builds(
    Message,
    sid=st.integers(1, 999),
    subject=subjects,
    reply=st.just("") | subjects,
    data=st.binary(max_size=64),
    status=statuses,
    headers=st.dictionaries(names, values, max_size=3),
)
lines = st.sampled_from(
    [Control("PING"), Control("PONG"), Control("INFO", b'{"a":1}'), Control("ERR", b"Permissions Violation")]
)


def as_server(event: Message | Control) -> bytes:
    """As a server writes it."""
    if isinstance(event, Control):
        return {
            "PING": b"PING\r\n",
            "PONG": b"PONG\r\n",
            "INFO": b"INFO " + event.text + b"\r\n",
            "ERR": b"-ERR '" + event.text + b"'\r\n",
        }[event.word]
    place = f"{event.subject} {event.sid} {event.reply}".strip().encode()
    if not event.status and not event.headers:
        return b"MSG %s %d\r\n%s\r\n" % (place, len(event.data), event.data)
    first = f"NATS/1.0 {event.status}".strip()
    head = "".join(f"{line}\r\n" for line in (first, *(f"{k}: {v}" for k, v in event.headers.items()), "")).encode()
    return b"HMSG %s %d %d\r\n%s%s\r\n" % (place, len(head), len(head) + len(event.data), head, event.data)


@given(st.lists(messages | lines, max_size=6), st.lists(st.integers(0, 600), max_size=8))
def test_the_same_events_come_however_the_bytes_are_cut(events, cuts):
    whole = b"".join(as_server(event) for event in events)
    places = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    reader, found = FrameReader(), []
    for begin, end in itertools.pairwise(places):
        found += reader.feed(whole[begin:end])
    assert found == events


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b"MSG a 1 ", b"HMSG a 1 4 9\r\n", b"\r\n", b"PING\r\n"])))
def test_any_bytes_are_events_or_a_bad_frame(pieces):
    reader = FrameReader()
    try:
        for piece in pieces:
            reader.feed(piece)
    except BadFrame:
        pass


@pytest.mark.parametrize(
    "line",
    [
        b"HELLO\r\n",
        b"MSG a 1\r\n",
        b"MSG a 1 b c 4\r\n",
        b"MSG a one 4\r\n",
        b"MSG a 1 -4\r\n",
        b"MSG a 1 99999999999\r\n",
        b"HMSG a 1 9 4\r\nxxxx\r\n",
        b"MSG a 1 2\r\nabcd\r\n",
        b"HMSG a 1 8 8\r\nHTTP/1.1\r\n",
    ],
)
def test_what_a_server_never_says_is_refused(line):
    with pytest.raises(BadFrame):
        FrameReader().feed(line)


def test_a_line_without_end_is_refused():
    reader = FrameReader()
    reader.feed(b"x" * MAX_LINE_BYTES)
    with pytest.raises(BadFrame):
        reader.feed(b"x")


@given(subjects, st.binary(max_size=64), st.just("") | subjects)
def test_what_is_published_says_its_size(subject, data, reply):
    plain = nats_wire.publish(subject, data, reply)
    assert plain.startswith(b"PUB ")
    sizes, body = plain.split(b"\r\n", 1)
    assert int(sizes.split()[-1]) == len(data) == len(body) - 2
    headed = nats_wire.publish(subject, data, reply, {"A": "b"})
    sizes, body = headed.split(b"\r\n", 1)
    header_bytes, whole = map(int, sizes.split()[-2:])
    assert body[:header_bytes] == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert body[header_bytes:whole] == data


@pytest.mark.parametrize("subject", ["", "a b", "a\r\nPUB b 0", "a\tb", "ä"])
def test_a_subject_cannot_smuggle_another_command(subject):
    for act in (
        lambda: nats_wire.publish(subject, b""),
        lambda: nats_wire.publish("a", b"", subject or " "),
        lambda: nats_wire.subscribe(subject, 1),
    ):
        with pytest.raises(ValueError, match="not a subject"):
            act()


# -- keys as NATS writes them

# Of the documentation of NATS's own library: a seed and its public key.
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"


def test_a_seed_is_read_and_its_public_key_is_that_of_a_user():
    key = nkeys.read_seed(SEED)
    text = nkeys.user_text(key.public_key().public_bytes_raw())
    assert text == "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


@pytest.mark.parametrize("seed", ["", "SUA", SEED[:-1] + "A", "not base32!", nkeys.user_text(b"x" * 32)])
def test_a_damaged_seed_is_refused(seed):
    with pytest.raises(nkeys.BadCreds):
        nkeys.read_seed(seed)


def test_a_file_of_an_operator_is_read():
    text = f"-----BEGIN NATS USER JWT-----\nabc.def\n------END NATS\n\n-----BEGIN USER NKEY SEED-----\n{SEED}\n"
    jwt, key = nkeys.read_creds(text)
    assert jwt == b"abc.def"
    assert isinstance(key, Ed25519PrivateKey)
    for damaged in ("", text.replace("USER JWT", "x"), text.replace("NKEY SEED", "x"), text[:60]):
        with pytest.raises(nkeys.BadCreds):
            nkeys.read_creds(damaged)
