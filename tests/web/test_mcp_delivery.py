"""One request's way back, with a client that leaves at every moment."""

import asyncio

import pytest

from bascule.surfaces.mcp.delivery import Delivery, Handover
from patience import PATIENCE


class Scene:
    """A server's side of one request: what was written, and when the client leaves."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.written: list[bytes] = []
        self.outcomes: list[str] = []
        self.delivery = Delivery(b"asked", self.receive, self.send)

    async def receive(self):
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if message["type"] == "http.response.body":
            self.written.append(message["body"])

    def hand_over(self):
        self.delivery.hand_over(
            Handover(b"t-1", lambda: self.outcomes.append("arrived"), lambda: self.outcomes.append("lost"))
        )

    async def serve(self, app):
        await self.delivery.serve(app, {})


def scene(story):
    async def outcomes():
        set_up = Scene()
        await story(set_up)
        return set_up

    return asyncio.run(asyncio.wait_for(outcomes(), PATIENCE))


async def say(send, body, *, more=False):
    await send({"type": "http.response.body", "body": body, "more_body": more})


def test_what_was_written_has_arrived():
    async def story(here):
        async def app(_scope, receive, send):
            assert (await receive())["body"] == b"asked"
            here.hand_over()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            assert here.outcomes == []
            await say(send, b"the answer with t-1 in it")

        await here.serve(app)

    assert scene(story).outcomes == ["arrived"]


def test_a_handed_over_message_has_arrived_before_the_end_of_the_stream():
    async def story(here):
        async def app(_scope, _receive, send):
            here.hand_over()
            await say(send, b"progress", more=True)
            assert here.outcomes == []
            await say(send, b"data: t-1", more=True)
            assert here.outcomes == ["arrived"]
            here.left.set()
            await asyncio.sleep(0)
            await say(send, b"")

        await here.serve(app)

    assert scene(story).outcomes == ["arrived"]


def test_a_client_that_left_before_it_was_written_did_not_get_it():
    async def story(here):
        async def app(_scope, _receive, send):
            here.hand_over()
            here.left.set()
            await say(send, b"t-1")

        await here.serve(app)

    assert scene(story).outcomes == ["lost"]


@pytest.mark.parametrize("body", [b"", b"another answer"])
def test_an_answer_without_it_does_not_count(body):
    async def story(here):
        async def app(_scope, _receive, send):
            here.hand_over()
            await say(send, body)

        await here.serve(app)

    assert scene(story).outcomes == ["lost"]


def test_a_handed_over_message_is_lost_when_the_request_fails():
    async def story(here):
        async def app(_scope, _receive, _send):
            here.hand_over()
            raise OSError("the socket broke")

        with pytest.raises(OSError, match="broke"):
            await here.serve(app)

    assert scene(story).outcomes == ["lost"]


def test_what_is_handed_over_after_the_request_is_lost_at_once():
    async def story(here):
        async def app(_scope, _receive, _send):
            return

        await here.serve(app)
        here.hand_over()

    assert scene(story).outcomes == ["lost"]


def test_what_a_call_waits_for_is_cancelled_when_its_client_leaves():
    async def story(here):
        waited = asyncio.get_running_loop().create_future()

        async def app(_scope, receive, _send):
            await receive()
            here.delivery.hold(waited)
            here.left.set()
            assert (await receive())["type"] == "http.disconnect"

        await here.serve(app)
        assert waited.cancelled()
        late = asyncio.get_running_loop().create_future()
        here.delivery.hold(late)
        assert late.cancelled()

    scene(story)


def test_what_the_call_no_longer_waits_for_is_left_alone():
    async def story(here):
        waited = asyncio.get_running_loop().create_future()

        async def app(_scope, _receive, _send):
            here.delivery.hold(waited)
            here.delivery.hold(None)

        await here.serve(app)
        assert not waited.done()

    scene(story)
