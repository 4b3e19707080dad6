"""Several clients behind one connection, as the daemon has them: what one has is nothing to another."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest
from desktop_rig import until
from host_process import Refused, route

from bascule.desktop.errors import Code, DesktopError
from bascule.desktop.machine.client import HostClient, HostLost
from patience import PATIENCE

BASCULE = (sys.executable, "-P", "-m", "bascule.cli.start")
ONE, TWO = "agent:one", "agent:two"
BUTTON = {"byRole": "AXButton", "titleContains": "Press me"}


def refusal(call, *arguments, **more):
    with pytest.raises(Refused) as refused:
        call(*arguments, **more)
    return refused.value


def test_refs_and_changes_are_each_clients_own(host, start):
    app = start("gtk3")

    def observe(name):
        options = {"snapshot": True, "diff": True, "axMaxDepth": 64, "includeScreenshot": False}
        return host.call("desktop.observe", meta=host.meta(client=name), route=route(app), options=options)

    def ref(name):
        return host.call("desktop.find", meta=host.meta(client=name), route=route(app), selector=BUTTON)["elementRefs"][
            0
        ]

    assert ref(ONE)["elementId"] == ref(ONE)["elementId"] != ref(TWO)["elementId"]
    assert observe(ONE)["diff"]
    assert observe(ONE).get("diff", []) == []
    # The other one has not seen anything yet.
    assert observe(TWO)["diff"]
    theirs = {"elementRef": {"elementId": ref(ONE)["elementId"]}}
    for name in (TWO, None):
        meta = host.meta(**({"client": name} if name else {}))
        refused = refusal(host.act, "desktop.click", meta=meta, route=route(app), target=theirs)
        assert (refused.code, refused.details["reason"]) == ("DESKTOP_ELEMENT_NOT_FOUND", "stale")
    host.act("desktop.click", meta=host.meta(client=ONE), route=route(app), target=theirs)
    app.until(pressed=1)


def test_a_token_is_for_the_client_it_was_issued_for(host, start):
    app = start("gtk3")
    params = {"route": route(app), "target": {"selector": BUTTON}}
    token = host.issue("desktop.click", params, meta=host.meta(client=ONE))["token"]
    for name in (TWO, None):
        meta = host.meta(**({"client": name} if name else {}))
        refused = refusal(host.call, "desktop.click", meta=meta, confirm={"token": token}, **params)
        assert refused.code == "DESKTOP_CONFIRM_REQUIRED"
        assert "unknown here" in str(refused)
    assert "pressed" not in app.state
    host.call("desktop.click", meta=host.meta(client=ONE), confirm={"token": token}, **params)
    app.until(pressed=1)


def test_an_abort_reaches_ones_own_only(host, start):
    app = start("gtk3")
    meta = host.meta(client=ONE)
    never = {"condition": {"selectorExists": {"titleContains": "Never"}}, "timeoutMs": 60_000}
    waiting = host.later("desktop.waitUntil", meta=meta, route=route(app), **never)
    abort = {"executionId": waiting.request_id}
    # The same requestId, of somebody else: no clash, and no reach.
    twin = host.later("desktop.waitUntil", meta={**meta, "client": TWO}, route=route(app), **never)
    for name in ("agent:three", None):
        mine = host.meta(**({"client": name} if name else {}))
        assert refusal(host.call, "desktop.abort", meta=mine, **abort).code == "DESKTOP_INVALID_REQUEST"

    def aborted(name):
        try:
            return host.call("desktop.abort", meta=host.meta(client=name), **abort)
        except Refused:
            # Not under way yet.
            return None

    until(lambda: aborted(ONE), "the wait is under way")
    assert refusal(waiting.result).code == "DESKTOP_ABORTED"
    assert not twin.done
    until(lambda: aborted(TWO), "the other one is under way")
    assert refusal(twin.result).code == "DESKTOP_ABORTED"


def test_one_client_cannot_take_all_the_room(host):
    wire = host.connect()
    never = {"condition": {"windowExists": {"titlePattern": "^no$"}}, "timeoutMs": 60_000}
    for _ in range(17):
        wire.send("desktop.waitUntil", {"meta": host.meta(client=ONE), **never})
    refused = wire.read()
    assert refused["error"]["code"] == "DESKTOP_HOST_NOT_READY"
    assert "16 requests are under way" in refused["error"]["message"]
    assert host.call("desktop.windows", meta=host.meta(client=TWO))["windows"] is not None
    wire.close()


def test_with_a_full_connection_everything_can_still_be_stopped(start_host):
    host = start_host()
    wire = host.connect()
    never = {"condition": {"windowExists": {"titlePattern": "^no$"}}, "timeoutMs": 60_000}
    for client in range(16):
        for _ in range(16):
            wire.send("desktop.waitUntil", {"meta": host.meta(client=f"agent:{client}"), **never})
    id_ = wire.send("desktop.waitUntil", {"meta": host.meta(client="agent:more"), **never})
    refused = wire.read()
    assert refused["id"] == id_
    assert "256 requests are open" in refused["error"]["message"]
    stop = wire.send("desktop.stop", {"meta": host.meta()})
    answers = [wire.read() for _ in range(257)]
    assert {each["error"]["code"] for each in answers if "error" in each} == {"DESKTOP_ABORTED"}
    (stopped,) = [each for each in answers if each["id"] == stop]
    assert stopped["result"]["aborted"] == 256
    wire.close()


# -- who is told of a stop --


def received_by(wire):
    message = wire.read_any()
    assert message["method"] == "desktop.stopped"
    assert "id" not in message
    return message["params"]


def test_a_stop_by_a_signal_is_reported_to_every_connection(start_host):
    host = start_host()
    wires = [host.connect() for _ in range(2)]
    for wire in wires:
        host.call("desktop.health", wire=wire)
    host.process.send_signal(signal.SIGUSR1)
    for wire in wires:
        assert received_by(wire) == {"aborted": 0}
        wire.close()


def test_a_stop_by_another_process_is_reported_and_ones_own_is_answered(start_host, desktop):
    host = start_host()
    wire = host.connect()
    host.call("desktop.health", wire=wire)
    command = ["desktop", "stop", "--socket", host.socket_path, "--workspace", str(host.workspace)]
    subprocess.run([*BASCULE, *command], check=True, capture_output=True, timeout=PATIENCE)
    assert received_by(wire) == {"aborted": 0}
    host.act("desktop.resume", wire=wire)
    host.call("desktop.stop", wire=wire)
    assert wire.notifications == []
    wire.close()


# -- the client in Python --


def test_a_host_client_speaks_for_several_and_hears_of_stops_and_of_the_end(desktop, tmp_path, start):
    program = start("gtk3")
    root, other = tmp_path / "root", tmp_path / "root" / "other"
    other.mkdir(parents=True)

    async def story():
        stopped, lost = asyncio.Queue(), asyncio.Queue()
        client = await HostClient.spawn(
            str(root),
            str(root),
            options=("--no-stop-keys",),
            environment=desktop.environment,
            on_stopped=stopped.put_nowait,
            on_lost=lost.put_nowait,
        )
        for _ in range(3_000):
            if (await client.call("desktop.health")).permissions.accessibility == "granted":
                break
            await asyncio.sleep(0.02)
        intent = {"method": "desktop.click", "params": {"route": route(program), "target": {"selector": BUTTON}}}
        meant = await client.call("desktop.resolve", {"intent": intent, "picture": True}, client=ONE)
        assert meant.element.title == "Press me"
        assert meant.picture.mime_type == "image/png"
        # Tied for the one, it means nothing for the other.
        with pytest.raises(DesktopError) as refused:
            await client.confirmed("desktop.click", meant.params, client=TWO)
        assert refused.value.code is Code.ELEMENT_NOT_FOUND
        # In a workspace that is not the client's own: the token is for that one as well.
        result = await client.confirmed("desktop.click", meant.params, client=ONE, workspace=str(other))
        assert result.evidence.dir.startswith(str(other))
        os.kill(client.pid, signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE):
            assert await stopped.get() == 0
        with pytest.raises(DesktopError) as refused:
            await client.confirmed("desktop.click", meant.params, client=ONE)
        assert refused.value.code is Code.HOST_STOPPED
        await client.confirmed("desktop.resume", {})
        waiting = asyncio.ensure_future(
            client.call(
                "desktop.waitUntil", {"condition": {"windowExists": {"titlePattern": "^no$"}}, "timeoutMs": 60_000}
            )
        )
        await client.call("desktop.windows")
        os.kill(client.pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            assert "closed the connection" in await lost.get()
            with pytest.raises(HostLost):
                await waiting
        await client.close()

    asyncio.run(story())
    program.until(pressed=1)


def test_a_call_that_nobody_waits_for_any_more_ends_in_the_host(desktop, tmp_path):
    condition = {"windowExists": {"titlePattern": "^no$"}}

    async def story():
        place = str(tmp_path)
        options = ("--no-stop-keys",)
        client = await HostClient.spawn(place, place, options=options, environment=desktop.environment)
        for _ in range(3_000):
            if (await client.call("desktop.health")).permissions.accessibility == "granted":
                break
            await asyncio.sleep(0.02)

        def wait(timeout_ms):
            params = {"condition": condition, "timeoutMs": timeout_ms}
            return client.call("desktop.waitUntil", params, request_id="mine", client=ONE)

        waiting = asyncio.ensure_future(wait(600_000))
        # In turn on one connection: when this is answered, the wait is under way.
        await client.call("desktop.windows")
        with pytest.raises(DesktopError, match="requestId is in use"):
            await wait(50)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        code = Code.INVALID_REQUEST
        async with asyncio.timeout(PATIENCE):
            while code is Code.INVALID_REQUEST:
                with pytest.raises(DesktopError) as refused:
                    await wait(50)
                code = refused.value.code
        assert code is Code.TIMEOUT
        await client.close()

    asyncio.run(story())


def test_a_host_client_that_closes_by_itself_has_lost_nothing(desktop, tmp_path):
    async def story():
        lost = []
        client = await HostClient.spawn(
            str(tmp_path), str(tmp_path), environment=desktop.environment, on_lost=lost.append
        )
        await client.call("desktop.health")
        await client.close()
        assert lost == []

    asyncio.run(story())
