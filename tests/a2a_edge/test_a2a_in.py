"""Clients of the a2a-sdk ask agents of a real daemon: both versions of the protocol, both bindings."""

import asyncio
import contextlib

import pytest
from a2a.client.errors import A2AClientError
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetExtendedAgentCardRequest,
    GetTaskRequest,
    ListTasksRequest,
    Part,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    UnsupportedOperationError,
)
from edge_scene import (
    BINDINGS,
    VERSIONS,
    Edge,
    answered_now,
    events,
    plain,
    rpc,
    run,
    sdk_client,
    text_message,
    text_of,
)

SUBMITTED = TaskState.TASK_STATE_SUBMITTED
WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
CANCELED = TaskState.TASK_STATE_CANCELED

every_way = pytest.mark.parametrize(
    "way", [{"binding": binding, "version": version} for version in VERSIONS for binding in BINDINGS], ids=str
)


async def one(client, request):
    """The task that a message became."""
    found = await events(client.send_message(request))
    return found[0].task


@pytest.fixture
def agent(edge):
    return edge.agent()


@pytest.fixture
def token(edge):
    return edge.token()


# -- asking --


@every_way
def test_a_message_waits_for_its_answer(edge, agent, token, way):
    async def ask():
        async with sdk_client(edge.base, agent.handle, token, **way) as client:
            task, message = await asyncio.gather(
                one(client, text_message("rain?")), asyncio.to_thread(agent.answer, "no")
            )
        assert task.status.state == COMPLETED
        assert [text_of(each) for each in task.artifacts] == ["no"]
        assert task.artifacts[0].metadata["from"] == agent.handle
        assert message["payload"] == "rain?"
        assert message["from"].startswith("a2a:client")
        assert message["ticketId"] == task.id
        assert task.id.startswith("a2a_")

    run(ask())


@every_way
def test_a_stream_brings_the_task_its_answer_and_its_end(edge, agent, token, way):
    async def ask():
        async with sdk_client(edge.base, agent.handle, token, streaming=True, **way) as client:
            found, _ = await asyncio.gather(
                events(client.send_message(text_message("rain?"))),
                asyncio.to_thread(agent.answer, {"rain": [1, 2.5, None]}),
            )
        assert [each.WhichOneof("payload") for each in found] == ["task", "artifact_update", "status_update"]
        assert found[0].task.status.state in (SUBMITTED, WORKING)
        assert dict(found[1].artifact_update.artifact.parts[0].data.struct_value) == {"rain": [1, 2.5, None]}
        assert found[2].status_update.status.state == COMPLETED

    run(ask())


@every_way
def test_the_life_of_a_task_as_its_client_sees_it(edge, agent, token, way):
    async def follow():
        async with sdk_client(edge.base, agent.handle, token, **way) as client:
            task = await one(client, text_message("rain?", now=True))
            assert task.status.state == SUBMITTED
            message = await asyncio.to_thread(agent.take)
            seen = await client.get_task(GetTaskRequest(id=task.id))
            assert seen.status.state == WORKING
            assert text_of(seen.history[0]) == "rain?"
            agent.reply(message["ticketId"], "no")
            seen = await client.get_task(GetTaskRequest(id=task.id))
            assert (seen.status.state, text_of(seen.artifacts[0])) == (COMPLETED, "no")
            with pytest.raises((TaskNotCancelableError, A2AClientError)):
                await client.cancel_task(CancelTaskRequest(id=task.id))

    run(follow())


@every_way
def test_a_task_is_cancelled_by_its_client(edge, agent, token, way):
    async def cancel():
        async with sdk_client(edge.base, agent.handle, token, **way) as client:
            task = await one(client, text_message("rain?", now=True))
            assert (await client.cancel_task(CancelTaskRequest(id=task.id))).status.state == CANCELED
            assert (await client.get_task(GetTaskRequest(id=task.id))).status.state == CANCELED
        assert agent.inbox() == 0

    run(cancel())


