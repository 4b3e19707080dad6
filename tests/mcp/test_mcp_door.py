"""What the door refuses or translates before and after the SDK."""

import json

import pytest
from speaking import ACCEPT, Stream
from wires import Caller, Wire


def post(agent, body: bytes, *more: tuple[str, str]):
    kind = [("Content-Type", "application/json"), ACCEPT, *more]
    with Wire(agent.daemon.tcp) as wire:
        return wire.ask("POST", "/mcp", [*agent.caller.headers, *kind], body)


BAD = {
    "cut short": b'{"jsonrpc": "2.0"',
    "half a surrogate pair": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}',
    "not a number": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
    "too deep": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 70 + b"]" * 70 + b"}",
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}',
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_json_that_we_do_not_take_is_a_parse_error(agent, body, version):
    answer = post(agent("Ann"), body, ("MCP-Protocol-Version", version))
    assert answer.status == 400
    assert answer.json["id"] is None
    assert answer.json["error"]["code"] == -32700


@pytest.mark.parametrize("kind", ["text/plain", "application/json-patch+json", None])
def test_a_body_of_another_type_is_refused_in_the_form_of_every_refusal(agent, kind):
    ann = agent("Ann")
    headers = [] if kind is None else [("Content-Type", kind)]
    with Wire(ann.daemon.tcp) as wire:
        answer = wire.ask("POST", "/mcp", [*ann.caller.headers, *headers, ACCEPT], b'{"jsonrpc":"2.0","method":"ping"}')
    assert answer.status == 415
    assert answer.error["code"] == "unsupported_media_type"


def test_a_body_over_the_limit_is_refused_as_on_every_route(agent):
    ann = agent("Ann")
    with Wire(ann.daemon.tcp) as wire:
        head = [*ann.caller.headers, ("Content-Type", "application/json"), ACCEPT, ("Content-Length", str(9 * 2**20))]
        lines = ["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in head), "", ""]
        wire.send("\r\n".join(lines).encode() + b"x" * (8 * 2**20 + 1))
        answer = wire.answer()
    assert answer.status == 413
    assert answer.error["code"] == "too_large"


def test_a_payload_of_a_mebibyte_goes_through_and_comes_back(agent):
    ann = agent("Ann")
    # One less, for the quotes around it.
    payload = "ä" * (2**19 - 1)
    sent = ann.modern().call("send_message", agentId=ann.handle, payload=payload, awaitResponse=False)
    assert sent["structuredContent"]["status"] == "pending"
    assert ann.modern().call("wait_for_message")["structuredContent"]["payload"] == payload


def test_a_payload_over_the_limit_is_refused_with_advice(agent):
    ann = agent("Ann")
    refused = ann.modern().call("send_message", agentId=ann.handle, payload="x" * (2**20 + 1), awaitResponse=False)
    assert refused["isError"]
    assert "Next: " in refused["content"][0]["text"]


def test_every_answer_has_the_headers_of_the_house(agent):
    ann = agent("Ann")
    for client in (ann.modern(), ann.session()):
        with client.open("tools/list") as stream:
            assert stream.headers["bascule-version"]
            assert stream.headers["cache-control"] == "no-store"
            assert stream.headers["x-content-type-options"] == "nosniff"


def test_answers_are_counted(daemon, agent):
    ann = agent("Ann")
    name = 'bascule_http_responses_total{status="406"}'

    def refused() -> int:
        lines = Caller(daemon).get("/metrics").body.decode().splitlines()
        return next((int(line.split()[-1]) for line in lines if line.startswith(name)), 0)

    before = refused()
    with Wire(daemon.tcp) as wire:
        headers = [*ann.caller.headers, ("Content-Type", "application/json")]
        assert wire.ask("POST", "/mcp", headers, b'{"jsonrpc":"2.0","id":1,"method":"ping"}').status == 406
    assert refused() == before + 1


def test_space_around_a_header_is_no_part_of_it(agent):
    ann = agent("Ann")
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {"name": "co_workers", "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode()
    headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", " tools/call  "), ("Mcp-Name", "\tco_workers ")]
    assert post(ann, body, *headers).json["result"]["structuredContent"]["you"] == ann.handle


def test_an_unknown_tool_and_an_unknown_method_are_errors_of_the_protocol(agent):
    for client in (agent("Ann").modern(), agent("Bob").session()):
        with client.open("tools/call", name="no_such_tool", arguments={}) as stream:
            assert stream.message()["error"]["code"] == -32602
        with client.open("no/such/method") as stream:
            assert stream.message()["error"]["code"] == -32601


def test_the_same_id_twice_mixes_up_no_messages(agent):
    """A client that numbers badly may lose an answer of its own, never a message."""
    ann = agent("Ann")
    session = ann.session()
    wires = []
    for _ in range(2):
        wires.append(session.begin_call("wait_for_message", waitMs=20_000))
        session._numbers = iter([session.number])
    tickets = {ann.caller.send(ann.handle, number) for number in range(2)}
    with Stream(wires[1]) as stream:
        got = {stream.result()["structuredContent"]["ticketId"]}
    wires[0].close()
    session._numbers = iter(range(100, 120))
    while len(got) < 2:
        got.add(session.call("wait_for_message", waitMs=5_000)["structuredContent"]["ticketId"])
    assert got == tickets
