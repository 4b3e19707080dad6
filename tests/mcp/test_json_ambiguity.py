"""Texts that parsers read in different ways: through every door each is refused, or has one and the same meaning."""

import hashlib
import json
import math
from collections.abc import Iterator

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from json_cases import BODIES, VALUES, Case
from living import Living, short_dir
from raw_client import RawClient
from speaking import ACCEPT, META, MODERN
from wires import Caller, LinkWire, Wire, frame

from inside import canonical, canonical_digest, decode_json

LARGEST_SAFE = 2**53 - 1
# What a parse error may be called: over HTTP, over link, and by JSON-RPC itself.
NAMES = {"invalid_request", -32700, -32600, -32602}
BATCH = 32


# -- the oracle: the standard library's parser, told what we promise -------------------------------


class Refused(Exception):
    pass


def refuse(answer: object) -> None:
    raise Refused(answer)


def number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else refuse(text)


def meaning(text: bytes) -> object:
    """Of a name that comes twice the last counts, as in nearly every parser."""
    value = json.loads(text.decode(), parse_constant=refuse, parse_float=number)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def oracle_digest(value: object) -> str:
    """RFC 8785 by somebody else; beyond 2**53, which it refuses, integers in full are the decision we documented."""
    try:
        text = rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    return hashlib.sha256(text).hexdigest()


def exact(value: object) -> object:
    """What a value means, so that values which mean different things differ: true is not 1, but 1.0 is."""
    match value:
        case bool() | None:
            return repr(value)
        case int() | float():
            # -0 is 0: RFC 8785 says so, and no agent means anything by it.
            return ("number", value or 0)
        case list():
            return tuple(map(exact, value))
        case dict():
            return frozenset((key, exact(item)) for key, item in value.items())
        case _:
            return value


def test_the_table_is_large_and_the_oracle_agrees_with_its_verdicts():
    assert len(VALUES) + len(BODIES) >= 300
    assert min(sum(case.refused for case in VALUES), sum(not case.refused for case in VALUES)) >= 100
    assert len({case.name for case in VALUES + BODIES}) >= 300
    for case in VALUES:
        if not case.refused:
            meaning(case.text)
        elif "levels" not in case.name:
            with pytest.raises((Refused, ValueError)):
                meaning(b'{"v":%b}' % case.text)


def test_texts_of_one_meaning_share_a_digest_and_texts_of_two_do_not():
    by_digest: dict[str, set[object]] = {}
    by_meaning: dict[object, set[str]] = {}
    for case in VALUES:
        if not case.refused:
            value = decode_json(case.text)
            by_digest.setdefault(canonical_digest(value), set()).add(exact(value))
            by_meaning.setdefault(exact(meaning(case.text)), set()).add(canonical_digest(value))
    assert [meanings for meanings in by_digest.values() if len(meanings) > 1] == []
    # RFC 8785 writes a double with an exponent from 10**21 on, and we write integers in full.
    assert [each for each, digests in by_meaning.items() if len(digests) > 1] == [("number", 10**21)]
    # Enough of both: spellings that fall together, and values that stay apart.
    assert 90 <= len(by_digest) < sum(not case.refused for case in VALUES)


def test_the_one_documented_pair_is_a_large_double_and_the_integer_of_its_shortest_digits():
    assert canonical_digest(2.0**68) == canonical_digest(295147905179352830000) != canonical_digest(2**68)


# -- through the doors ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house():
    with short_dir() as folder, Living(f"{folder}/s", mcp="on", durability="memory", calls_per_second=0) as living:
        yield living
        assert "Traceback" not in living.log() + living.terminal()


class Receiver:
    """An agent that is written to, and what arrived."""

    def __init__(self, house: Living, handle: str) -> None:
        self.handle = handle
        self._link = house.link_socket
        self._token = Caller(house).register(handle).token

    def arrived(self) -> dict[str, dict[str, object]]:
        """By the name that the sender chose: the ticket's, or the conversation's where tickets choose themselves."""
        items: dict[str, dict[str, object]] = {}
        with LinkWire(self._link).hello(self._token) as wire:
            while taken := wire.call("inbox.take", {"agentId": self.handle, "waitMs": 0, "max": BATCH}):
                ids = [item["ticketId"] for item in taken["messages"]]
                wire.call("inbox.ack", {"agentId": self.handle, "ticketIds": ids})
                items |= {item.get("conversationId") or item["ticketId"]: item for item in taken["messages"]}
        return items


