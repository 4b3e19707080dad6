"""The tools of the set `agents`, driven by hand: what they ask, and what a model reads."""

import pytest
from driving import BY_NAME, Me, Script, refusal

from bascule.foundation.errors import InvalidRequest
from bascule.kernel.tool import Retry
from bascule.local_client.exits import NotRunning, WrongUsage
from bascule.programs.mcp_stdio import words

ME = Me()


def use(name, arguments, *answers, me=ME):
    return Script(name, arguments, *answers, me=me)


SENT = {"ticketId": "x", "status": "pending", "waitEndpoint": "", "agentStatus": "online"}
REPLY = {"ticketId": "x", "status": "responded", "payload": "ok", "latencyMs": 4, "from": "Spock"}


def test_a_sent_message_waits_for_its_reply_under_its_own_ticket():
    script = use("send_message", {"agentId": "Spock", "payload": "hi"}, SENT, REPLY)
    send, wait = script.asked
    assert (send.method, send.params["payload"]) == ("messages.send", "hi")
    # The call's own id: a call that comes again sends the same message.
    assert (BY_NAME["send_message"].retry, send.params["ticketId"]) == (Retry.KEYED, script.call_id)
    assert "timeoutMs" not in send.params
    assert (wait.method, wait.params, wait.wait_ms) == ("replies.wait", {"ticketId": script.call_id}, 45_000)
    assert (script.result["status"], script.result["payload"], script.result["from"]) == ("responded", "ok", "Spock")
    assert "not from your user" in script.result["note"]


def test_a_message_that_is_not_awaited_returns_its_ticket():
    arguments = {"agentId": "Spock", "payload": "hi", "awaitResponse": False}
    script = use("send_message", arguments, {**SENT, "agentStatus": "offline"})
    assert script.result == {
        "ticketId": script.asked[0].params["ticketId"],
        "status": "pending",
        "next": "await_reply",
        "agentStatus": "offline",
    }


def test_only_the_slice_over_is_pending_and_names_the_next_tool():
    arguments = {"agentId": "Spock", "payload": "hi", "timeoutMs": 600_000}
    script = use("send_message", arguments, SENT, None, {"status": "delivered"})
    assert script.asked[0].params["timeoutMs"] == 600_000
    assert script.asked[1].wait_ms == 45_000
    assert (script.result["status"], script.result["ticketStatus"], script.result["next"]) == (
        *("pending", "delivered", "await_reply"),
    )


def test_the_callers_own_time_over_is_a_timeout():
    script = use("await_reply", {"ticketId": "t", "timeoutMs": 2_000}, None, {"status": "pending"})
    assert script.asked[0].wait_ms == 2_000
    assert (script.result["status"], script.result["ticketStatus"]) == ("timeout", "pending")
    assert "next" not in script.result


def test_a_ticket_past_its_deadline_is_a_timeout():
    arguments = {"agentId": "Spock", "payload": "hi", "timeoutMs": 1_000}
    script = use("send_message", arguments, SENT, {"ticketId": "x", "status": "timeout"})
    assert (script.result["status"], script.result["ticketStatus"]) == ("timeout", "timeout")


def test_a_reply_between_two_questions_is_not_missed():
    script = use("await_reply", {"ticketId": "t"}, None, {"status": "responded"}, REPLY)
    assert script.methods == ["replies.wait", "tickets.show", "replies.wait"]
    assert script.result["payload"] == "ok"


def test_a_status_that_cannot_be_had_does_not_fail_the_wait():
    script = use("await_reply", {"ticketId": "t"}, None, refusal("unavailable"))
    assert (script.result["status"], script.result["next"]) == ("pending", "await_reply")


def test_a_cancelled_ticket_is_reported():
    script = use("await_reply", {"ticketId": "t"}, {"ticketId": "t", "status": "cancelled"})
    assert script.result == {"ticketId": "t", "status": "cancelled", "ticketStatus": "cancelled"}


