"""MCP sessions carried over the link: what reaches the program, what is acknowledged, what a repeated call gets."""

import asyncio
import json

import pytest

from bascule.foundation.errors import Forbidden, InvalidRequest, Overloaded
from bascule.kernel.call import Call
from bascule.kernel.link_protocol import McpBecame, McpMessage, McpOpen, McpRequest
from bascule.surfaces.mcp import link_sessions
from bascule.surfaces.mcp.calling import Facts
from bascule.surfaces.mcp.kept_answers import KeptAnswers
from bascule.surfaces.mcp.link_sessions import LinkSessions
from bascule.surfaces.mcp.tools import toolsets_of
from bascule.testing.house import House
from gabp import codec
from patience import PATIENCE


class Program:
    """The link connection of one program, in memory."""

    def __init__(self, scene, principal):
        self.principal = principal
        self.replies = {}
        self.notes = []
        self._scene = scene
        self._numbers = 0

    def reply(self, id_, result):
        self.replies[id_] = codec.decode(result)

    def notify(self, method, params):
        self.notes.append((method, codec.decode(params)))

    def messages(self):
        return [params["message"] for method, params in self.notes if method == "mcp.message"]

    def open(self, **more):
        params = McpOpen(toolsets=["agents", "workspace"], trust="peer", **more)
        self.session = self._scene.sessions.begin(params, self)
        return self

    def start(self, tool, *, call=None, left_ms=45_000, named=None, again=False, meta=None, method=None, **arguments):
        self._numbers += 1
        number = self._numbers
        params = {"name": tool, "arguments": arguments} if method is None else dict(arguments)
        if meta is not None:
            params["_meta"] = meta
        message = McpMessage(id=number, method=method or "tools/call", params=params)
        asked = McpRequest(call=call or f"call-{number}", left_ms=left_ms, named=named, again=again, message=message)
        self._scene.run(lambda: self.session.request(number, asked))
        return number

    def wait(self, number):
        self._scene.until(lambda: number in self.replies)
        return self.replies[number]

    def call(self, tool, **more):
        """The MCP result."""
        return self.wait(self.start(tool, **more))["message"]["result"]


class Scene:
    def __init__(self, **facts):
        self.house = House()
        for name in ("Jerry", "Tom"):
            self.house.register(name)
        self.faults = []
        self.sessions = LinkSessions(
            self.house.gate,
            lambda event, **fields: self.faults.append((event, fields)),
            toolsets_of(),
            facts=Facts("link", **facts),
        )

    def run(self, act):
        return self.house.run(act)

    def until(self, condition):
        async def wait():
            while not condition():  # noqa: ASYNC110 - the loop under test is this one
                await asyncio.sleep(0)

        self.house._loop.run_until_complete(asyncio.wait_for(wait(), PATIENCE))

    def program(self, name="Jerry", **more):
        return Program(self, f"agent:{name}").open(**more)

    def send(self, to="Jerry", payload="hello", sender="Tom"):
        sent = self.house.call(f"agent:{sender}", "messages.send", {"agentId": to, "payload": payload})
        return sent["ticketId"]

    def status(self, ticket):
        return self.house.call("local", "tickets.show", {"ticketId": ticket})["status"]

    def close(self):
        self.house._loop.run_until_complete(self.sessions.close())
        self.house.close()


@pytest.fixture
def scene():
    made = Scene()
    yield made
    made.close()
    assert made.faults == []


# -- opening --------------------------------------------------------------------------------------


def test_only_an_agent_opens_a_session(scene):
    for principal in ("local", None):
        with pytest.raises(Forbidden):
            Program(scene, principal).open()


def test_an_unknown_trust_label_is_refused(scene):
    with pytest.raises(InvalidRequest):
        scene.sessions.begin(McpOpen(toolsets=["agents"], trust="friend"), Program(scene, "agent:Jerry"))


