"""The sentences of GABP 1.0, each tried on the mod. The numbers are the transport specification's sections."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from bascule.game.cli.check.peer import Failed, Peer
from bascule.game.cli.check.starting import Subject
from gabp import envelopes, messages
from gabp.json_schema import Schema
from gabp.session import new_id

Level = Literal["must", "should"]
# 7.1: "up to 1MB".
LARGE_BYTES: Final = 1024 * 1024 - 512


# What a schema is, as far as bridges and models read one.
_TYPE_NAMES: Final = ["null", "boolean", "object", "array", "number", "string", "integer"]
_NUMBER: Final = {"type": "number"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT: Final = {"type": "string"}
_SUBSCHEMA: Final = {"$ref": "#"}
_SUBSCHEMAS: Final = {"type": "array", "items": _SUBSCHEMA}
_BY_NAME: Final = {"type": "object", "additionalProperties": _SUBSCHEMA}
_SCHEMAS: Final = Schema(
    {
        "type": ["object", "boolean"],
        "properties": {
            "type": {"anyOf": [{"enum": _TYPE_NAMES}, {"type": "array", "items": {"enum": _TYPE_NAMES}}]},
            "items": {"anyOf": [_SUBSCHEMA, _SUBSCHEMAS]},
            "required": {"type": "array", "items": {"type": "string"}},
            "enum": {"type": "array"},
            **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), _BY_NAME),
            **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SUBSCHEMAS),
            **dict.fromkeys(("additionalProperties", "propertyNames", "contains", "not"), _SUBSCHEMA),
            **dict.fromkeys(("if", "then", "else"), _SUBSCHEMA),
            **dict.fromkeys(("minimum", "maximum", "multipleOf"), _NUMBER),
            **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
            **dict.fromkeys(("$ref", "pattern", "format", "description", "title"), _TEXT),
        },
    },
    trusted=True,
)


class DoesNotApply(Exception):
    """There is nothing to try on this mod."""


@dataclass(frozen=True)
class Check:
    name: str
    level: Level
    sentence: str
    run: Callable[[Subject], None]


CHECKS: Final[list[Check]] = []


def check(level: Level, sentence: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    def add(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.append(Check(run.__name__.removeprefix("_").replace("_", "-"), level, sentence, run))
        return run

    return add


@check("must", "the mod listens at the address that the bridge gave it, and on this machine alone (1.2, 1.3)")
def _listens(subject: Subject) -> None:
    with subject.connected():
        pass
    if subject.port is not None and (others := _other_addresses(subject.port)):
        raise Failed(f"it listens on {others[0]} too: other machines can reach it; bind 127.0.0.1")
    if subject.socket_path is not None:
        mode = stat.S_IMODE(os.stat(subject.socket_path).st_mode)
        if mode & 0o077:
            raise Failed(f"its socket has mode {mode:04o}; other users can reach it: make it 0600")


@check("must", "a hello with the token is welcomed (3)")
def _welcome(subject: Subject) -> None:
    with subject.session():
        pass


@check("must", "a hello with another token is refused, and opens nothing (3)")
def _wrong_token(subject: Subject) -> None:
    with subject.connected() as peer:
        try:
            peer.refusal(messages.HELLO, subject.hello(token=os.urandom(messages.TOKEN_BYTES).hex()))
        except Failed:
            # To hang up is a refusal too.
            if not peer.closed(1.0):
                raise
            return
        _refused_or_closed(peer, "after a wrong token tools/list is still answered")


@check("must", "nothing is answered before the hello (3)")
def _before_hello(subject: Subject) -> None:
    with subject.connected() as peer:
        _refused_or_closed(peer, "tools/list is answered without a hello")


@check("must", "tools/list describes every tool: name, title, description, inputSchema, outputSchema")
def _tools(subject: Subject) -> None:
    with subject.session() as (peer, _):
        listed = peer.call(messages.TOOLS_LIST)
        if not isinstance(listed, dict) or not isinstance(listed.get("tools"), list):
            raise Failed("the result of tools/list has no list `tools`")
        names: set[str] = set()
        for each in listed["tools"]:
            called = each.get("name") if isinstance(each, dict) else None
            if not isinstance(called, str):
                raise Failed(f"a tool has no name: {str(each)[:120]}")
            if called in names:
                raise Failed(f"two tools have the name {called}")
            names.add(called)
            for name in ("inputSchema", "outputSchema"):
                if problems := _SCHEMAS.problems(each.get(name, {}), name):
                    raise Failed(f"{called}: {problems[0]}: it is not a JSON Schema")


@check("must", "a method that does not exist is an error, and the session goes on")
def _unknown_method(subject: Subject) -> None:
    with subject.session() as (peer, _):
        error = peer.refusal("checking/nothing")
        if error.code != -32601:
            subject.seen.strict[f"an unknown method is answered with {error.code}, not -32601"] = None
        peer.call(messages.TOOLS_LIST)


@check("must", "a tool that does not exist is an error, and the session goes on")
def _unknown_tool(subject: Subject) -> None:
    with subject.session() as (peer, _):
        error = peer.refusal(messages.TOOLS_CALL, {"name": "checking/no-such-tool", "arguments": {}})
        if error.code != -32400:
            subject.seen.strict[f"an unknown tool is answered with {error.code}, not -32400"] = None
        peer.call(messages.TOOLS_LIST)


@check("must", "a version of the protocol that the mod does not speak is refused")
def _version(subject: Subject) -> None:
    with subject.session() as (peer, _):
        id_ = new_id()
        body = envelopes.to_json(
            {"v": "gabp/2", "id": id_, "type": "request", "method": messages.TOOLS_LIST, "params": {}}
        )
        peer.send_raw(b"Content-Length: %d\r\nContent-Type: application/json\r\n\r\n%b" % (len(body), body))
        _error_or_closed(peer, "a request of gabp/2 is answered as if it were gabp/1")


@check("must", "a message is read to its end however it is cut (6.2)")
def _cut(subject: Subject) -> None:
    with subject.session() as (peer, _):
        id_ = new_id()
        frame = envelopes.request(id_, messages.TOOLS_LIST, b"{}")
        for at in range(0, len(frame), 7):
            peer.send_raw(frame[at : at + 7])
        peer.answer(id_)


@check("must", "two messages in one packet are two messages (2.3)")
def _together(subject: Subject) -> None:
    with subject.session() as (peer, _):
        ids = [new_id(), new_id()]
        peer.send_raw(b"".join(envelopes.request(each, messages.TOOLS_LIST, b"{}") for each in ids))
        # In whichever order it likes.
        answered: list[str] = []
        while len(answered) < len(ids):
            message = peer.message()
            if isinstance(message, envelopes.Response):
                answered.append(message.id)
        if sorted(answered) != sorted(ids):
            raise Failed("the two responses do not have the ids of the two requests")


@check("must", "text that is not JSON does not end the mod: it says so or hangs up, and others are served (6.1)")
def _not_json(subject: Subject) -> None:
    with subject.session() as (peer, _):
        peer.send_raw(b"Content-Length: 9\r\nContent-Type: application/json\r\n\r\nnot {json")
        _error_or_closed(peer, "text that is not JSON was answered with a result", silent=True)
    _again(subject)


@check("must", "a broken header does not end the mod (6.1)")
def _broken_header(subject: Subject) -> None:
    if subject.transport == "stdio":
        raise DoesNotApply
    with subject.session() as (peer, _):
        peer.send_raw(b"Content-Length: -5\r\n\r\n{}")
        peer.closed(1.0)
    _again(subject)


@check("should", "the mod serves the next bridge after one has left (6.2)")
def _again(subject: Subject) -> None:
    if subject.transport == "stdio":
        raise DoesNotApply
    for _ in range(2):
        with subject.session() as (peer, _):
            peer.call(messages.TOOLS_LIST)


@check("should", "the mod serves several bridges at once (7.2)")
def _several(subject: Subject) -> None:
    if subject.transport == "stdio":
        raise DoesNotApply
    with subject.session() as (first, _), subject.session() as (second, _), subject.session() as (third, _):
        for each in (third, first, second):
            each.call(messages.TOOLS_LIST)


@check("should", "a message of nearly a megabyte is read (7.1)")
def _large(subject: Subject) -> None:
    with subject.session() as (peer, welcome):
        limits = welcome.get("capabilities", {}).get("limits", {})
        most = limits.get("maxMessageSize") if isinstance(limits, dict) else None
        size = LARGE_BYTES
        if most is not None and most - 512 < LARGE_BYTES:
            size = most - 512
            subject.seen.strict[f"it reads no more than {most} bytes in a message; 1 MB is recommended"] = None
        peer.refusal(messages.TOOLS_CALL, {"name": "checking/no-such-tool", "arguments": {"text": "x" * max(1, size)}})
        peer.call(messages.TOOLS_LIST)


@check("must", "what is subscribed to is answered with its channels, and can be given up")
def _events(subject: Subject) -> None:
    with subject.session() as (peer, welcome):
        channels = _announced(welcome, "events")
        if not channels:
            raise DoesNotApply
        named = [str(each) for each in channels if not str(each).endswith("*")][:5]
        if not named:
            raise DoesNotApply
        answer = peer.call(messages.SUBSCRIBE, {"channels": named})
        if not isinstance(answer, dict) or set(answer.get("subscribed", ())) != set(named):
            raise Failed(f"events/subscribe to {named} is answered with {str(answer)[:120]}")
        peer.call(messages.UNSUBSCRIBE, {"channels": named})


@check("must", "resources that are listed can be read")
def _resources(subject: Subject) -> None:
    with subject.session() as (peer, welcome):
        if messages.RESOURCES_LIST not in _announced(welcome, "methods"):
            raise DoesNotApply
        listed = peer.call(messages.RESOURCES_LIST)
        for each in listed.get("resources", [])[:3]:
            peer.call(messages.RESOURCES_READ, {"uri": each["uri"]})


@check("must", "the state can be read where the mod says so")
def _state(subject: Subject) -> None:
    with subject.session() as (peer, welcome):
        if messages.STATE_GET not in _announced(welcome, "methods"):
            raise DoesNotApply
        peer.call(messages.STATE_GET)


@check("must", "what wants attention is said in full: `blocking` above all")
def _attention(subject: Subject) -> None:
    with subject.session() as (peer, welcome):
        if messages.ATTENTION_CURRENT not in _announced(welcome, "methods"):
            raise DoesNotApply
        answer = peer.call(messages.ATTENTION_CURRENT)
        now = answer.get("attention") if isinstance(answer, dict) else None
        if now is not None and not isinstance(now.get("blocking"), bool):
            raise Failed("`blocking` is not true or false: a bridge must then hold every call back")


# -- what they share --


def _announced(welcome: Any, kind: str) -> list[Any]:
    capabilities = welcome.get("capabilities") if isinstance(welcome, dict) else None
    found = capabilities.get(kind) if isinstance(capabilities, dict) else None
    return found if isinstance(found, list) else []


def _refused_or_closed(peer: Peer, otherwise: str) -> None:
    try:
        answer = peer.answer(peer.ask(messages.TOOLS_LIST))
    except Failed:
        if peer.closed(1.0):
            return
        raise
    if not isinstance(answer.error, envelopes.ErrorBody):
        raise Failed(otherwise)


def _error_or_closed(peer: Peer, otherwise: str, *, silent: bool = False) -> None:
    """An error under whichever id, or the end of the connection; `silent`: or nothing at all."""
    try:
        answer = peer.message(2.0)
    except Failed:
        if silent or peer.closed(1.0):
            return
        raise Failed("it neither answers nor hangs up") from None
    if not isinstance(answer, envelopes.Response) or not isinstance(answer.error, envelopes.ErrorBody):
        raise Failed(otherwise)


def _other_addresses(port: int) -> list[str]:
    """Where else something listens on that port, as Linux says; elsewhere nobody is asked."""
    found = []
    for table, own in (("/proc/net/tcp", ("0100007F",)), ("/proc/net/tcp6", (_SIX_LOOPBACK, _SIX_MAPPED))):
        try:
            with open(table, encoding="ascii") as rows:
                fields = [row.split() for row in rows][1:]
        except OSError:
            continue
        for row in fields:
            address, _, number = row[1].partition(":")
            if row[3] == "0A" and int(number, 16) == port and address not in own:
                found.append("all addresses" if not address.strip("0") else address)
    return found


_SIX_LOOPBACK: Final = "00000000000000000000000001000000"
_SIX_MAPPED: Final = "0000000000000000FFFF00000100007F"