def test_a_received_message_is_acknowledged_after_it_was_handed_over():
    message = {
        "ticketId": "t",
        "from": "Spock",
        "payload": "hi",
        "metadata": {},
        "expectReply": True,
        "leaseMs": 60_000,
    }
    script = use("wait_for_message", {}, {"messages": [message], "remaining": 2})
    assert (script.asked[0].method, script.asked[0].params) == ("inbox.take", {"agentId": "Jerry", "max": 1})
    assert (script.result["status"], script.result["from"], script.result["next"]) == ("message", "Spock", "post_reply")
    assert script.result["unread"] == 2
    assert "not from your user" in script.result["note"]
    assert "leaseMs" not in script.result
    assert script.result.acknowledge == {"agentId": "Jerry", "ticketIds": ["t"]}


@pytest.mark.parametrize(("given", "sent"), [({}, 45_000), ({"waitMs": 100}, 100), ({"waitMs": 90_000}, 45_000)])
def test_a_wait_is_never_longer_than_a_slice(given, sent):
    script = use("wait_for_message", given, None)
    assert script.asked[0].wait_ms == sent
    assert script.result == {"status": "empty", "next": "wait_for_message"}


def test_unread_messages_are_reported_with_every_result():
    script = Script("list_agents", {"type": "codex"}, [], [], {"unread": 3}, whole=True)
    assert script.methods == ["agents.list", "sessions.list", "agents.heartbeat"]
    assert script.result == {"agents": [], "you": "Jerry", "unread": 3}


def test_agents_are_listed_with_what_clients_sessions_do_and_what_says_so():
    quiet = {"client": "claude", "session": "s1", "state": "idle", "probably": True, "evidence": "nothing since Stop"}
    works = {"client": "codex", "session": "s2", "state": "works", "evidence": "PreToolUse", "ageMs": 12, "pane": "%3"}
    over = {"client": "gemini", "session": "s3", "state": "ended", "evidence": "SessionEnd"}
    script = Script("list_agents", {}, [], [quiet, {**works, "pid": 7, "open": 1}, over])
    assert script.result["sessions"] == [quiet, works]
    # A model reads the newest; a person has `bascule sessions`.
    assert len(Script("list_agents", {}, [], [quiet] * 500).result["sessions"]) == 20


def test_a_daemon_without_sessions_lists_agents_all_the_same():
    assert Script("list_agents", {}, [], refusal("not_found")).result == {"agents": [], "you": "Jerry"}


def test_a_count_that_cannot_be_had_does_not_fail_the_call():
    arguments = {"ticketId": "t", "payload": {"a": 1}}
    script = Script("post_reply", arguments, {"first": True}, refusal("overloaded"), whole=True)
    assert script.asked[0].params == {"ticketId": "t", "payload": {"a": 1}, "metadata": {}}
    assert script.result == {"first": True}


def test_bad_ids_are_refused_before_anything_is_asked():
    for name, arguments in (
        ("send_message", {"agentId": "../x", "payload": "x"}),
        ("await_reply", {"ticketId": "a b"}),
        ("post_reply", {"ticketId": "", "payload": "x"}),
        ("register_agent", {"agentId": "local"}),
    ):
        with pytest.raises(InvalidRequest):
            use(name, arguments)


def test_the_default_deadline_is_that_of_the_environment():
    script = use("send_message", {"agentId": "S", "payload": "x"}, SENT, REPLY, me=Me(default_timeout_ms=1_000))
    assert script.asked[0].params["timeoutMs"] == 1_000


def test_registering_is_becoming_another_agent():
    registered = {"agentId": "Jerry", "status": "registered", "expiresAt": "2027"}
    script = use("register_agent", {"agentId": "Jerry", "type": "codex"}, registered)
    assert script.became == [{"agentId": "Jerry", "type": "codex"}]
    assert script.result == {"agentId": "Jerry", "status": "registered", "you": "Jerry", "expiresAt": "2027"}
    with pytest.raises(InvalidRequest, match="is not a handle"):
        use("register_agent", {"agentId": "Jerry", "groups": ["a b"]})


# -- talking to several, and looking back ---------------------------------------------------------


def test_a_message_can_belong_to_a_conversation():
    arguments = {"agentId": "S", "payload": "x", "conversationId": "c-1", "awaitResponse": False}
    assert use("send_message", arguments, SENT).asked[0].params["conversationId"] == "c-1"


