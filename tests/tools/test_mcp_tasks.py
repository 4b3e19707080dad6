"""Calls that become tasks over the link: who gets one, whose it is, how it ends, what is acknowledged when."""

import pytest
from test_link_sessions import Scene

from bascule.foundation.errors import BasculeError
from bascule.surfaces.mcp.tasks import MOVES, McpTask, McpTasks, Status, TaskLimits

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
TASKS = "io.modelcontextprotocol/tasks"
ABLE = META | {"io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}}}
ENDS = ("completed", "failed", "cancelled")


@pytest.fixture
def scene():
    # What waits gets its handle at once, so no test has to wait for it.
    made = Scene(grace_seconds=0.0)
    yield made
    made.close()
    assert made.faults == []


def ask(program, method, *, meta=ABLE, **params):
    """The whole answer to a request that is not a tool call."""
    return program.wait(program.start("", method=method, meta=meta, **params))


def get(program, task_id, meta=ABLE):
    return ask(program, "tasks/get", meta=meta, taskId=task_id)["message"]


def handle(program, tool, *, meta=ABLE, **arguments):
    created = program.call(tool, meta=meta, **arguments)
    assert created["resultType"] == "task", created
    return created["taskId"]


def ended(scene, program, task_id):
    def found():
        return scene.sessions.mcp_tasks.find(f"agent:{program.principal.removeprefix('agent:')}", task_id)

    scene.until(lambda: found().has_ended)
    return get(program, task_id)["result"]


# -- who gets one -------------------------------------------------------------------------------------


def test_a_wait_of_a_client_that_takes_tasks_is_one_and_the_message_is_its_result(scene):
    program = scene.program()
    created = program.call("wait_for_message", meta=ABLE)
    assert (created["resultType"], created["status"]) == ("task", "working")
    assert created["ttlMs"] == TaskLimits().default_ttl_ms
    assert "result" not in created
    ticket = scene.send(payload="wake up")
    found = ended(scene, program, created["taskId"])
    assert (found["status"], found["resultType"]) == ("completed", "complete")
    assert found["result"]["structuredContent"]["payload"] == "wake up"
    assert found["result"]["structuredContent"]["ticketId"] == ticket


def test_a_client_that_does_not_declare_tasks_with_its_call_gets_none(scene):
    program = scene.program()
    handle(program, "wait_for_message")
    scene.send()
    for meta in (META, None):
        scene.send()
        assert "taskId" not in program.call("wait_for_message", meta=meta)
    # Nor is a call of the era before the handshake's tasks one.
    assert "content" in program.call("list_agents")


def test_an_answer_that_is_there_at_once_needs_no_task():
    scene = Scene()
    program = scene.program()
    scene.send(payload="waits already")
    number = program.start("wait_for_message", meta=ABLE)
    answer = program.wait(number)
    assert answer["message"]["result"]["structuredContent"]["payload"] == "waits already"
    assert answer["confirm"] is True
    assert scene.sessions.mcp_tasks.of("agent:Jerry") == []
    scene.close()


def test_a_call_that_waits_for_nobody_is_answered_as_always(scene):
    result = scene.program().call("list_agents", meta=ABLE)
    assert (result["resultType"], result["isError"]) == ("complete", False)
    assert "taskId" not in result


def test_a_2025_client_that_asks_for_a_task_gets_it_at_once_and_its_result_when_it_is_there(scene):
    program = scene.program()
    number = program.start("", method="tools/call", name="wait_for_message", arguments={}, task={"ttl": 60_000})
    task = program.wait(number)["message"]["result"]["task"]
    assert (task["status"], task["ttl"]) == ("working", 60_000)
    waiting = program.start("", method="tasks/result", taskId=task["taskId"])
    assert waiting not in program.replies
    assert [each["taskId"] for each in ask(program, "tasks/list", meta=None)["message"]["result"]["tasks"]] == [
        task["taskId"]
    ]
    scene.send(payload="here")
    result = program.wait(waiting)["message"]["result"]
    assert result["structuredContent"]["payload"] == "here"
    assert result["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task["taskId"]}
    notes = [each["params"]["status"] for each in program.messages() if each["method"] == "notifications/tasks/status"]
    assert notes == ["completed"]


@pytest.mark.parametrize("task", [7, {"ttl": -1}, {"ttl": "long"}, {"ttl": True}])
def test_a_malformed_task_is_refused(scene, task):
    program = scene.program()
    number = program.start("", method="tools/call", name="list_agents", arguments={}, task=task)
    assert program.wait(number)["message"]["error"]["code"] == -32602


def test_the_tool_that_changes_the_name_cannot_be_a_task(scene):
    program = scene.program()
    number = program.start("", method="tools/call", name="register_agent", arguments={"agentId": "X"}, task={})
    assert program.wait(number)["message"]["error"]["code"] == -32601


# -- whose it is --------------------------------------------------------------------------------------


def test_another_agent_cannot_read_cancel_answer_or_find_a_task(scene):
    jerry, tom = scene.program(), scene.program("Tom")
    task_id = handle(jerry, "wait_for_message")
    invented = get(tom, "task_" + "0" * 32)["error"]
    for method, more in (("tasks/get", {}), ("tasks/cancel", {}), ("tasks/update", {"inputResponses": {}})):
        error = ask(tom, method, taskId=task_id, **more)["message"]["error"]
        assert error["code"] == -32602
        assert error["message"].replace(task_id, "ID") == invented["message"].replace("task_" + "0" * 32, "ID")
    for method in ("tasks/get", "tasks/cancel", "tasks/result"):
        assert ask(tom, method, meta=None, taskId=task_id)["message"]["error"]["code"] == -32602
    assert ask(tom, "tasks/list", meta=None)["message"]["result"]["tasks"] == []
    listening = tom.start("", method="subscriptions/listen", meta=ABLE, notifications={"taskIds": [task_id]})
    (acknowledged,) = [each for each in tom.messages() if each["method"].endswith("acknowledged")]
    assert acknowledged["params"]["notifications"]["taskIds"] == []
    assert listening not in tom.replies
    # The control: its owner can do all of it, and nothing of what Tom tried had an effect.
    assert get(jerry, task_id)["result"]["status"] == "working"
    assert ask(jerry, "tasks/cancel", taskId=task_id)["message"]["result"]["resultType"] == "complete"
    assert get(jerry, task_id)["result"]["status"] == "cancelled"


def test_without_the_check_of_the_owner_the_same_requests_would_succeed(scene, monkeypatch):
    """The control of the test above."""
    jerry, tom = scene.program(), scene.program("Tom")
    task_id = handle(jerry, "wait_for_message")
    find = McpTasks.find
    monkeypatch.setattr(McpTasks, "find", lambda self, _principal, wanted: find(self, "agent:Jerry", wanted))
    assert get(tom, task_id)["result"]["status"] == "working"
    assert "error" not in ask(tom, "tasks/cancel", taskId=task_id)["message"]
    assert get(jerry, task_id)["result"]["status"] == "cancelled"


def test_a_task_goes_on_when_its_client_connects_again(scene):
    before = scene.program()
    task_id = handle(before, "wait_for_message")
    scene.run(before.session.close)
    scene.send(payload="later")
    again = scene.program()
    assert ended(scene, again, task_id)["result"]["structuredContent"]["payload"] == "later"


def test_a_client_that_does_not_come_back_takes_no_message(scene):
    """The control: a task whose client asks for it again in time goes on."""
    tasks = scene.sessions.mcp_tasks
    tasks.limits = TaskLimits(away_seconds=0.05)
    before = scene.program()
    gone, kept = handle(before, "wait_for_message"), handle(before, "send_message", agentId="Tom", payload="?")
    scene.run(before.session.close)
    again = scene.program()
    assert get(again, kept)["result"]["status"] == "working"
    scene.until(lambda: next(each for each in tasks.of("agent:Jerry") if each.task_id == gone).has_ended)
    ticket = scene.send()
    assert again.call("wait_for_message")["structuredContent"]["ticketId"] == ticket
    assert get(again, gone)["result"]["statusMessage"] == "its client left"
    assert get(again, kept)["result"]["status"] == "working"


def test_a_call_made_again_under_its_id_is_the_same_task(scene):
    program = scene.program()
    first = program.call("wait_for_message", meta=ABLE, call="the-same")
    scene.run(program.session.close)
    again = scene.program().call("wait_for_message", meta=ABLE, call="the-same")
    assert again["taskId"] == first["taskId"]


def test_the_next_holder_of_a_handle_inherits_no_task(scene):
    program = scene.program()
    task_id = handle(program, "wait_for_message")
    assert get(program, task_id)["result"]["status"] == "working"
    scene.run(lambda: scene.sessions.mcp_tasks.end_agent("Jerry"))
    assert get(program, task_id)["error"]["code"] == -32602


# -- what is acknowledged when ------------------------------------------------------------------------


def test_a_message_is_acknowledged_when_the_client_has_the_task_with_it_and_not_before(scene):
    program = scene.program()
    task_id = handle(program, "wait_for_message")
    ticket = scene.send()
    ended(scene, program, task_id)
    assert scene.status(ticket) == "pending"
    number = program.start("", method="tasks/get", meta=ABLE, call="reading", taskId=task_id)
    assert program.wait(number)["confirm"] is True
    assert scene.status(ticket) == "pending"
    scene.run(lambda: program.session.done("reading"))
    assert scene.status(ticket) == "delivered"


def test_a_message_of_a_task_that_nobody_asks_for_goes_to_the_next_who_waits(scene):
    program = scene.program()
    task_id = handle(program, "wait_for_message")
    ticket = scene.send()
    ended(scene, program, task_id)
    tasks = scene.sessions.mcp_tasks
    scene.run(lambda: tasks.drop(tasks.find("agent:Jerry", task_id)))
    assert scene.program().call("wait_for_message")["structuredContent"]["ticketId"] == ticket


def test_a_cancelled_wait_takes_no_message(scene):
    program = scene.program()
    task_id = handle(program, "wait_for_message")
    ask(program, "tasks/cancel", taskId=task_id)
    ticket = scene.send()
    assert scene.program().call("wait_for_message")["structuredContent"]["ticketId"] == ticket
    assert get(program, task_id)["result"]["status"] == "cancelled"


# -- how it ends --------------------------------------------------------------------------------------


def test_a_question_to_another_agent_is_a_task_until_it_is_answered(scene):
    program = scene.program()
    task_id = handle(program, "send_message", agentId="Tom", payload="2 + 2?")
    asked = scene.program("Tom").call("wait_for_message")["structuredContent"]
    scene.house.call("agent:Tom", "replies.post", {"ticketId": asked["ticketId"], "payload": "four"})
    found = ended(scene, program, task_id)["result"]["structuredContent"]
    assert (found["status"], found["payload"], found["from"]) == ("responded", "four", "Tom")


def test_a_refused_call_is_completed_with_an_error_for_the_model(scene):
    program = scene.program()
    number = program.start("", method="tools/call", name="await_reply", arguments={"ticketId": "nobody-knows"}, task={})
    task = program.wait(number)["message"]["result"]["task"]
    found = ended(scene, program, task["taskId"])
    assert (found["status"], found["result"]["isError"]) == ("completed", True)


def test_cancelling_what_has_ended_is_acknowledged_in_2026_and_refused_in_2025(scene):
    program = scene.program()
    task_id = handle(program, "wait_for_message")
    scene.send()
    ended(scene, program, task_id)
    assert "error" not in ask(program, "tasks/cancel", taskId=task_id)["message"]
    assert ask(program, "tasks/cancel", meta=None, taskId=task_id)["message"]["error"]["code"] == -32602
    assert get(program, task_id)["result"]["status"] == "completed"


def test_a_stream_tells_of_the_end_with_the_whole_task(scene):
    program = scene.program()
    task_id = handle(program, "wait_for_message")
    listening = program.start("", method="subscriptions/listen", meta=ABLE, notifications={"taskIds": [task_id]})
    scene.send(payload="news")
    scene.until(lambda: any(each["method"] == "notifications/tasks" for each in program.messages()))
    (note,) = [each["params"] for each in program.messages() if each["method"] == "notifications/tasks"]
    assert note["result"]["structuredContent"]["payload"] == "news"
    assert note["_meta"] == {"io.modelcontextprotocol/subscriptionId": listening}


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel", "subscriptions/listen"])
def test_a_client_that_has_not_declared_tasks_is_told_which_capability_is_missing(scene, method):
    program = scene.program()
    task_id = handle(program, "wait_for_message")
    number = program.start(
        "", method=method, meta=META, taskId=task_id, inputResponses={}, notifications={"taskIds": [task_id]}
    )
    error = program.wait(number)["message"]["error"]
    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
def test_what_2026_has_removed_is_not_there(scene, method):
    assert ask(scene.program(), method, taskId="x")["message"]["error"]["code"] == -32601


# -- limits -------------------------------------------------------------------------------------------


def test_a_task_is_forgotten_at_the_end_of_its_ttl_and_no_ttl_is_longer_than_the_limit(scene):
    tasks = scene.sessions.mcp_tasks
    tasks.limits = TaskLimits(min_ttl_ms=1, max_ttl_ms=50)
    program = scene.program()
    number = program.start("", method="tools/call", name="wait_for_message", arguments={}, task={"ttl": 10**9})
    task = program.wait(number)["message"]["result"]["task"]
    assert task["ttl"] == 50
    scene.until(lambda: tasks.of("agent:Jerry") == [])
    error = ask(program, "tasks/get", meta=None, taskId=task["taskId"])["message"]["error"]
    assert "ttl" in error["message"]
    # Its wait has ended with it: the message is there for who waits now.
    ticket = scene.send()
    assert program.call("wait_for_message")["structuredContent"]["ticketId"] == ticket


def test_an_agent_has_so_many_tasks_and_a_finished_one_makes_room(scene):
    tasks = scene.sessions.mcp_tasks
    tasks.limits = TaskLimits(per_agent=2)
    program = scene.program()
    first = handle(program, "wait_for_message")
    handle(program, "wait_for_message")
    # Who leaves it to us is answered as by a server without tasks; who asks for one is told.
    plain = program.start("wait_for_message", meta=ABLE)
    number = program.start("", method="tools/call", name="wait_for_message", arguments={}, task={})
    full = program.wait(number)["message"]["result"]
    assert full["isError"]
    assert "per_agent" in full["content"][0]["text"]
    assert plain not in program.replies
    # Another agent has its own.
    handle(scene.program("Tom"), "wait_for_message")
    ask(program, "tasks/cancel", taskId=first)
    handle(program, "wait_for_message")
    assert get(program, first)["error"]["code"] == -32602


def test_results_that_nobody_fetches_are_dropped_by_size_the_oldest_first(scene):
    tasks = scene.sessions.mcp_tasks
    tasks.limits = TaskLimits(result_bytes_per_agent=3_000)
    program = scene.program()
    ids = [handle(program, "wait_for_message") for _ in range(3)]
    last = tasks.find("agent:Jerry", ids[2])
    for _ in ids:
        scene.send(payload="x" * 900)
    scene.until(lambda: last.has_ended)
    assert tasks.of("agent:Jerry") == [last]


@pytest.mark.parametrize("before", list(Status))
@pytest.mark.parametrize("after", list(Status))
def test_every_move_of_a_task_is_allowed_or_refused_by_the_table(before, after):
    task = McpTask("agent:Jerry", "task_1", "call", 1_000, 1_000)
    task.status = before
    if after is before or after in MOVES[before]:
        task.move(after)
        assert (task.status, task.ended.done()) == (after, after.value in ENDS)
    else:
        with pytest.raises(BasculeError):
            task.move(after)
        assert task.status is before
