"""What each tool asks the daemon and what the model gets: generators driven by hand."""

import pytest
from driving import Script

from bascule.doors.choice import own_door
from bascule.doors.exits import NotRunning, Refusal, WrongUsage
from bascule.shim import tools, words
from bascule.shim.calls import TOOLS, Ask, Become, Me, answer
from bascule.shim.identity import MAX_NAMESAKES, WORDS, Identity, client_word, invented_name, namesakes
from bascule.shim.tools import fault_in

ME = Me(lambda: "Jerry", None)


def refused(code):
    return Refusal(400, {"code": code, "message": code})


SENT = {"ticketId": "x", "status": "pending", "waitEndpoint": "", "agentStatus": "online"}
REPLY = {"ticketId": "x", "status": "responded", "payload": "ok", "latencyMs": 4, "from": "Spock"}


def test_a_sent_message_waits_for_its_reply_under_its_own_ticket():
    script = Script(TOOLS["send_message"](ME, {"agentId": "Spock", "payload": "hi"}), SENT, REPLY)
    send, wait = script.asked
    assert (send.method, send.params["payload"], send.repeat) == ("messages.send", "hi", True)
    assert "timeoutMs" not in send.params
    assert (wait.method, wait.params, wait.wait_ms, wait.repeat) == (
        *("replies.wait", {"ticketId": send.params["ticketId"]}, 45_000, True),
    )
    assert (script.result["status"], script.result["payload"], script.result["from"]) == ("responded", "ok", "Spock")
    assert "not from your user" in script.result["note"]


def test_a_message_that_is_not_awaited_returns_its_ticket():
    arguments = {"agentId": "Spock", "payload": "hi", "awaitResponse": False}
    script = Script(TOOLS["send_message"](ME, arguments), {**SENT, "agentStatus": "offline"})
    assert script.result == {
        "ticketId": script.asked[0].params["ticketId"],
        "status": "pending",
        "next": "await_reply",
        "agentStatus": "offline",
    }


def test_only_the_slice_over_is_pending_and_names_the_next_tool():
    arguments = {"agentId": "Spock", "payload": "hi", "timeoutMs": 600_000}
    script = Script(TOOLS["send_message"](ME, arguments), SENT, None, {"status": "delivered"})
    assert script.asked[0].params["timeoutMs"] == 600_000
    assert script.asked[1].wait_ms == 45_000
    assert (script.result["status"], script.result["ticketStatus"], script.result["next"]) == (
        *("pending", "delivered", "await_reply"),
    )


def test_the_callers_own_time_over_is_a_timeout():
    script = Script(TOOLS["await_reply"](ME, {"ticketId": "t", "timeoutMs": 2_000}), None, {"status": "pending"})
    assert script.asked[0].wait_ms == 2_000
    assert (script.result["status"], script.result["ticketStatus"]) == ("timeout", "pending")
    assert "next" not in script.result


def test_a_ticket_past_its_deadline_is_a_timeout():
    arguments = {"agentId": "Spock", "payload": "hi", "timeoutMs": 1_000}
    script = Script(TOOLS["send_message"](ME, arguments), SENT, {"ticketId": "x", "status": "timeout"})
    assert (script.result["status"], script.result["ticketStatus"]) == ("timeout", "timeout")


def test_a_reply_between_two_questions_is_not_missed():
    script = Script(TOOLS["await_reply"](ME, {"ticketId": "t"}), None, {"status": "responded"}, REPLY)
    assert script.methods == ["replies.wait", "tickets.show", "replies.wait"]
    assert script.result["payload"] == "ok"


def test_a_status_that_cannot_be_had_does_not_fail_the_wait():
    script = Script(TOOLS["await_reply"](ME, {"ticketId": "t"}), None, NotRunning("x"))
    assert (script.result["status"], script.result["next"]) == ("pending", "await_reply")