def test_a_result_is_structured_and_the_same_as_text_and_names_an_agent_that_the_client_does_not_know(scene):
    program = scene.program()
    result = program.call("list_agents", named="Jerry")
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert (result["isError"], result["structuredContent"]["you"]) == (False, "Jerry")
    sent = program.call("post_reply", ticketId=scene.send(), payload="x", named="Jerry-1")
    assert sent["structuredContent"]["you"] == "Jerry"
    again = program.call("post_reply", ticketId=scene.send(), payload="x", named="Jerry")
    assert "you" not in again["structuredContent"]


def test_unread_messages_are_named_in_a_result(scene):
    scene.send()
    assert scene.program().call("list_agents")["structuredContent"]["unread"] == 1


def test_the_label_and_the_deadline_are_those_of_the_session(scene):
    program = scene.program(default_timeout_ms=5_000)
    sent = program.call("send_message", agentId="Tom", payload="x", awaitResponse=False)["structuredContent"]
    shown = scene.house.call("agent:Jerry", "tickets.show", {"ticketId": sent["ticketId"]})
    assert shown["replyBy"] < scene.house.call("agent:Tom", "tickets.show", {"ticketId": scene.send()})["replyBy"]


def test_a_refusal_is_an_error_the_model_can_act_on(scene):
    result = scene.program().call("send_message", agentId="Nobody", payload="x")
    assert result["isError"]
    assert result["content"][0]["text"].startswith("agent not registered\nNext: ")
    wrong = scene.program().call("send_message", agentId="Tom")
    assert wrong["content"][0]["text"] == "send_message: missing required field `payload`"


def test_a_tool_of_another_set_does_not_exist_and_one_with_a_dot_does(scene):
    program = scene.program()
    assert program.wait(program.start("games_list"))["message"]["error"]["code"] == -32602
    assert program.wait(program.start("x", method="prompts/list"))["message"]["error"]["code"] == -32601


def test_a_broken_tool_is_an_internal_error_and_the_session_goes_on(monkeypatch):
    scene = Scene()
    program = scene.program()
    with monkeypatch.context() as patched:
        patched.setattr(scene.house.gate, "call", lambda _call: 1 / 0)
        result = program.call("list_agents")
    assert result["isError"]
    assert result["content"][0]["text"].startswith("internal error ")
    assert scene.faults[0][0] == "fault"
    assert not program.call("list_agents")["isError"]
    scene.close()


def test_only_so_many_calls_are_open_at_once(scene, monkeypatch):
    monkeypatch.setattr(link_sessions, "MAX_CALLS", 2)
    program = scene.program()
    for _ in range(2):
        program.start("wait_for_message")
    assert program.call("list_agents")["isError"]


# -- a message is acknowledged when the client has it -----------------------------------------------


def test_a_message_is_acknowledged_when_the_client_has_it_and_not_before(scene):
    ticket = scene.send()
    program = scene.program()
    number = program.start("wait_for_message", call="take-1")
    answer = program.wait(number)
    assert answer["confirm"]
    assert answer["message"]["result"]["structuredContent"]["ticketId"] == ticket
    assert scene.status(ticket) == "pending"
    scene.run(lambda: program.session.done("take-1"))
    assert scene.status(ticket) == "delivered"


def test_a_message_that_was_not_confirmed_comes_again_when_the_connection_ends(scene):
    ticket = scene.send()
    first = scene.program()
    first.call("wait_for_message")
    scene.run(first.session.close)
    again = scene.program().call("wait_for_message", waitMs=0)["structuredContent"]
    assert (again["ticketId"], again["status"]) == (ticket, "message")


def test_a_cancelled_wait_takes_nothing(scene):
    program = scene.program()
    number = program.start("wait_for_message")
    scene.run(lambda: program.session.cancelled({"requestId": number}))
    ticket = scene.send()
    assert program.call("wait_for_message")["structuredContent"]["ticketId"] == ticket
    assert number not in program.replies


