"""Groups and gathered answers through the clients, a served agent and the MCP tools."""

import asyncio

from bascule.client import Client, SyncClient, serve
from patience import PATIENCE


def test_two_programs_of_one_group_share_its_work_and_their_answers_are_gathered(daemon):
    done: dict[str, int] = {"Ann": 0, "Bob": 0}

    def worker(name):
        @serve(name, groups=["reviewers"])
        async def work(message):
            done[name] += 1
            await asyncio.sleep(0.01)
            return f"{name}: {message.payload}"

        return work

    async def story():
        workers = [worker(name) for name in done]
        async with Client.connect(daemon.state_dir) as client, asyncio.TaskGroup() as group:
            for each in workers:
                group.create_task(each.serve(state_dir=daemon.state_dir))
            async for _ in client.events(after=0):
                if len([each for each in await client.agents() if each.groups == ["reviewers"]]) == 2:
                    break
            sent = [await client.send("reviewers", f"diff {number}") for number in range(10)]
            result = await client.gather([each.ticket_id for each in sent], timeout=PATIENCE)
            for each in workers:
                each.stop()
        return result

    result = asyncio.run(story())
    assert result.done
    assert sorted(reply.payload.partition(": ")[2] for reply in result.replies) == sorted(
        f"diff {number}" for number in range(10)
    )
    assert sum(done.values()) == 10
    assert min(done.values()) >= 1


def test_the_first_answer_is_enough_and_time_may_run_out(daemon):
    with (
        SyncClient.connect(daemon.state_dir) as client,
        SyncClient.connect(daemon.state_dir, "Ann", register=True) as ann,
        SyncClient.connect(daemon.state_dir, "Bob", register=True),
    ):
        answer = client.broadcast("ready?", agent_ids=["Ann", "Bob"])
        tickets = [each.ticket_id for each in answer.tickets]
        assert client.gather(tickets, timeout=0.05).done is False
        ann.reply(tickets[0], "yes")
        first = client.gather(tickets, count=1, timeout=PATIENCE)
        assert ([reply.payload for reply in first.replies], first.open, first.done) == (["yes"], [tickets[1]], True)


def test_answers_that_do_not_fit_into_one_frame_are_gathered_all_the_same(daemon):
    """Nine of a megabyte: `too_large` before, for ever."""
    large = "x" * (1024 * 1024 - 2)
    with (
        SyncClient.connect(daemon.state_dir) as client,
        SyncClient.connect(daemon.state_dir, "Large", register=True) as large_agent,
    ):
        tickets = [client.send("Large", f"{number}?").ticket_id for number in range(9)]
        for ticket in tickets:
            large_agent.reply(ticket, large)
        gathered = client.gather(tickets, timeout=PATIENCE)
    assert [each.ticket_id for each in gathered.replies] == tickets
    assert all(each.payload == large for each in gathered.replies)
    assert (gathered.more, gathered.open, gathered.done) == ([], [], True)