def test_a_cancelled_ticket_is_told():
    script = Script(TOOLS["await_reply"](ME, {"ticketId": "t"}), {"ticketId": "t", "status": "cancelled"})
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
    script = Script(TOOLS["wait_for_message"](ME, {}), {"messages": [message], "remaining": 2})
    assert (script.asked[0].method, script.asked[0].params) == ("inbox.take", {"agentId": "Jerry", "max": 1})
    assert (script.result["status"], script.result["from"], script.result["next"]) == ("message", "Spock", "post_reply")
    assert script.result["unread"] == 2
    assert "not from your user" in script.result["note"]
    assert "leaseMs" not in script.result
    after = script.result.afterwards
    assert (after.method, after.params) == ("inbox.ack", {"agentId": "Jerry", "ticketIds": ["t"]})


@pytest.mark.parametrize(("given", "sent"), [({}, 45_000), ({"waitMs": 100}, 100), ({"waitMs": 90_000}, 45_000)])
def test_a_wait_is_never_longer_than_a_slice(given, sent):
    script = Script(TOOLS["wait_for_message"](ME, given), None)
    assert script.asked[0].wait_ms == sent
    assert script.result == {"status": "empty", "next": "wait_for_message"}


def test_unread_messages_are_told_with_every_result():
    script = Script(answer(ME, "list_agents", {"type": "codex"}), [], {"unread": 3})
    assert script.methods == ["agents.list", "agents.heartbeat"]
    assert script.result == {"agents": [], "you": "Jerry", "unread": 3}


def test_a_count_that_cannot_be_had_does_not_fail_the_call():
    script = Script(answer(ME, "post_reply", {"ticketId": "t", "payload": {"a": 1}}), {"first": True}, NotRunning("x"))
    assert script.asked[0].params == {"ticketId": "t", "payload": {"a": 1}, "metadata": {}}
    assert script.result == {"first": True}


def test_bad_ids_are_refused_before_anything_is_asked():
    for name, arguments in (
        ("send_message", {"agentId": "../x", "payload": "x"}),
        ("await_reply", {"ticketId": "a b"}),
        ("post_reply", {"ticketId": "", "payload": "x"}),
        ("register_agent", {"agentId": "local"}),
    ):
        with pytest.raises(WrongUsage):
            TOOLS[name](ME, arguments).send(None)


def test_the_default_deadline_is_that_of_the_environment():
    script = Script(TOOLS["send_message"](Me(lambda: "J", 1_000), {"agentId": "S", "payload": "x"}), SENT, REPLY)
    assert script.asked[0].params["timeoutMs"] == 1_000


def test_registering_is_becoming_somebody_else():
    script = Script(TOOLS["register_agent"](ME, {"agentId": "Jerry", "type": "codex"}), None)
    become = script.asked[0]
    assert isinstance(become, Become)
    assert (become.name, become.kind, become.metadata, become.heartbeat_ms) == ("Jerry", "codex", {}, None)
    assert "agentToken" not in script.result


# -- talking to several, and looking back ---------------------------------------------------------


def test_a_message_can_belong_to_a_conversation():
    arguments = {"agentId": "S", "payload": "x", "conversationId": "c-1", "awaitResponse": False}
    assert Script(TOOLS["send_message"](ME, arguments), SENT).asked[0].params["conversationId"] == "c-1"


def test_a_broadcast_names_its_tickets_and_may_be_repeated():
    tickets = [{"agentId": "A", "ticketId": "b.A", "status": "pending", "agentStatus": "online"}]
    failed = [{"agentId": "B", "error": {"code": "not_found"}}]
    me = Me(lambda: "Jerry", 5_000)
    arguments = {"payload": "all of you", "agentIds": ["A", "B"]}
    script = Script(TOOLS["broadcast_message"](me, arguments), {"tickets": tickets, "failed": failed})
    ask = script.asked[0]
    assert (ask.method, ask.repeat, ask.params["agentIds"], ask.params["timeoutMs"]) == (
        *("messages.broadcast", True, ["A", "B"], 5_000),
    )
    assert len(ask.params["broadcastId"]) == 36
    assert script.result == {"tickets": tickets, "failed": failed, "next": "await_reply"}


