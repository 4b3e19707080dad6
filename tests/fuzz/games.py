"""What mods and bridges may send each other: streams, whole sessions of both ends, and the schemas of tools."""

from collections.abc import Iterator
from typing import Any

from readers import pieces, same_however_cut

from gabp import codec, envelopes, messages
from gabp.bridge_session import BridgeSession
from gabp.envelopes import Mode
from gabp.json_schema import MAX_PROBLEMS, Schema
from gabp.mod_session import ModSession
from gabp.states import State

_ID = "550e8400-e29b-41d4-a716-446655440000"
_CODES = {-32700, -32600, -32200, -32201, -32202, -32203}
_TOKEN = "t" * 64
_MODES = tuple(Mode)


def gabp_streams(data: bytes) -> None:
    for mode in _MODES:
        same_however_cut(data, lambda cut, mode=mode: _read(envelopes.Reader(mode, max_body_bytes=256), cut))


def _read(reader: envelopes.Reader, cut: list[bytes] | Iterator[bytes]) -> tuple[list[object], bool]:
    out: list[object] = []
    broken = False
    for piece in cut:
        try:
            received = reader.feed(piece)
        except envelopes.BrokenStream as error:
            received, broken = error.messages, True
        out += [_plain(message) for message in received]
        if broken:
            break
    return out, broken


def _plain(message: Any) -> object:
    if isinstance(message, envelopes.BadMessage):
        assert message.code in _CODES
        return message.code, message.message
    return [
        bytes(value) if isinstance(value, codec.Raw) else repr(value)
        for value in (getattr(message, name) for name in message.__struct_fields__)
    ]


def _opened(mode: Mode) -> tuple[BridgeSession, ModSession]:
    bridge, mod = BridgeSession(mode), ModSession(mode)
    bridge.hello(messages.HelloParams(token=_TOKEN, bridge_version="1", platform="linux", launch_id=_ID))
    mod.receive(bridge.take())
    welcome = messages.Welcome(
        agent_id="a",
        app=messages.App(name="a", version="1"),
        capabilities=messages.Capabilities(),
        schema_version="1.0",
    )
    mod.welcome(welcome)
    bridge.receive(mod.take())
    bridge.subscribe(["c", "attention/*"])
    return bridge, mod


def game_sessions(data: bytes) -> None:
    """Texts between newlines are framed; the first byte chooses mode and end."""
    kind = data[0] if data else 0
    bridge, mod = _opened(_MODES[kind & 1])
    session: Any = mod if kind & 2 else bridge
    rest = data[1:]
    stream = rest if kind & 4 else b"".join(map(envelopes._framed, rest.split(b"\n")))
    _, cut = pieces(b"\x02\x40\x80" + stream)
    for piece in cut:
        session.receive(piece)
        # Whatever was said, what is answered is what a reader of the same mode takes: of a compat peer's own ids not
        # all are UUIDs, and each gets its own back.
        for answer in envelopes.Reader(session.mode).feed(session.take()):
            assert not isinstance(answer, envelopes.BadMessage)
    session.end_of_stream()
    assert session.state is State.CLOSED


def tool_schemas(data: bytes) -> None:
    schema, _, value = data.partition(b"\n")
    try:
        found = Schema(codec.decode(schema)).problems(codec.decode(value))
    except codec.BadJson:
        return
    assert len(found) <= MAX_PROBLEMS
    assert all(sentence.startswith("arguments") and len(sentence) < 4_000 for sentence in found)