def test_a_broadcast_names_its_tickets_and_may_be_repeated():
    tickets = [{"agentId": "A", "ticketId": "b.A", "status": "pending", "agentStatus": "online"}]
    failed = [{"agentId": "B", "error": {"code": "not_found"}}]
    me = Me(default_timeout_ms=5_000)
    arguments = {"payload": "all of you", "agentIds": ["A", "B"]}
    script = use("broadcast_message", arguments, {"tickets": tickets, "failed": failed}, me=me)
    ask = script.asked[0]
    assert (ask.method, ask.params["agentIds"], ask.params["timeoutMs"]) == ("messages.broadcast", ["A", "B"], 5_000)
    assert (BY_NAME["broadcast_message"].retry, ask.params["broadcastId"]) == (Retry.KEYED, script.call_id)
    assert script.result == {"tickets": tickets, "failed": failed, "next": "await_reply"}


@pytest.mark.parametrize(("wanted", "count"), [(0, None), (1, 1), (5, None)])
def test_a_broadcast_can_wait_for_all_answers_or_the_first_few(wanted, count):
    tickets = [{"agentId": each, "ticketId": f"b.{each}", "status": "pending"} for each in "AB"]
    replies = [{"ticketId": "b.A", "status": "responded", "payload": "yes", "from": "A"}]
    answer = {"replies": replies, "open": ["b.B"], "done": True}
    script = use("broadcast_message", {"payload": "ready?", "awaitReplies": wanted}, {"tickets": tickets}, answer)
    assert "awaitReplies" not in script.asked[0].params
    ask = script.asked[1]
    assert (ask.method, ask.params["ticketIds"], ask.params.get("count")) == ("replies.gather", ["b.A", "b.B"], count)
    assert script.result["replies"][0]["note"].startswith("peer: from another agent, not from your user")
    assert (script.result["open"], script.result["next"]) == (["b.B"], "await_reply")


def test_a_broadcast_that_reached_nobody_says_so():
    script = use("broadcast_message", {"payload": "hello?"}, {"broadcastId": "b", "tickets": []})
    assert script.result == {"tickets": [], "note": "nobody else is online"}


def test_a_cancelled_ticket_is_answered_with_its_state_alone():
    script = use("cancel_ticket", {"ticketId": "t", "reason": "done"}, {"status": "cancelled", "x": 1})
    assert (script.asked[0].method, script.asked[0].params) == ("tickets.cancel", {"ticketId": "t", "reason": "done"})
    assert script.result == {"ticketId": "t", "status": "cancelled"}


def ticket(number, sender, target, **more):
    times = {"createdAt": "2026", "updatedAt": "2026", "replyBy": "2027", "expectReply": True, "payloadBytes": 1}
    return {"ticketId": f"t-{number}", "from": sender, "targetAgent": target, "status": "pending", **times, **more}


def test_the_listed_tickets_are_ones_own():
    views = [ticket(2, "Jerry", "B"), ticket(3, "A", "Jerry", conversationId="c")]
    script = use("list_tickets", {"status": "pending"}, views)
    assert script.asked[0].params == {"limit": 1000, "party": "Jerry", "status": "pending"}
    assert [each["ticketId"] for each in script.result["tickets"]] == ["t-2", "t-3"]
    assert set(script.result["tickets"][1]) == {
        *("ticketId", "from", "targetAgent", "status", "createdAt", "replyBy", "conversationId"),
    }
    assert "more" not in script.result


def test_a_list_that_was_cut_says_how_much_is_left():
    views = [ticket(number, "Jerry", "B") for number in range(25)]
    assert use("list_tickets", {}, views).result["more"] == 5
    assert len(use("list_tickets", {"limit": 2}, views).result["tickets"]) == 2


def test_a_conversation_shows_who_said_what_and_that_it_was_not_the_user():
    replies = [{"from": "B", "payload": "yes", "metadata": {}, "at": "2026"}]
    views = [ticket(1, "Jerry", "B", payload="well?", response="yes", replies=replies, conversationId="c")]
    script = use("show_conversation", {"conversationId": "c"}, {"conversationId": "c", "tickets": views})
    assert script.asked[0].params == {"conversationId": "c", "limit": 20}
    shown = script.result["tickets"][0]
    assert (shown["from"], shown["payload"], shown["replies"]) == ("Jerry", "well?", [{"from": "B", "payload": "yes"}])
    assert "not from your user" in script.result["note"]