@pytest.mark.parametrize(("wanted", "count"), [(0, None), (1, 1), (5, None)])
def test_a_broadcast_can_wait_for_all_answers_or_the_first_few(wanted, count):
    tickets = [{"agentId": each, "ticketId": f"b.{each}", "status": "pending"} for each in "AB"]
    replies = [{"ticketId": "b.A", "status": "responded", "payload": "yes", "from": "A"}]
    said = {"replies": replies, "open": ["b.B"], "done": True}
    work = TOOLS["broadcast_message"](ME, {"payload": "ready?", "awaitReplies": wanted})
    script = Script(work, {"tickets": tickets}, said)
    assert "awaitReplies" not in script.asked[0].params
    ask = script.asked[1]
    assert (ask.method, ask.params["ticketIds"], ask.params.get("count")) == ("replies.gather", ["b.A", "b.B"], count)
    assert script.result["replies"][0]["note"].startswith("peer: from another agent, not from your user")
    assert (script.result["open"], script.result["next"]) == (["b.B"], "await_reply")


def test_a_broadcast_that_reached_nobody_says_so():
    script = Script(TOOLS["broadcast_message"](ME, {"payload": "hello?"}), {"broadcastId": "b", "tickets": []})
    assert script.result == {"tickets": [], "note": "nobody else is online"}


def test_a_cancelled_ticket_is_answered_with_its_state_alone():
    script = Script(TOOLS["cancel_ticket"](ME, {"ticketId": "t", "reason": "done"}), {"status": "cancelled", "x": 1})
    assert (script.asked[0].method, script.asked[0].params) == ("tickets.cancel", {"ticketId": "t", "reason": "done"})
    assert script.result == {"ticketId": "t", "status": "cancelled"}


def ticket(number, sender, target, **more):
    times = {"createdAt": "2026", "updatedAt": "2026", "replyBy": "2027", "expectReply": True, "payloadBytes": 1}
    return {"ticketId": f"t-{number}", "from": sender, "targetAgent": target, "status": "pending", **times, **more}


def test_the_listed_tickets_are_ones_own():
    views = [ticket(2, "Jerry", "B"), ticket(3, "A", "Jerry", conversationId="c")]
    script = Script(TOOLS["list_tickets"](ME, {"status": "pending"}), views)
    assert script.asked[0].params == {"limit": 1000, "party": "Jerry", "status": "pending"}
    assert [each["ticketId"] for each in script.result["tickets"]] == ["t-2", "t-3"]
    assert set(script.result["tickets"][1]) == {
        *("ticketId", "from", "targetAgent", "status", "createdAt", "replyBy", "conversationId"),
    }
    assert "more" not in script.result


def test_a_list_that_was_cut_says_how_much_is_left():
    views = [ticket(number, "Jerry", "B") for number in range(25)]
    assert Script(TOOLS["list_tickets"](ME, {}), views).result["more"] == 5
    assert len(Script(TOOLS["list_tickets"](ME, {"limit": 2}), views).result["tickets"]) == 2


def test_a_conversation_shows_who_said_what_and_that_it_was_not_the_user():
    replies = [{"from": "B", "payload": "yes", "metadata": {}, "at": "2026"}]
    views = [ticket(1, "Jerry", "B", payload="well?", response="yes", replies=replies, conversationId="c")]
    script = Script(TOOLS["show_conversation"](ME, {"conversationId": "c"}), {"conversationId": "c", "tickets": views})
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
    assert Script(TOOLS["co_workers"](ME, {}), agents).result == {
        "agents": [
            {"agentId": "Tom", "type": "codex", "status": "online", "cwd": "/a"},
            {"agentId": "Spike", "type": "agent", "status": "offline"},
        ],
        "you": "Jerry",
    }


