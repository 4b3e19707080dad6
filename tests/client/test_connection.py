"""One link connection: what a daemon may do to it, and who else may listen there."""

import asyncio
import os
import shutil
import tempfile

import pytest
from acting import answering, echo, go, until
from scripted import HANG_UP, SILENCE, ScriptedServer, refusal

from bascule import __version__
from bascule.broker.protocol import ReplyView
from bascule.client import Client, ConnectionLost, NotRunning, connection, identity
from bascule.client.connection import Connection
from bascule.client.door import check_peer, link_path, unreachable
from bascule.client.faults import BadAnswer
from bascule.client.steps import Request
from bascule.foundation.errors import BY_CODE, Forbidden, Internal, InvalidRequest, Overloaded, VersionMismatch
from bascule.kernel.link_protocol import mismatch_sentence
from bascule.transports.peercred import Peer
from patience import PATIENCE


def scripted(script, main, hello=None):
    """`main(server, connection)` on a bare connection to a server that answers as `script` says."""

    async def connected():
        async with ScriptedServer(script, hello).running() as server:
            bare = await Connection.to(link_path(server.state_dir))
            try:
                await main(server, bare)
            finally:
                await bare.closed()

    go(connected())


def test_another_version_of_the_daemon_is_reported_in_its_own_one_sentence():
    sentence = mismatch_sentence(__version__, "9.9.9")

    async def main():
        server = ScriptedServer(lambda _: SILENCE, refusal("version_mismatch", sentence))
        async with server.running():
            with pytest.raises(VersionMismatch) as caught:
                await Client.connect(server.state_dir)
            assert caught.value.message == sentence

    go(main())


def test_a_daemon_that_greets_with_another_protocol_is_refused():
    hello = {"result": {"protocol": 2, "version": "9.9.9", "principal": "local"}}

    async def main():
        async with ScriptedServer(lambda _: SILENCE, hello).running() as server:
            with pytest.raises(VersionMismatch, match=r"the running daemon is 9\.9\.9"):
                await Client.connect(server.state_dir)

    go(main())


def test_a_daemon_that_does_not_greet_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(identity, "HELLO_SECONDS", 0.05)

    async def main():
        async with ScriptedServer(lambda _: SILENCE, SILENCE).running() as server:
            with pytest.raises(NotRunning):
                await Client.connect(server.state_dir, retry=0.2)

    go(main())


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_every_error_of_the_house_comes_back_as_its_class(code):
    answer = refusal(code, "what happened", hint="do this", details={"a": 1}, retryAfterMs=1500)

    async def main(server, bare):
        with pytest.raises(BY_CODE[code]) as caught:
            await bare.request("any", {}, dict)
        error = caught.value
        assert (error.message, error.hint, error.details) == ("what happened", "do this", {"a": 1})
        assert error.retry_after == 1.5

    scripted(lambda _: answer, main)


def test_an_error_of_no_known_code_is_an_internal_one():
    answer = {"error": {"code": -32601, "message": "no such method"}}

    async def main(server, bare):
        with pytest.raises(Internal, match="no such method"):
            await bare.request("any", {}, dict)

    scripted(lambda _: answer, main)


def test_an_answer_of_another_shape_is_a_bad_answer_and_the_connection_stays():
    answers = iter([{"result": {"status": "dancing"}}, {"result": 7}])

    async def main(server, bare):
        with pytest.raises(BadAnswer, match="not what this client expects"):
            await bare.request("replies.wait", {}, ReplyView)
        assert await bare.request("any", {}, int) == 7

    scripted(lambda _: next(answers), main)


@pytest.mark.parametrize(
    "bytes_",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"Content-Length: 3\r\n\r\n[1]", b"Content-Length: 99999999\r\n\r\n"],
)
def test_what_is_no_frame_ends_the_connection_and_everything_that_waits_on_it(bytes_):
    async def main(server, bare):
        with pytest.raises(ConnectionLost) as caught:
            await bare.request("any", {}, dict)
        assert caught.value.sent
        with pytest.raises(ConnectionLost) as caught:
            await bare.request("any", {}, dict)
        assert not caught.value.sent

    scripted(lambda _: bytes_, main)