class HttpDoor:
    name = "HTTP"

    def __init__(self, house: Living, handle: str) -> None:
        self._house = house
        self._path = f"/agents/{handle}/send"
        self._headers = [*Caller(house).headers, ("Content-Type", "application/json")]
        self._wire: Wire | None = None

    def say(self, body: bytes) -> object:
        """None when it was taken, else what the refusal is called."""
        # The path names the agent.
        body = body.replace(b'"agentId":"AGENT",', b"")
        self._wire = self._wire or Wire(self._house.tcp)
        answer = self._wire.ask("POST", self._path, self._headers, body)
        if answer.headers.get("connection") == "close":
            self.close()
        return None if answer.status == 200 else answer.error["code"] if answer.status == 400 else answer.status

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class LinkDoor:
    name = "link"

    def __init__(self, house: Living, handle: str) -> None:
        self._handle = handle.encode()
        self._wire = LinkWire(house.link_socket).hello()

    def say(self, body: bytes) -> object:
        params = body.replace(b"AGENT", self._handle)
        self._wire.send_bytes(frame(b'{"jsonrpc":"2.0","id":7,"method":"messages.send","params":%b}' % params))
        answer = self._wire.read()
        if "result" in answer:
            return None
        error = answer["error"]
        return error["data"]["code"] if "data" in error else error["code"]

    def close(self) -> None:
        self._wire.close()


def envelope(handle: str, value: bytes, ticket: bytes) -> bytes:
    """A tool call: text is all a payload can be there, so the value stands in the metadata."""
    return (
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"_meta":%b,"name":"send_message","arguments":'
        b'{"agentId":"%b","payload":"-","awaitResponse":false,"conversationId":"%b","metadata":{"v":%b}}}}'
        % (json.dumps(META).encode(), handle.encode(), ticket, value)
    )


def tool_verdict(answer: dict[str, object]) -> object:
    if "error" in answer:
        return answer["error"]["code"]
    return "invalid_request" if answer["result"]["isError"] else None


@pytest.mark.parametrize("door_type", [HttpDoor, LinkDoor], ids=lambda door: door.name)
def test_every_value_is_refused_without_effect_or_handed_over_with_the_digest_of_its_meaning(house, door_type):
    receiver = Receiver(house, f"Values-{door_type.name}")
    door = door_type(house, receiver.handle)
    verdicts = {
        (ticket := f"v{number}.{door.name}"): door.say(
            b'{"agentId":"AGENT","ticketId":"%b","metadata":{"v":%b},"payload":%b}'
            % (ticket.encode(), case.text, case.text)
        )
        for number, case in enumerate(VALUES)
    }
    door.close()
    faults = list(faults_in(VALUES, verdicts, receiver.arrived()))
    assert faults == []


def faults_in(
    cases: list[Case],
    verdicts: dict[str, object],
    arrived: dict[str, dict[str, object]],
    *,
    everywhere: bool = True,
) -> Iterator[tuple[str, str]]:
    for key, verdict in verdicts.items():
        case, item = cases[int(key[1:].partition(".")[0])], arrived.pop(key, None)
        if case.refused:
            if verdict not in NAMES:
                yield case.name, f"should be refused by name: {verdict}"
            if item is not None:
                yield case.name, "refused, and yet it arrived"
        elif verdict is not None or item is None:
            yield case.name, f"should be taken: {verdict}"
        else:
            expected = oracle_digest(meaning(case.text))
            values = [item["metadata"]["v"], *([item["payload"]] if everywhere else [])]
            if any(oracle_digest(value) != expected for value in values):
                yield case.name, f"means something else now: {str(values)[:80]}"
    for key in arrived:
        yield key, "nobody sent this"


@pytest.mark.parametrize("door_type", [HttpDoor, LinkDoor], ids=lambda door: door.name)
def test_every_body_is_refused_without_effect_or_means_what_the_table_says(house, door_type):
    receiver = Receiver(house, f"Bodies-{door_type.name}")
    door = door_type(house, receiver.handle)
    verdicts = {}
    for number, case in enumerate(BODIES):
        ticket = f"b{number}-{door.name}"
        text = case.text.replace(b"TICKET", ticket.encode())
        for code in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
            text = text.replace("TICKET".encode(code), ticket.encode(code))
        verdicts[ticket] = door.say(text)
    door.close()
    arrived = receiver.arrived()
    for (ticket, verdict), case in zip(verdicts.items(), BODIES, strict=True):
        item = arrived.pop(ticket, None)
        if case.refused:
            assert (verdict in NAMES, item) == (True, None), (case.name, verdict)
        else:
            assert (verdict, item["payload"]) == (None, case.payload), case.name
    assert arrived == {}


