"""Tasks, prompts and forms at `/mcp`, in both eras: the same as over stdio."""

import contextlib
import json

import pytest
from living import eventually
from speaking import MODERN, Stream
from wires import Wire, request

from patience import PATIENCE

TASKS = "io.modelcontextprotocol/tasks"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ABLE = {CAPABILITIES: {"extensions": {TASKS: {}}}}
FORMS = {CAPABILITIES: {"elicitation": {"form": {}}}}


def ask_about(client, method, task_id, *, meta=ABLE, **more):
    """The whole answer to a request of 2026-07-28 about a task, with the header that names it."""
    headers = [*client._headers, ("Mcp-Method", method), ("Mcp-Name", task_id)]
    params = {"taskId": task_id, **more, "_meta": {**META, **meta}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    with Wire(client._daemon.tcp, PATIENCE) as wire:
        wire.send(request("POST", "/mcp", headers, json.dumps(message).encode()))
        return Stream(wire).message()


META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
}


def start(agent_, tool="wait_for_message", **arguments):
    client = agent_.modern()
    created = client.ask("tools/call", name=tool, arguments=arguments, meta=ABLE)
    assert created["resultType"] == "task", created
    return client, created["taskId"]


def test_an_idle_wait_is_a_task_whose_result_is_the_message_acknowledged_once_it_was_read(agent):
    ann, bob = agent("Ann"), agent("Bob")
    client, task_id = start(ann)
    ticket = bob.caller.send(ann.handle, "wake up")
    task = eventually(
        lambda: (found := ask_about(client, "tasks/get", task_id)["result"])["status"] != "working" and found,
        "the end of the task",
        PATIENCE,
    )
    assert (task["resultType"], task["status"]) == ("complete", "completed")
    assert task["result"]["structuredContent"]["payload"] == "wake up"
    eventually(lambda: bob.ticket(ticket)["status"] == "delivered", "the acknowledgement", PATIENCE)


def test_the_task_of_one_agent_is_nothing_to_another(agent):
    ann, eve = agent("Ann"), agent("Eve")
    client, task_id = start(ann)
    for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
        assert ask_about(eve.modern(), method, task_id, **more)["error"]["code"] == -32602
    session = eve.session()
    assert session.ask("tasks/list") == {"tasks": []}
    # The control: its owner sees it work, and ends it.
    assert ask_about(client, "tasks/get", task_id)["result"]["status"] == "working"
    assert "error" not in ask_about(client, "tasks/cancel", task_id)
    assert ask_about(client, "tasks/get", task_id)["result"]["status"] == "cancelled"


def test_a_session_of_2025_asks_for_a_task_and_waits_for_its_result(agent):
    ann, bob = agent("Ann"), agent("Bob")
    session = ann.session()
    assert session.greeting["capabilities"]["tasks"]["requests"] == {"tools": {"call": {}}}
    tools = {each["name"]: each.get("execution") for each in session.ask("tools/list")["tools"]}
    assert tools["wait_for_message"] == {"taskSupport": "optional"}
    assert tools["register_agent"] is None
    task = session.ask("tools/call", name="wait_for_message", arguments={}, task={"ttl": 60_000})["task"]
    with contextlib.closing(session.begin("tasks/result", taskId=task["taskId"])) as wire:
        ticket = bob.caller.send(ann.handle, "here")
        result = Stream(wire).result()
        assert result["structuredContent"]["payload"] == "here"
    eventually(lambda: bob.ticket(ticket)["status"] == "delivered", "the acknowledgement", PATIENCE)


def test_a_stream_about_tasks_is_refused_to_who_has_not_declared_them_and_polling_is_left_to_who_has(agent):
    client, task_id = start(agent("Ann"))
    wanted = {"taskIds": [task_id]}
    with client.open("subscriptions/listen", notifications=wanted) as stream:
        assert stream.message()["error"]["code"] == -32021
    with client.open("subscriptions/listen", notifications=wanted, meta=ABLE) as stream:
        assert stream.message()["params"]["notifications"] == {}
    # Nobody waits behind it: other tests count those who do.
    assert "error" not in ask_about(client, "tasks/cancel", task_id)


def test_the_eras_that_have_no_tasks_hear_nothing_of_them(agent):
    modern = agent("Ann").modern()
    listed = json.dumps(modern.ask("tools/list"))
    assert "taskSupport" not in listed
    assert modern.ask("server/discover")["capabilities"]["extensions"] == {TASKS: {}}


@pytest.mark.parametrize("era", ["modern", "session"])
def test_the_prompts_are_listed_and_their_texts_say_what_to_call(agent, era):
    client = getattr(agent("Ann"), era)()
    assert "inbox" in [each["name"] for each in client.ask("prompts/list")["prompts"]]
    found = client.ask("prompts/get", name="inbox")
    assert "wait_for_message" in found["messages"][0]["content"]["text"]


def test_a_form_is_filled_in_by_the_call_made_again(agent):
    client = agent("Ann").modern()
    call = {"name": "ask_person", "arguments": {"question": "Which branch?"}, "meta": FORMS}
    needed = client.ask("tools/call", **call)
    assert needed["resultType"] == "input_required"
    ((key, asked),) = needed["inputRequests"].items()
    assert asked["params"]["mode"] == "form"
    filled = {key: {"action": "accept", "content": {"answer": "main"}}}
    answer = client.ask("tools/call", **call, inputResponses=filled)["structuredContent"]
    assert (answer["payload"], answer["via"], "from" in answer) == ("main", "form", False)