def test_a_message_that_comes_with_the_cancelling_is_for_the_next_wait(scene):
    program = scene.program()
    number = program.start("wait_for_message")

    text = b'{"agentId":"Jerry","payload":"x","ticketId":"t-1"}'
    send = Call("agent:Tom", "messages.send", text, door="link")
    scene.house.at_once(lambda: scene.house.gate.call(send), lambda: program.session.cancelled({"requestId": number}))
    assert program.call("wait_for_message")["structuredContent"]["ticketId"] == "t-1"
    assert number not in program.replies


def test_a_daemon_that_stops_leaves_waits_to_the_next_one(scene):
    program = scene.program()
    waiting = program.start("wait_for_message")
    scene.run(scene.sessions.stop)
    scene.run(scene.house.broker.end)
    scene.run(lambda: None)
    # Not answered: it would look as if the time were over.
    assert waiting not in program.replies


# -- a call that comes again ------------------------------------------------------------------------


def test_a_keyed_call_that_comes_again_gets_the_same_answer_and_acts_once(scene):
    first = scene.program()
    arguments = {"agentId": "Tom", "payload": "once", "awaitResponse": False}
    answer = first.wait(first.start("send_message", call="key-1", **arguments))
    assert answer["confirm"]
    scene.run(first.session.close)
    second = scene.program()
    assert second.wait(second.start("send_message", call="key-1", again=True, **arguments)) == answer
    taken = scene.house.call("agent:Tom", "inbox.take", {"agentId": "Tom", "max": 10})["messages"]
    assert [each["ticketId"] for each in taken] == ["key-1"]


def test_a_reply_that_comes_again_is_still_the_first(scene):
    ticket = scene.send()
    first = scene.program()
    posted = first.call("post_reply", call="key-2", ticketId=ticket, payload="x")["structuredContent"]
    assert posted["first"]
    scene.run(first.session.close)
    second = scene.program()
    again = second.call("post_reply", call="key-2", again=True, ticketId=ticket, payload="x")
    assert again["structuredContent"] == posted


def test_an_answer_that_was_confirmed_is_not_kept(scene):
    program = scene.program()
    arguments = {"agentId": "Tom", "payload": "once", "awaitResponse": False}
    program.wait(program.start("send_message", call="key-3", **arguments))
    assert scene.sessions.kept.get("Jerry", "key-3") is not None
    scene.run(lambda: program.session.done("key-3"))
    assert scene.sessions.kept.get("Jerry", "key-3") is None
    # Of another agent nothing is answered from memory.
    program.wait(program.start("send_message", call="key-4", **arguments))
    assert scene.sessions.kept.get("Tom", "key-4") is None


def test_a_send_that_waited_when_the_connection_broke_waits_on_under_its_ticket(scene):
    first = scene.program()
    first.start("send_message", call="key-5", agentId="Tom", payload="well?")
    scene.run(first.session.close)
    second = scene.program()
    number = second.start("send_message", call="key-5", again=True, agentId="Tom", payload="well?")
    scene.house.call("agent:Tom", "replies.post", {"ticketId": "key-5", "payload": "yes"})
    reply = second.wait(number)["message"]["result"]["structuredContent"]
    assert (reply["status"], reply["payload"], reply["ticketId"]) == ("responded", "yes", "key-5")


def test_kept_answers_are_bounded_in_number_and_size():
    kept = KeptAnswers(most=2, most_bytes=4)
    kept.put("A", "1", b"1")
    kept.put("A", "2", b"2")
    kept.put("A", "3", b"3")
    kept.put("A", "4", b"12345")
    assert [kept.get("A", each) for each in "1234"] == [None, b"2", b"3", None]


def test_a_wait_takes_no_longer_than_the_time_that_is_left(scene):
    assert scene.program().call("wait_for_message", left_ms=0)["structuredContent"]["status"] == "empty"