def test_through_mcp_on_stdio_every_value_is_refused_or_means_the_same(house):
    receiver = Receiver(house, "Values-stdio")
    verdicts = {}
    with RawClient(house.state, "--agent", "Teller") as client:
        client.initialize()
        for number, case in enumerate(VALUES):
            # A line break ends a line there: such a text never arrives as one.
            if b"\n" not in case.text:
                client.write(envelope(receiver.handle, case.text, b"v%d" % number) + b"\n")
                verdicts[f"v{number}"] = tool_verdict(client.next())
    assert len(verdicts) > 290
    assert list(faults_in(VALUES, verdicts, receiver.arrived(), everywhere=False)) == []


def test_through_mcp_over_http_every_value_is_refused_or_means_the_same(house):
    receiver, sender = Receiver(house, "Values-mcp"), Caller(house).register("Teller-mcp")
    headers = [
        *sender.headers,
        ("Content-Type", "application/json"),
        ACCEPT,
        *(("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/call"), ("Mcp-Name", "send_message")),
    ]
    verdicts = {}
    wire = Wire(house.tcp)
    for number, case in enumerate(VALUES):
        answer = wire.ask("POST", "/mcp", headers, envelope(receiver.handle, case.text, b"v%d" % number))
        if answer.headers.get("connection") == "close":
            wire.close()
            wire = Wire(house.tcp)
        data = answer.body
        if answer.headers["content-type"] == "text/event-stream":
            data = next(line for line in data.splitlines() if line.startswith(b"data: "))[6:]
        verdicts[f"v{number}"] = tool_verdict(json.loads(data))
    wire.close()
    assert list(faults_in(VALUES, verdicts, receiver.arrived(), everywhere=False)) == []


# -- the test sees what it should see -------------------------------------------------------------


def test_a_door_that_reads_otherwise_would_be_found_out():
    """First of two counts, numbers through doubles, text composed: each shows in the digest of some case."""
    import unicodedata

    def first_counts(pairs: list[tuple[str, object]]) -> dict[str, object]:
        return dict(reversed(pairs))

    def composed(value: object) -> object:
        return json.loads(unicodedata.normalize("NFC", json.dumps(value, ensure_ascii=False)))

    readers = {
        "first counts": lambda text: json.loads(text, object_pairs_hook=first_counts),
        "doubles": lambda text: json.loads(text, parse_int=lambda digits: float(digits[:300])),
        "composes": lambda text: composed(json.loads(text)),
        "folds case": lambda text: json.loads(text.lower()),
        "cuts at NUL": lambda text: json.loads(text.replace(b"\\u0000b", b"")),
    }
    for name, read in readers.items():
        arrived, verdicts = {}, {}
        for number, case in enumerate(VALUES):
            if not case.refused:
                verdicts[f"v{number}"] = None
                arrived[f"v{number}"] = {"metadata": {"v": read(case.text)}}
        assert list(faults_in(VALUES, verdicts, arrived, everywhere=False)) != [], name


def test_a_refused_text_that_has_an_effect_would_be_found_out():
    number = next(number for number, case in enumerate(VALUES) if case.refused)
    arrived = {f"v{number}": {"metadata": {"v": 1}, "payload": 1}, "v-1": {}}
    faults = list(faults_in(VALUES, {f"v{number}": "invalid_request"}, arrived))
    assert [what for _, what in faults] == ["refused, and yet it arrived", "nobody sent this"]


# -- for all values -------------------------------------------------------------------------------

TEXT = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-LARGEST_SAFE, LARGEST_SAFE)
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False, max_value=1e15, min_value=-1e15)
    | TEXT
)
ANY = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=10)


@settings(deadline=None, max_examples=80)
@given(ANY)
def test_what_is_written_canonically_reads_back_as_it_was(value):
    assert exact(decode_json(canonical(value))) == exact(value)


@settings(deadline=None, max_examples=80)
@given(ANY, ANY)
def test_two_values_share_their_canonical_text_exactly_when_they_mean_the_same(one, other):
    assert (canonical(one) == canonical(other)) == (exact(one) == exact(other))