def test_a_notification_that_nobody_asked_for_is_ignored():
    body = b'{"jsonrpc":"2.0","method":"weather.item","params":{"sun":true}}'
    late = b'{"jsonrpc":"2.0","id":77,"result":1}'
    item = b'{"jsonrpc":"2.0","method":"inbox.end","params":{"stream":55}}'
    frames = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(each), each) for each in (body, late, item))
    answer = b'{"jsonrpc":"2.0","id":1,"result":"here"}'

    async def main(server, bare):
        assert await bare.request("any", {}, str) == "here"

    scripted(lambda _: frames + b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer), main)


def test_a_cancelled_request_is_withdrawn_and_leaves_nothing_behind():
    async def main(server, bare):
        async def second_request():
            return len(server.requests) == 2

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await bare.request("replies.wait", {}, dict)
        assert not bare._pending
        await until(second_request)
        assert server.requests[1]["method"] == "$/cancel"
        assert server.requests[1]["params"] == {"id": server.requests[0]["id"]}

    scripted(lambda _: SILENCE, main)


def test_a_connection_carries_a_named_number_of_open_requests(monkeypatch):
    monkeypatch.setattr(connection, "MAX_OPEN_REQUESTS", 2)

    async def main(server, bare):
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(bare.request("replies.wait", {}, dict)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(Overloaded, match="2 requests are open"):
                await bare.request("any", {}, dict)
            for task in waiting:
                task.cancel()

    scripted(lambda _: SILENCE, main)


def test_a_stream_that_is_refused_leaves_nothing_behind():
    async def main(server, bare):
        with pytest.raises(Forbidden):
            await bare.open_stream(Request("inbox.stream", {"agentId": "bob"}, dict), object())
        assert not bare._streams

    scripted(lambda _: refusal("forbidden", "not yours"), main)


def test_a_lost_connection_with_several_waits_on_it_is_one_error():
    async def main(server, client):
        with pytest.raises(ConnectionLost):
            await client._connection.first_of(client_waits())

    def client_waits():
        from bascule.client.steps import FirstOf

        return FirstOf(tuple(Request("replies.wait", {"ticketId": str(each)}, dict) for each in range(3)))

    async def connected():
        async with (
            ScriptedServer(lambda _: HANG_UP).running() as server,
            Client.connect(server.state_dir) as client,
        ):
            await main(server, client)

    go(connected())


def test_large_payloads_come_back_whole(shared, name):
    payload = "x" * 1_000_000

    async def main():
        async with (
            Client.connect(shared.state_dir, name("alice"), register=True) as alice,
            Client.connect(shared.state_dir, name("bob"), register=True) as bob,
            answering(bob, echo),
            asyncio.TaskGroup() as group,
        ):
            asked = [group.create_task(alice.ask(name("bob"), payload, timeout=PATIENCE)) for _ in range(5)]
            for task in asked:
                assert (await task).payload == payload

    go(main())


def test_requests_wait_while_the_daemon_does_not_read():
    """40 MiB at once: unsent, they would be more than the transport bears, and the connection would be cut."""
    payload = {"payload": "x" * 1_000_000}

    async def main(bare):
        tasks = [asyncio.ensure_future(bare.request("messages.send", payload, dict)) for _ in range(40)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert bare.open
        assert bare._transport.get_write_buffer_size() < 3_000_000
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def unresponsive():
        path = os.path.join(tempfile.mkdtemp(prefix="bsc"), "link.sock")
        over = asyncio.Event()

        async def ignore(_, writer):
            await over.wait()
            writer.transport.abort()

        server = await asyncio.start_unix_server(ignore, path)
        bare = await Connection.to(path)
        try:
            await main(bare)
        finally:
            over.set()
            await bare.closed()
            server.close()
            shutil.rmtree(os.path.dirname(path))

    go(unresponsive())


def test_a_socket_that_somebody_else_serves_gets_no_token():
    check_peer("/s/link.sock", Peer(os.getuid(), 1))
    with pytest.raises(Forbidden, match=f"is served by uid {os.getuid() + 1}"):
        check_peer("/s/link.sock", Peer(os.getuid() + 1, 1))


def test_a_sandbox_without_sockets_is_named_as_the_reason():
    error = unreachable("/s/link.sock", PermissionError(1, "Operation not permitted"))
    assert isinstance(error, Forbidden)
    assert "sandbox" in error.hint


def test_a_state_directory_too_long_for_a_socket_is_refused_with_its_length():
    with pytest.raises(InvalidRequest, match="103 bytes"):
        link_path("/" + "d" * 120)