def test_an_overloaded_gate_is_asked_again_when_it_says_where_the_call_may_be_repeated(scene, monkeypatch):
    program = scene.program()
    real, left = scene.house.gate.call, [1]

    def busy(call):
        if call.method in ("agents.list", "processes.stop") and left:
            left.pop()
            raise Overloaded("busy", retry_after=0.001)
        return real(call)

    monkeypatch.setattr(scene.house.gate, "call", busy)
    assert not program.call("list_agents")["isError"]
    left.append(1)
    assert program.call("exec_stop", processId="prc_1")["isError"]
    assert left == []


# -- progress ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["p-1", 7, 0])
def test_a_client_that_asked_for_progress_hears_that_we_wait(token):
    scene = Scene(progress_seconds=0.01)
    program = scene.program()
    number = program.start("wait_for_message", meta={"progressToken": token})
    scene.until(lambda: len(program.messages()) >= 2)
    first, second = program.messages()[:2]
    assert first["method"] == second["method"] == "notifications/progress"
    assert (first["params"]["progressToken"], first["params"]["total"]) == (token, 45.0)
    # "The progress value MUST increase with each notification".
    assert 0 < first["params"]["progress"] < second["params"]["progress"]
    scene.run(lambda: program.session.cancelled({"requestId": number}))
    quiet = scene.program()
    quiet.start("wait_for_message")
    scene.run(lambda: None)
    assert quiet.notes == []
    scene.close()


# -- who it is --------------------------------------------------------------------------------------


def test_the_program_is_asked_to_become_another_agent(scene):
    program = scene.program()
    number = program.start("register_agent", agentId="Spike", metadata={"a": 1})
    scene.until(lambda: program.notes)
    ((method, asked),) = program.notes
    assert (method, asked["wanted"]) == ("mcp.become", {"agentId": "Spike", "metadata": {"a": 1}})
    scene.house.register("Spike")
    program.principal = "agent:Spike"
    result = {"agentId": "Spike", "expiresAt": "2030"}
    scene.run(lambda: program.session.became(McpBecame(number=asked["number"], result=result)))
    became = program.wait(number)["message"]["result"]["structuredContent"]
    assert (became["agentId"], became["you"], became["expiresAt"]) == ("Spike", "Spike", "2030")
    assert program.call("co_workers")["structuredContent"]["you"] == "Spike"


def test_a_refused_change_of_name_is_the_programs_error(scene):
    program = scene.program()
    number = program.start("register_agent", agentId="Tom")
    scene.until(lambda: program.notes)
    error = {"code": "conflict", "message": "Tom is taken", "hint": "Tom-2 is free"}
    answer = McpBecame(number=program.notes[0][1]["number"], error=error)
    scene.run(lambda: program.session.became(answer))
    result = program.wait(number)["message"]["result"]
    assert (result["isError"], result["content"][0]["text"]) == (True, "Tom is taken\nNext: Tom-2 is free")


def test_while_the_connection_changes_its_name_calls_are_those_of_the_agent_it_was(scene):
    program = scene.program()
    program.principal = "local"
    assert program.call("co_workers")["structuredContent"]["you"] == "Jerry"


def test_the_clients_own_name_for_its_session_is_put_beside_the_agent(scene):
    program = scene.program()
    meta = {"x-codex-turn-metadata": {"session_id": "0199-abc", "turn_id": "t"}}
    for _ in range(2):
        program.call("co_workers", meta=meta)
    agents = scene.house.call("local", "agents.list", {})
    assert [each["metadata"].get("clientSession") for each in agents if each["agentId"] == "Jerry"] == ["0199-abc"]
    registered = [record for record in scene.house.ledger() if record["method"] == "agents.register"]
    assert len(registered) == 3


@pytest.mark.parametrize("meta", [{}, {"x-codex-turn-metadata": []}, {"x-codex-turn-metadata": {"session_id": 7}}])
def test_a_call_without_a_session_of_its_own_changes_nothing(scene, meta):
    assert not scene.program().call("co_workers", meta=meta)["isError"]
