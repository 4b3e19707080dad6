"""Tasks, prompts and forms through the real program, with a living daemon behind it."""

import contextlib

import pytest
from living import Living, eventually, short_dir
from raw_client import CAPABILITIES_KEY, CLIENT_INFO, RawClient, modern

from patience import PATIENCE

TASKS = "io.modelcontextprotocol/tasks"
ABLE = modern() | {CAPABILITIES_KEY: {"extensions": {TASKS: {}}}}


@pytest.fixture
def world():
    with short_dir() as folder, Living(f"{folder}/s") as daemon:
        yield daemon


def ended(client, task_id):
    def look():
        task = client.request("tasks/get", taskId=task_id, _meta=ABLE)["result"]
        return task["status"] != "working" and task

    return eventually(look, "the end of the task", PATIENCE)


def test_a_wait_is_a_task_and_its_message_is_acknowledged_once_the_client_has_it(world):
    with RawClient(world.state, "--agent", "Jerry") as jerry, RawClient(world.state, "--agent", "Tom") as tom:
        found = jerry.request("server/discover", _meta=ABLE)["result"]
        assert found["capabilities"]["extensions"] == {TASKS: {}}
        created = jerry.answer_to(jerry.start_call("wait_for_message", meta=ABLE))["result"]
        assert (created["resultType"], created["status"]) == ("task", "working")
        tom.initialize()
        sent = tom.call("send_message", agentId="Jerry", payload="wake up", awaitResponse=False)["structuredContent"]
        task = ended(jerry, created["taskId"])
        assert task["result"]["structuredContent"]["payload"] == "wake up"

        def is_acknowledged():
            listed = tom.call("list_tickets")["structuredContent"]["tickets"]
            return [each["status"] for each in listed if each["ticketId"] == sent["ticketId"]] == ["delivered"]

        # By mcp.done, once the program has written the answer to `tasks/get`.
        eventually(is_acknowledged, "the acknowledgement", PATIENCE)
        # Another agent's session does not find it.
        assert tom.request("tasks/get", taskId=created["taskId"], _meta=ABLE)["error"]["code"] == -32602


def test_after_a_restart_a_task_that_asked_somebody_ends_with_the_reply_and_any_other_says_what_happened():
    """A client that is told that there is no such task goes on asking, and its model never hears of it."""
    with short_dir() as folder, contextlib.ExitStack() as lives:
        first = lives.enter_context(Living(f"{folder}/s"))
        jerry = lives.enter_context(RawClient(first.state, "--agent", "Jerry", "--no-start"))
        tom = lives.enter_context(RawClient(first.state, "--agent", "Tom", "--no-start"))
        spike = lives.enter_context(RawClient(first.state, "--agent", "Spike", "--no-start"))
        tom.initialize()
        spike.request("server/discover", _meta=ABLE)
        jerry.request("server/discover", _meta=ABLE)
        waits = jerry.answer_to(jerry.start_call("wait_for_message", meta=ABLE))["result"]["taskId"]
        asked = jerry.start_call("send_message", meta=ABLE, agentId="Tom", payload="2 + 2?")
        asks = jerry.answer_to(asked)["result"]["taskId"]
        first.kill()
        lives.enter_context(Living(f"{folder}/s"))
        # The id of a task is no key to what another agent asked.
        stolen = ended(spike, asks)
        assert (stolen["result"]["isError"], "restarted" in str(stolen["result"])) == (True, True)
        lost = ended(jerry, waits)
        assert (lost["result"]["isError"], "restarted" in str(lost["result"])) == (True, True)
        assert jerry.request("tasks/get", taskId=asks, _meta=ABLE)["result"]["status"] == "working"
        ticket = tom.call("wait_for_message")["structuredContent"]["ticketId"]
        tom.call("post_reply", ticketId=ticket, payload="four")
        found = ended(jerry, asks)
        assert found["result"]["structuredContent"]["payload"] == "four"
        # What never was does not exist, as before.
        assert jerry.request("tasks/get", taskId="task_1", _meta=ABLE)["error"]["code"] == -32602


def test_a_form_of_the_client_answers_the_agent_and_lists_are_there_before_the_daemon(world):
    with RawClient(world.state, "--agent", "Jerry") as client:
        able = {"elicitation": {}}
        greeting = client.request("initialize", protocolVersion="2025-11-25", capabilities=able, clientInfo=CLIENT_INFO)
        assert greeting["result"]["capabilities"]["prompts"] == {"listChanged": False}
        listed = client.request("prompts/list")["result"]["prompts"]
        assert [each["name"] for each in listed] == ["inbox", "undo"]
        text = client.request("prompts/get", name="inbox")["result"]["messages"][0]["content"]["text"]
        assert "no unread" in text
        number = client.start_call("ask_person", question="Which branch?")
        asked = client.next()
        assert (asked["method"], asked["params"]["mode"]) == ("elicitation/create", "form")
        filled = b'{"jsonrpc":"2.0","id":"%b","result":{"action":"accept","content":{"answer":"main"}}}\n'
        # One that nobody asked for, one that UTF-8 cannot carry, and the answer.
        client.write(filled.replace(b'"%b"', b"99"))
        client.write((filled % asked["id"].encode()).replace(b"main", b"\\ud800"))
        client.write(filled % asked["id"].encode())
        answer = client.answer_to(number)["result"]["structuredContent"]
        assert (answer["payload"], answer["via"], "from" in answer) == ("main", "form", False)