@every_way
def test_a_task_is_subscribed_to_until_it_ends_and_not_afterwards(edge, agent, token, way):
    async def subscribe():
        async with sdk_client(edge.base, agent.handle, token, streaming=True, **way) as client:
            task = (await anext(client.send_message(text_message("rain?")))).task
            following = client.subscribe(SubscribeToTaskRequest(id=task.id))
            assert (await anext(following)).task.id == task.id
            await asyncio.to_thread(agent.answer, "no")
            found = await events(following)
            assert found[-1].status_update.status.state == COMPLETED
            with pytest.raises((UnsupportedOperationError, A2AClientError)):
                await events(client.subscribe(SubscribeToTaskRequest(id=task.id)))

    run(subscribe())


def test_a_reply_that_comes_late_still_completes_the_task(state):
    with Edge(state, default_timeout_ms=300) as edge:
        agent, token = edge.agent("Jerry"), edge.token("Ann")

        async def ask():
            async with sdk_client(edge.base, "Jerry", token) as client:
                task = await one(client, text_message("rain?"))
                assert task.status.state == WORKING
                assert "late" in text_of(task.status.message)
                await asyncio.to_thread(agent.answer, "no")
                assert (await client.get_task(GetTaskRequest(id=task.id))).status.state == COMPLETED

        run(ask())


# -- the same again --


def test_the_same_message_again_is_the_same_task_and_is_delivered_once(edge, agent, token):
    async def again():
        async with sdk_client(edge.base, agent.handle, token) as client:
            tasks = [await one(client, text_message("rain?", message_id="m1", now=True)) for _ in range(3)]
            assert len({task.id for task in tasks}) == 1
            assert len({task.context_id for task in tasks}) == 1
            with pytest.raises(InvalidParamsError):
                await one(client, text_message("snow?", message_id="m1", now=True))
            return tasks[0].id

    first = run(again())
    assert agent.inbox() == 1
    # The same id of another client, and to another agent, is another message.
    other = edge.agent()
    assert (
        rpc(edge, agent.handle, edge.token(), "SendMessage", answered_now(plain("rain?")))["result"]["task"]["id"]
        != first
    )
    assert rpc(edge, other.handle, token, "SendMessage", answered_now(plain("rain?")))["result"]["task"]["id"] != first
    assert (agent.inbox(), other.inbox()) == (2, 1)


def test_nobody_here_can_take_the_id_of_a_message_to_come(edge, agent, token):
    """Ids of tickets come from a key of the daemon's: what a client will say cannot be squatted on."""
    task = rpc(edge, agent.handle, token, "SendMessage", answered_now(plain("rain?", "m1")))["result"]["task"]
    for guess in ("m1", "a2a_m1", "a2a:m1"):
        assert guess != task["id"]
    refusal = edge.user.refusal("messages.send", {"agentId": agent.handle, "payload": "rain?", "ticketId": task["id"]})
    assert refusal["code"] == "conflict"


def test_a_context_is_a_conversation_of_this_client_alone(edge, agent, token):
    ours = [
        rpc(edge, agent.handle, token, "SendMessage", answered_now(plain(text, text, contextId="trip")))["result"][
            "task"
        ]
        for text in ("one", "two")
    ]
    theirs = rpc(edge, agent.handle, edge.token(), "SendMessage", answered_now(plain("one", "x", contextId="trip")))
    assert {each["contextId"] for each in (*ours, theirs["result"]["task"])} == {"trip"}
    conversations = {}
    for _ in range(3):
        message = agent.take()
        conversations.setdefault(message["conversationId"], []).append(message["payload"])
    assert sorted(conversations.values()) == [["one"], ["one", "two"]]
    assert "trip" not in conversations


# -- listing --