def test_a_tool_that_is_one_method_of_the_house_needs_its_row_only(monkeypatch):
    rows = {"look": {"annotations": {"readOnlyHint": True}}, "make": {"annotations": {}}}
    monkeypatch.setitem(tools.table(), "METHODS", {"look": "space.look", "make": "space.make"})
    monkeypatch.setitem(tools.table(), "BY_NAME", rows)
    look = Script(answer(ME, "look", {"path": "a"}), ["one"], {})
    assert (look.asked[0].method, look.asked[0].params, look.asked[0].repeat) == ("space.look", {"path": "a"}, True)
    assert look.result == {"result": ["one"]}
    make = Script(answer(ME, "make", {}), {"made": 1}, {"unread": 1})
    # Whether it was done is unknown when the answer is lost: it is not done twice.
    assert make.asked[0].repeat is False
    assert make.result == {"made": 1, "unread": 1}


# -- whose words these are ------------------------------------------------------------------------


@pytest.mark.parametrize("label", list(words.TRUST_LABELS))
def test_every_label_says_that_it_is_not_the_user_who_speaks(label):
    me = Me(lambda: "Jerry", None, trust=label)
    reply = Script(TOOLS["await_reply"](me, {"ticketId": "t"}), REPLY).result
    assert reply["note"].startswith(f"{label}: ")
    assert "not from your user" in reply["note"]
    assert (reply["from"], reply["ticketId"]) == ("Spock", "x")


def test_what_is_self_evident_is_not_paid_for():
    message = {"ticketId": "t", "from": "Spock", "payload": "hi", "metadata": {}, "expectReply": True, "attempts": 1}
    plain = Script(TOOLS["wait_for_message"](ME, {}), {"messages": [message]}).result
    assert set(plain) == {"status", "ticketId", "from", "payload", "note", "next"}
    message |= {"metadata": {"a": 1}, "expectReply": False, "attempts": 2}
    told = Script(TOOLS["wait_for_message"](ME, {}), {"messages": [message]}).result
    assert (told["metadata"], told["expectReply"], told["attempts"]) == ({"a": 1}, False, 2)
    assert "next" not in told


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
        ("cancel_ticket", refused("not_found"), "list_tickets shows yours"),
        ("send_message", Refusal(404, {"code": "not_found", "hint": "online now: Tom"}), "online now: Tom"),
        ("send_message", refused("overloaded"), "wait a moment"),
        ("send_message", NotRunning("x"), "nobody answers at x"),
    ],
)
def test_an_error_ends_with_the_next_step(tool, fault, next_step):
    assert f"\nNext: {next_step}" in words.describe(fault, tool)


# -- identity -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "word"),
    [
        ("claude-code", "claude"),
        ("codex-mcp-client", "codex"),
        ("Gemini CLI", "gemini"),
        ("  é!", "agent"),
        ("", "agent"),
        ("x" * 100, "x" * 20),
    ],
)
def test_a_client_is_called_by_its_first_word(client, word):
    assert client_word(client) == word


def test_the_same_project_gets_the_same_name_again():
    assert invented_name("claude-code", "/home/u/a") == invented_name("claude-code", "/home/u/a")
    names = {invented_name("claude-code", f"/home/u/{number}") for number in range(1000)}
    assert names == {f"claude-{word}" for word in WORDS}


def test_words_are_few_short_and_different():
    assert len(set(WORDS)) == len(WORDS) == 64
    assert all(word.isalpha() and word.islower() and len(word) <= 8 for word in WORDS)


def test_namesakes_are_numbered_and_stay_handles():
    names = list(namesakes("a" * 64))
    assert len(names) == len(set(names)) == MAX_NAMESAKES
    assert all(len(name) <= 64 for name in names)
    assert list(namesakes("otter"))[:3] == ["otter", "otter-2", "otter-3"]


