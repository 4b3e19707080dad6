"""Answers: durable first, waits and streams as they come, and faults that say no more than an id."""

import asyncio

import pytest

from bascule.foundation.errors import Internal, StorageFull
from bascule.foundation.stream import Stream
from bascule.kernel.call import LOCAL, Call
from gate_scene import Ask, Scene, on_loop
from patience import PATIENCE


@pytest.fixture
def scene():
    return Scene()


# -- durable first --


@on_loop
async def test_a_write_is_answered_when_it_is_durable():
    scene = Scene(hold=True)
    answer = scene.call("write")
    await asyncio.sleep(0)
    assert not answer.done()
    assert scene.observed == []
    scene.store.finish()
    assert await answer == "answer"
    assert scene.observed == [("write", "ok", True)]


@on_loop
async def test_a_read_does_not_tell_what_is_not_durable_yet():
    scene = Scene(hold=True)
    scene.call("write")
    reading = scene.call("read")
    await asyncio.sleep(0)
    assert not reading.done()
    scene.store.finish()
    assert await reading == "answer"
    assert scene.call("read") == "answer"


@on_loop
async def test_a_read_of_what_could_not_be_stored_looks_again():
    scene = Scene(hold=True)
    scene.call("write")
    reading = scene.call("read")
    scene.answer = "as it was"
    scene.store.fail()
    assert await reading == "as it was"


@on_loop
async def test_a_read_that_looks_again_and_has_to_wait_is_waited_for():
    scene = Scene(hold=True)
    scene.call("write")
    reading = scene.call("wait")
    later = asyncio.get_running_loop().create_future()
    scene.answer = lambda: later
    scene.store.fail()
    later.set_result("at last")
    assert await reading == "at last"


@on_loop
async def test_a_read_that_looks_again_and_fails_is_answered():
    scene = Scene(hold=True)
    scene.call("write")
    reading = scene.call("read")
    scene.answer = ZeroDivisionError("a secret in a message")
    scene.store.fail()
    with pytest.raises(Internal, match=r"internal error \w+"):
        await asyncio.wait_for(reading, PATIENCE)


@on_loop
async def test_a_write_that_could_not_be_stored_is_refused_and_counted_so():
    scene = Scene(hold=True)
    answer = scene.call("write")
    scene.store.fail()
    with pytest.raises(StorageFull):
        await answer
    assert scene.table.rows == {}
    assert scene.observed == [("write", "storage_full", True)]


@on_loop
async def test_a_client_that_leaves_takes_nothing_back():
    scene = Scene(hold=True)
    answer = scene.call("write")
    answer.cancel()
    scene.store.finish()
    await asyncio.sleep(0)
    assert scene.observed == [("write", "cancelled", True)]
    assert scene.ledger() == [("write", "ok", "Jerry", "message")]


# -- waits and streams --


@on_loop
async def test_a_wait_is_counted_when_it_ends(scene):
    future = asyncio.get_running_loop().create_future()
    scene.answer = lambda: future
    answer = scene.call("wait")
    assert scene.observed == []
    future.set_result("at last")
    assert await answer == "at last"
    assert scene.observed == [("wait", "ok", True)]


@on_loop
async def test_a_wait_whose_client_left_is_counted_as_cancelled(scene):
    future = asyncio.get_running_loop().create_future()
    scene.answer = lambda: future
    scene.call("wait").cancel()
    await asyncio.sleep(0)
    assert scene.observed == [("wait", "cancelled", True)]


def test_a_stream_is_handed_to_the_edge_as_it_is(scene):
    scene.answer = Stream
    assert isinstance(scene.call("stream"), Stream)


def test_a_message_a_gone_client_did_not_get_is_given_back(scene):
    call = Call(LOCAL, "wait", Ask(), door="testing")
    scene.gate.call(call)
    scene.gate.abandoned(call, "messages")
    assert scene.abandoned == [(Ask(), "messages")]
    scene.gate.abandoned(call, None)
    scene.gate.abandoned(Call(LOCAL, "read", Ask(), door="testing"), "answer")
    assert len(scene.abandoned) == 1


# -- faults --


@pytest.mark.parametrize("method", ["read", "write"])
def test_a_fault_answers_an_id_and_only_the_log_has_the_rest(scene, method):
    scene.answer = ZeroDivisionError("a secret in a message")
    with pytest.raises(Internal) as raised:
        scene.call(method)
    event, level, fields = scene.log[0]
    assert (event, level) == ("fault", "error")
    assert raised.value.message == f"internal error {fields['id']}"
    assert fields["id"] in raised.value.hint
    assert "secret" not in str(raised.value.body())
    assert fields["error"] is scene.answer
    assert fields["error"].__traceback__ is not None
    assert scene.table.rows == {}
    assert scene.ledger() == []
    assert scene.observed == [(method, "internal", True)]


@on_loop
async def test_a_wait_that_fails_answers_an_id_too(scene):
    future = asyncio.get_running_loop().create_future()
    scene.answer = lambda: future
    answer = scene.call("wait")
    future.set_exception(ZeroDivisionError("a secret in a message"))
    with pytest.raises(Internal, match=r"internal error \w+") as raised:
        await answer
    assert "secret" not in str(raised.value.body())
    assert raised.value.message == f"internal error {scene.log[0][2]['id']}"