def test_a_list_has_the_clients_own_tasks_of_this_agent_and_pages(edge, agent, token):
    other, stranger = edge.agent(), edge.token()
    for number in range(5):
        rpc(
            edge,
            agent.handle,
            token,
            "SendMessage",
            answered_now(plain(f"q{number}", f"m{number}", contextId=f"c{number % 2}")),
        )
    rpc(edge, other.handle, token, "SendMessage", answered_now(plain("elsewhere")))
    rpc(edge, agent.handle, stranger, "SendMessage", answered_now(plain("not yours")))
    agent.answer("done")

    async def listed(**wanted):
        async with sdk_client(edge.base, agent.handle, token) as client:
            return await client.list_tasks(ListTasksRequest(**wanted))

    whole = run(listed())
    assert (whole.total_size, len(whole.tasks), whole.next_page_token) == (5, 5, "")
    pages, after = [], ""
    while True:
        page = run(listed(page_size=2, page_token=after))
        pages.append([task.id for task in page.tasks])
        if not (after := page.next_page_token):
            break
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [each for page in pages for each in page] == [task.id for task in whole.tasks]
    assert len(run(listed(context_id="c1")).tasks) == 2
    assert [task.status.state for task in run(listed(status=COMPLETED)).tasks] == [COMPLETED]
    assert run(listed(status=TaskState.TASK_STATE_FAILED)).total_size == 0
    assert not any(task.artifacts for task in whole.tasks)
    done = run(listed(status=COMPLETED, include_artifacts=True, history_length=1)).tasks[0]
    assert text_of(done.artifacts[0]) == "done"
    assert done.history
    for wrong in ({"page_size": 0}, {"page_size": 101}, {"page_token": "x"}):
        with pytest.raises(InvalidParamsError):
            run(listed(**wrong))


# -- what is not theirs, and what is not there --


@every_way
def test_a_task_of_another_client_is_a_task_that_does_not_exist(edge, agent, token, way):
    task = rpc(edge, agent.handle, token, "SendMessage", answered_now(plain("mine")))["result"]["task"]
    secret = edge.user.call("messages.send", {"agentId": agent.handle, "payload": "local"})["ticketId"]

    async def look():
        refusals_of: dict[str, set[str]] = {}
        async with sdk_client(edge.base, agent.handle, edge.token(), streaming=True, **way) as client:
            for task_id in (task["id"], secret, "unknown", "a" * 300):
                for name, call in (
                    ("get", client.get_task(GetTaskRequest(id=task_id))),
                    ("cancel", client.cancel_task(CancelTaskRequest(id=task_id))),
                    ("subscribe", events(client.subscribe(SubscribeToTaskRequest(id=task_id)))),
                ):
                    with pytest.raises(A2AError) as refusal:
                        await call
                    refusals_of.setdefault(name, set()).add(str(refusal.value).replace(task_id, "..."))
        # Not a word tells one that is there from one that is not.
        assert [len(words) for words in refusals_of.values()] == [1, 1, 1]

    run(look())
    # With another agent of the same client it is none either.
    other = edge.agent()
    assert rpc(edge, other.handle, token, "GetTask", {"id": task["id"]})["error"]["code"] == -32001


def test_a_message_into_a_task_is_refused_and_an_unknown_task_is_said_to_be_unknown(edge, agent, token):
    task = rpc(edge, agent.handle, token, "SendMessage", answered_now(plain("one")))["result"]["task"]
    assert (
        rpc(edge, agent.handle, token, "SendMessage", plain("two", "m2", taskId=task["id"]))["error"]["code"] == -32004
    )
    assert rpc(edge, agent.handle, token, "SendMessage", plain("two", "m2", taskId="x"))["error"]["code"] == -32001
    assert agent.inbox() == 1


@every_way
def test_push_notifications_and_an_extended_card_are_not_offered(edge, agent, token, way):
    async def ask():
        async with sdk_client(edge.base, agent.handle, token, **way) as client:
            card = client._card
            assert not card.capabilities.push_notifications
            assert not card.capabilities.extended_agent_card
            with pytest.raises((PushNotificationNotSupportedError, A2AClientError)):
                await client.create_task_push_notification_config(
                    TaskPushNotificationConfig(task_id="x", id="y", url="http://127.0.0.1:1")
                )
            await client.get_extended_agent_card(GetExtendedAgentCardRequest())

    run(ask())
    with_push = {
        **answered_now(plain("x")),
        "configuration": {"taskPushNotificationConfig": {"url": "http://127.0.0.1:1"}},
    }
    assert rpc(edge, agent.handle, token, "SendMessage", with_push)["error"]["code"] == -32003
    assert agent.inbox() == 0