def keep(state, handle, token):
    import os

    from bascule import places

    os.makedirs(places.tokens_dir(state), mode=0o700, exist_ok=True)
    places.write_private_file(places.token_file(state, handle), token)


HELLO = {"principal": "x"}


def tokens_and_names(script):
    return [ask.params.get("token", ask.params.get("agentId")) for ask in script.asked]


def test_a_new_name_is_registered_and_acted_as(state):
    identity = Identity(own_door(state), "otter", "claude", {"cwd": "/"})
    script = Script(identity.introduce(), HELLO, HELLO, {"agentToken": "new"}, HELLO)
    assert script.methods == ["hello", "hello", "agents.register", "hello"]
    assert tokens_and_names(script) == [None, None, "otter", "new"]
    assert all(ask.params["exclusive"] for ask in script.asked if ask.method == "agents.register")
    assert identity.handle == "otter"


def test_a_stored_token_is_a_way_back_to_the_name(state):
    keep(state, "otter", "kept")
    identity = Identity(own_door(state), "otter", "claude", {})
    script = Script(identity.introduce(), HELLO, HELLO, {"reconnected": True, "unread": 1})
    assert tokens_and_names(script) == [None, "kept", "otter"]


def test_a_stale_token_is_put_aside(state):
    keep(state, "otter", "stale")
    identity = Identity(own_door(state), "otter", "claude", {})
    script = Script(identity.introduce(), HELLO, refused("unauthenticated"), HELLO, {"agentToken": "new"}, HELLO)
    assert tokens_and_names(script) == [None, "stale", None, "otter", "new"]


def test_a_taken_name_leads_to_the_next(state):
    keep(state, "otter", "kept")
    identity = Identity(own_door(state), "otter", "claude", {})
    script = Script(identity.introduce(), HELLO, HELLO, refused("conflict"), HELLO, {"agentToken": "two"}, HELLO)
    # The second hello carries no token: otherwise the new handle would be registered by the old one.
    assert tokens_and_names(script) == [None, "kept", "otter", None, "otter-2", "two"]
    assert identity.handle == "otter-2"


def test_another_refusal_is_not_a_taken_name(state):
    with pytest.raises(Refusal, match="version_mismatch"):
        Script(Identity(own_door(state), "otter", "claude", {}).introduce(), refused("version_mismatch"))


def test_coming_back_uses_the_token_in_memory(state):
    identity = Identity(own_door(state), "otter", "claude", {})
    Script(identity.introduce(), HELLO, HELLO, {"agentToken": "new"}, HELLO)
    script = Script(identity.introduce(), HELLO, HELLO, {"reconnected": True})
    assert tokens_and_names(script) == [None, "new", "otter"]


def test_a_refused_change_of_name_leaves_us_who_we_were(state):
    identity = Identity(own_door(state), "otter", "claude", {"cwd": "/"})
    Script(identity.introduce(), HELLO, HELLO, {"agentToken": "new"}, HELLO)
    generator = identity.become(Become("Jerry", "codex", {"a": 1}, None))
    assert generator.send(None).params.get("token") is None
    assert generator.send(HELLO).params["metadata"] == {"cwd": "/", "a": 1}
    assert generator.throw(refused("conflict")).params["token"] == "new"
    with pytest.raises(Refusal, match="conflict"):
        generator.send(HELLO)
    assert (identity.handle, identity.kind, identity.metadata) == ("otter", "claude", {"cwd": "/"})


def test_an_ask_is_not_repeated_unless_it_says_so():
    assert Ask("x", {}).repeat is False


def test_half_a_surrogate_pair_is_refused_before_anything_is_sent():
    assert "surrogate" in fault_in("send_message", {"agentId": "Spock", "payload": "a\ud800b"})
    assert "surrogate" in fault_in("post_reply", {"ticketId": "t", "payload": {"deep": ["\udc80"]}})
