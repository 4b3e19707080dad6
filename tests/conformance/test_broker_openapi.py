"""What the daemon answers fits what its own description says, and what the description forbids is refused."""

from typing import Any

import jsonschema
import pytest


@pytest.fixture(scope="module")
def described(house) -> dict[str, Any]:
    return house.get("/openapi.json").json


def check(described: dict[str, Any], verb: str, path: str, answer) -> None:
    """The answer's status is described for the route, and its body has the described form."""
    response = described["paths"][path][verb.lower()]["responses"][str(answer.status)]
    if "$ref" in response:
        response = described["components"]["responses"][response["$ref"].rpartition("/")[2]]
    if "content" not in response:
        assert answer.body == b""
        return
    kind = answer.headers["content-type"].partition(";")[0]
    schema = response["content"][kind]["schema"]
    value = answer.json if kind == "application/json" else answer.body.decode()
    jsonschema.Draft202012Validator({**schema, "components": described["components"]}).validate(value)


def test_every_answer_of_a_whole_conversation_is_as_described(house, described):
    handle = house.new_name()
    seen: set[tuple[str, str]] = set()

    def ask(verb: str, path: str, body: Any = None, *, query: str = "", **how: Any):
        filled = path.format(agentId=handle, ticketId=ticket, conversationId="c-1")
        answer = house.http(verb, filled + query, body, **how)
        check(described, verb, path, answer)
        seen.add((verb, path))
        return answer

    ticket = "none-yet"
    token = ask("POST", "/agents/register", {"agentId": handle, "metadata": {"cwd": "/a"}}).json["agentToken"]
    ask("POST", "/agents/register", {"agentId": handle}, token=token)
    ask("POST", "/agents/register", {"agentId": handle})
    ask("GET", "/agents")
    ask("POST", "/agents/{agentId}/heartbeat", token=token)
    ask("GET", "/agents/{agentId}/inbox", query="?waitMs=0", token=token)
    sent = ask("POST", "/agents/{agentId}/send", {"payload": {"a": 1}, "conversationId": "c-1"})
    ticket = sent.json["ticketId"]
    ask("GET", "/replies/{ticketId}", query="?waitMs=0")
    ask("GET", "/agents/{agentId}/inbox", token=token)
    ask("POST", "/agents/{agentId}/inbox/ack", {"ticketIds": [ticket, "unknown"]}, token=token)
    ask("GET", "/tickets/{ticketId}")
    ask("POST", "/replies", {"ticketId": ticket, "payload": "first"}, token=token)
    ask("POST", "/replies", {"ticketId": ticket, "payload": "second"}, token=token)
    ask("GET", "/replies/{ticketId}")
    ask("POST", "/replies/gather", {"ticketIds": [ticket], "waitMs": 0})
    ask("GET", "/tickets/{ticketId}", token=token)
    ask("GET", "/tickets")
    ask("GET", "/conversations/{conversationId}", token=token)
    ask("POST", "/tickets/{ticketId}/cancel", {})
    ask("POST", "/broadcast", {"payload": "all", "agentIds": [handle, "Nobody"]})
    ticket = ask("POST", "/agents/{agentId}/send", {"payload": "x", "timeoutMs": 1}).json["ticketId"]
    ask("GET", "/replies/{ticketId}")
    ask("GET", "/status")
    ask("GET", "/events/recent")
    for page in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        ask("GET", page)
    ticket = "never-was"
    ask("GET", "/tickets/{ticketId}")
    ask("POST", "/replies", {"ticketId": ticket}, token=token)
    ask("GET", "/agents", token=None)
    # The workspace's own are asked for in its tests.
    mine = {path: verbs for path, verbs in described["paths"].items() if not path.startswith("/v1/")}
    for path, verbs in mine.items():
        if ("GET", path) not in seen and "get" in verbs and not is_stream(described, path):
            names = [each["name"] for each in verbs["get"].get("parameters", [])]
            ask("GET", path, query="?waitMs=0" if "waitMs" in names else "", token=token)
    # What is said at /mcp is another protocol's.
    paths = {path: verbs for path, verbs in mine.items() if path != "/mcp"}
    everything = {(verb.upper(), path) for path, verbs in paths.items() for verb in verbs}
    assert everything - seen == {("GET", path) for path in paths if is_stream(described, path)}


def is_stream(described: dict[str, Any], path: str) -> bool:
    answers = described["paths"][path].get("get", {}).get("responses", {})
    return "text/event-stream" in answers.get("200", {}).get("content", {})


def test_every_event_of_a_stream_is_as_described(house, agent, described):
    def fits(path: str, data: Any) -> None:
        schema = described["paths"][path]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"]
        jsonschema.Draft202012Validator({**schema, "components": described["components"]}).validate(data)

    inbox = house.events(f"/agents/{agent.handle}/inbox/stream", token=agent.token)
    with inbox, house.events(f"/events?agentId={agent.handle}") as events:
        ticket = house.send(agent.handle, conversationId="c-2")
        fits("/agents/{agentId}/inbox/stream", inbox.next()[1])
        fits("/events", events.next()[1])
        with house.events(f"/replies/{ticket}/stream") as stream:
            house.reply(agent, ticket)
            fits("/replies/{ticketId}/stream", stream.next()[1])


def test_what_the_description_forbids_is_refused(house, agent, described):
    paths = described["paths"]
    body = paths["/agents/{agentId}/send"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    forbidden = jsonschema.Draft202012Validator({**body, "components": described["components"]})
    for wrong in (
        {},
        {"payload": "x", "extra": 1},
        {"payload": "x", "timeoutMs": 0},
        {"payload": "x", "timeoutMs": 604_800_001},
        {"payload": "x", "timeoutMs": "5"},
        {"payload": "x", "ticketId": "a b"},
        {"payload": "x", "ticketId": "a\n"},
        {"payload": "x", "metadata": []},
        {"payload": "x", "expectReply": "yes"},
    ):
        assert not forbidden.is_valid(wrong), wrong
        assert house.post(f"/agents/{agent.handle}/send", wrong).status == 400, wrong


def test_a_broadcast_names_its_receivers_in_one_way_as_described(house, agent, described):
    body = described["paths"]["/broadcast"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    allowed = jsonschema.Draft202012Validator({**body, "components": described["components"]})
    for receivers, status in (
        ({"agentIds": [agent.handle], "type": "agent"}, 400),
        ({"agentIds": [agent.handle], "type": None}, 200),
        ({"agentIds": None, "type": "nobody-has-this"}, 404),
    ):
        wanted = {"payload": "x", **receivers}
        assert allowed.is_valid(wanted) is (status != 400), wanted
        assert house.post("/broadcast", wanted).status == status, wanted
