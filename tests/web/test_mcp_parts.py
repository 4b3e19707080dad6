"""Parts of `/mcp` before a client can reach them: the mount without its SDK, the SDK's log."""

import asyncio
import json
import logging
import threading
from types import SimpleNamespace

import pytest

from bascule.foundation.errors import Unavailable
from bascule.kernel.call import LOCAL
from bascule.surfaces.mcp import sdk_log
from bascule.surfaces.mcp.mount import Mount
from patience import PATIENCE


def test_before_the_daemon_is_there_the_answer_says_to_try_again():
    mount = Mount(None, None, tools=(), trust="peer")

    async def nothing(*_):
        raise AssertionError("there is nobody to answer")

    with pytest.raises(Unavailable) as refused:
        asyncio.run(mount(LOCAL, {}, b"", nothing, nothing))
    assert refused.value.retry_after


class Sdk:
    """In place of the SDK: it is there when the test says so."""

    def __init__(self):
        self.loads = 0
        self.may_load = threading.Event()
        self.fault = None
        self.answered = []
        self.stopped = asyncio.Event()

    def load(self):
        self.loads += 1
        self.may_load.wait()
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(open_door=lambda *_, **__: self)

    async def run(self, running):
        running()
        await self.stopped.wait()

    async def stop(self):
        self.stopped.set()

    async def __call__(self, principal, scope, body, receive, send):
        self.answered.append(body)


def with_mount(act):
    async def inside():
        sdk = Sdk()
        mount = Mount(None, None, tools=(), trust="peer", load=sdk.load)
        async with asyncio.TaskGroup() as group:
            mount.start(group)
            try:
                await act(mount, sdk, group)
            finally:
                sdk.may_load.set()
                await mount.stop()

    asyncio.run(inside())


def ask(mount, body):
    return mount(LOCAL, {}, body, None, None)


def test_the_sdk_is_loaded_once_for_all_who_ask_first():
    async def act(mount, sdk, group):
        assert sdk.loads == 0
        asked = [group.create_task(ask(mount, body)) for body in (b"1", b"2", b"3")]
        await asyncio.sleep(0)
        # The loop goes on, and one of them leaves.
        asked[0].cancel()
        sdk.may_load.set()
        await asyncio.wait(asked)
        await ask(mount, b"4")
        assert (sdk.loads, sdk.answered) == (1, [b"2", b"3", b"4"])

    with_mount(act)


def test_an_sdk_that_cannot_be_loaded_is_every_callers_fault_and_is_tried_again():
    async def act(mount, sdk, _group):
        sdk.fault = ImportError("half installed")
        sdk.may_load.set()
        for outcome in await asyncio.gather(ask(mount, b"1"), ask(mount, b"2"), return_exceptions=True):
            assert outcome is sdk.fault
        sdk.fault = None
        await ask(mount, b"3")
        assert (sdk.loads, sdk.answered) == (2, [b"3"])

    with_mount(act)


def test_a_stop_while_it_loads_refuses_who_waits_and_opens_nothing():
    async def act(mount, sdk, group):
        asked = group.create_task(refused(mount))
        await asyncio.sleep(0)
        stopping = group.create_task(mount.stop())
        await asked
        assert not stopping.done()
        sdk.may_load.set()
        await stopping
        await refused(mount)
        assert (sdk.loads, sdk.answered) == (1, [])

    with_mount(act)


async def refused(mount):
    with pytest.raises(Unavailable) as stopped:
        await ask(mount, b"1")
    assert stopped.value.retry_after


def test_a_stop_in_the_very_turn_of_the_first_request_refuses_it():
    async def act(mount, sdk, group):
        asked = group.create_task(refused(mount))
        # Both get their turn before what the request started gets its first.
        stopping = group.create_task(mount.stop())
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({asked, stopping})
        assert (sdk.loads, sdk.answered) == (0, [])

    with_mount(act)


@pytest.mark.parametrize("fault", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_library_that_exits_while_it_loads_does_not_end_the_daemon(fault):
    async def act(mount, sdk, _group):
        sdk.fault = fault
        sdk.may_load.set()
        with pytest.raises(ImportError, match=type(fault).__name__):
            await ask(mount, b"1")
        sdk.fault = None
        await ask(mount, b"2")
        assert sdk.answered == [b"2"]

    with_mount(act)


def test_the_sdk_speaks_into_the_daemons_log_without_what_clients_said(monkeypatch):
    for name in sdk_log.NAMES:
        for attribute in ("handlers", "level", "propagate"):
            monkeypatch.setattr(logging.getLogger(name), attribute, getattr(logging.getLogger(name), attribute))
    lines = []
    sdk_log.listen(lambda event, **fields: lines.append((event, fields)))
    logger = logging.getLogger("mcp.server.somewhere")
    try:
        int("the client's secret")
    except ValueError:
        logger.exception("handler for %r failed", "the client's secret")
    logger.warning(f"built with {'the client' + chr(39) + 's secret'}")  # noqa: G004 - as the SDK does
    logger.info("not worth a line")
    assert [event for event, _ in lines] == ["mcp_sdk", "mcp_sdk"]
    assert lines[0][1]["said"] == "handler for %r failed"
    assert lines[0][1]["error"] == "ValueError"
    assert lines[0][1]["at"].startswith(__name__)
    assert "secret" not in json.dumps(lines)