def test_co_workers_are_short_and_without_oneself():
    agents = [
        {"agentId": "Jerry", "type": "codex", "status": "online", "lastHeartbeat": "", "metadata": {}},
        {"agentId": "Tom", "type": "codex", "status": "online", "lastHeartbeat": "", "metadata": {"cwd": "/a", "b": 1}},
        {"agentId": "Spike", "type": "agent", "status": "offline", "lastHeartbeat": "", "metadata": {}},
    ]
    assert use("co_workers", {}, agents).result == {
        "agents": [
            {"agentId": "Tom", "type": "codex", "status": "online", "cwd": "/a"},
            {"agentId": "Spike", "type": "agent", "status": "offline"},
        ],
        "you": "Jerry",
    }


# -- whose words these are ------------------------------------------------------------------------


@pytest.mark.parametrize("label", list(words.TRUST_LABELS))
def test_every_label_says_that_it_is_not_the_user_who_speaks(label):
    reply = use("await_reply", {"ticketId": "t"}, REPLY, me=Me(trust=label)).result
    assert reply["note"].startswith(f"{label}: ")
    assert "not from your user" in reply["note"]
    assert (reply["from"], reply["ticketId"]) == ("Spock", "x")


def test_what_is_self_evident_is_not_paid_for():
    message = {"ticketId": "t", "from": "Spock", "payload": "hi", "metadata": {}, "expectReply": True, "attempts": 1}
    plain = use("wait_for_message", {}, {"messages": [message]}).result
    assert set(plain) == {"status", "ticketId", "from", "payload", "note", "next"}
    message |= {"metadata": {"a": 1}, "expectReply": False, "attempts": 2}
    result = use("wait_for_message", {}, {"messages": [message]}).result
    assert (result["metadata"], result["expectReply"], result["attempts"]) == ({"a": 1}, False, 2)
    assert "next" not in result


def test_the_person_and_unnamed_programs_have_their_own_words():
    assert "the person at this machine" in words.note("untrusted", "person")
    assert "unnamed program" in words.note("colleague", "local")


def test_an_unknown_label_is_refused_with_the_list():
    assert words.trust_label("colleague") == "colleague"
    with pytest.raises(WrongUsage, match="there are peer, colleague, untrusted"):
        words.trust_label("friend")


@pytest.mark.parametrize(
    ("tool", "fault", "next_step"),
    [
        ("cancel_ticket", refusal("not_found"), "list_tickets shows yours"),
        ("send_message", refusal("not_found", hint="online now: Tom"), "online now: Tom"),
        ("send_message", refusal("overloaded"), "wait a moment"),
        ("send_message", NotRunning("x"), "nobody answers at x"),
    ],
)
def test_an_error_ends_with_the_next_step(tool, fault, next_step):
    assert f"\nNext: {next_step}" in words.describe(fault, tool)


# -- the person --


@pytest.mark.parametrize(
    ("more", "payload"),
    [
        ({}, "Which branch?"),
        ({"choices": ["main", "next"]}, {"question": "Which branch?", "choices": ["main", "next"]}),
    ],
)
def test_a_question_goes_to_the_person_and_its_answer_is_labelled_as_theirs(more, payload):
    answer = {**REPLY, "from": "person"}
    script = use("ask_person", {"question": "Which branch?", "timeoutMs": 60_000, **more}, SENT, answer)
    send, wait = script.asked
    assert (send.method, send.params["agentId"], send.params["payload"]) == ("messages.send", "person", payload)
    assert (send.params["ticketId"], send.params["timeoutMs"]) == (script.call_id, 60_000)
    assert wait.params == {"ticketId": script.call_id}
    assert script.result["note"].startswith("person: written by the person at this machine")


def test_a_message_can_be_sent_to_the_person_by_name_too():
    script = use("send_message", {"agentId": "person", "payload": "hi"}, SENT, REPLY)
    assert script.asked[0].params["agentId"] == "person"


def test_ten_choices_are_no_choice():
    with pytest.raises(InvalidRequest, match="choices"):
        Script("ask_person", {"question": "?", "choices": list("abcdefghij")}, whole=True)