@pytest.mark.parametrize("part", [Part(raw=b"x"), Part(url="http://127.0.0.1/"), Part()])
def test_files_are_not_taken(edge, agent, token, part):
    async def ask():
        async with sdk_client(edge.base, agent.handle, token) as client:
            request = text_message("look at this")
            request.message.parts.append(part)
            with pytest.raises(ContentTypeNotSupportedError):
                await one(client, request)

    run(ask())
    assert agent.inbox() == 0


# -- policy --


def test_a_policy_that_denies_rejects_the_task(state):
    with Edge(state, policy="restrictive") as edge:
        agent, token = edge.agent("Jerry"), edge.token("Ann")
        task = rpc(edge, "Jerry", token, "SendMessage", plain("x"))["result"]["task"]
        assert task["status"]["state"] == "TASK_STATE_REJECTED"
        assert "nobody outside" in task["status"]["message"]["parts"][0]["text"]
        assert rpc(edge, "Jerry", token, "GetTask", {"id": task["id"]})["result"]["status"] == task["status"]
        assert rpc(edge, "Jerry", edge.token(), "GetTask", {"id": task["id"]})["error"]["code"] == -32001
        assert rpc(edge, "Jerry", token, "CancelTask", {"id": task["id"]})["error"]["code"] == -32002
        old = rpc(edge, "Jerry", token, "message/send", _old("x"), version="0.3")["result"]
        assert old["status"]["state"] == "rejected"
        assert agent.inbox() == 0
        refused = edge.user.call("ledger.show", {"what": "a2a:Ann"})
        assert {each["outcome"] for each in refused if each["method"] == "messages.send"} == {"policy_denied"}


def _old(text, message_id="o1", **more):
    return {"message": {"messageId": message_id, "role": "user", "parts": [{"kind": "text", "text": text}], **more}}


# -- bad days --


def test_tasks_survive_a_daemon_that_is_killed(state):
    with Edge(state) as edge:
        agent, token = edge.agent("Jerry"), edge.token("Ann")
        task = rpc(edge, "Jerry", token, "SendMessage", answered_now(plain("rain?", contextId="trip")))["result"][
            "task"
        ]
        port = edge.a2a_port
        edge.kill()
    with Edge(state, a2a_port=port) as edge:
        again = rpc(edge, "Jerry", token, "SendMessage", answered_now(plain("rain?", contextId="trip")))["result"][
            "task"
        ]
        assert again["id"] == task["id"]
        agent = edge.comes_back("Jerry")
        agent.answer("no")
        shown = rpc(edge, "Jerry", token, "GetTask", {"id": task["id"]})["result"]
        assert shown["status"]["state"] == "TASK_STATE_COMPLETED"
        assert shown["contextId"] == "trip"
        assert agent.inbox() == 0


def test_a_stream_ends_when_the_daemon_stops(state):
    with Edge(state) as edge:
        edge.agent("Jerry")
        token = edge.token("Ann")

        async def ask():
            async with sdk_client(edge.base, "Jerry", token, streaming=True) as client:
                stream = client.send_message(text_message("rain?"))
                await anext(stream)
                stopping = asyncio.create_task(asyncio.to_thread(edge.stop))
                with contextlib.suppress(A2AClientError):
                    await events(stream)
                assert await stopping == 0

        run(ask())


def test_everything_is_stopped_for_clients_too(state):
    with Edge(state) as edge:
        agent, token = edge.agent("Jerry"), edge.token("Ann")
        edge.user.call("admin.stop", {})
        refused = rpc(edge, "Jerry", token, "SendMessage", answered_now(plain("x")))
        assert "stopped" in refused["error"]["message"]
        assert agent.inbox() == 0
