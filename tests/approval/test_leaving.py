"""Callers that leave, and handlers that are called off, at moments where a call has no task of its own yet."""

import asyncio
import contextlib
import gc
import warnings

import pytest
from felling import Grove, TreeParams

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Unauthenticated
from bascule.kernel.call import Call, Principal
from bascule.kernel.resolution import Resolution
from bascule.kernel.rows import Acts, Effect
from gabp import codec

WATCH = Acts[TreeParams, str]("tree.watch", "For these tests.", effect=Effect.MESSAGE, behind=True, waits=True)


@pytest.fixture
def grove():
    grove = Grove().set_person()
    grove.house.gate.mount([WATCH.bind(grove._cut)])
    yield grove
    grove.house.close()


def leave_at_once(grove, method):
    """As a link whose one read brings a request and its `$/cancel`: no turn of the loop lies between them."""
    call = Call(Principal("agent:Jerry"), method, codec.encode({"path": "oak"}), door="link")

    def go():
        answer = grove.house.gate.call(call)
        answer.cancel()
        return answer

    return grove.house.run(go)


def resolve_with(grove, resolve):
    methods = grove.house.gate.methods
    methods["tree.resolved"] = methods["tree.resolved"]._replace(resolve=resolve)


def test_a_caller_that_leaves_in_the_turn_it_came_is_not_counted_as_waiting(grove):
    assert leave_at_once(grove, "tree.cut").cancelled()
    (view,) = grove.pending()
    assert view.get("waiting", 0) == 0
    grove.decide()
    assert grove.cut == []
    assert grove.begin().result() == "felled", "the yes is still there"


def test_a_wait_whose_caller_leaves_in_the_turn_it_came_is_recorded_as_cancelled(grove):
    waiting = Deferred()
    grove.answer = lambda: waiting
    leave_at_once(grove, "tree.watch")
    assert waiting.cancelled()
    assert grove.records("tree.watch") == [("tree.watch", "begun"), ("tree.watch", "cancelled")]
    assert grove.house.effects.table.rows == {}


def test_what_would_have_been_looked_up_for_a_caller_that_left_is_not_begun(grove):
    begun = []

    async def resolve(call, params):
        begun.append(params)

    resolve_with(grove, resolve)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        leave_at_once(grove, "tree.resolved")
        gc.collect()
    assert warned == [], "a coroutine that nobody awaits is said on the daemon's stderr"
    assert begun == []


@pytest.mark.parametrize("method", ["tree.water", "tree.prune"])
def test_a_handler_that_was_called_off_before_it_could_be_waited_for_is_an_answer_that_is_called_off(grove, method):
    """Not an exception: a door's connection would end by it."""

    def called_off():
        later = Deferred()
        later.cancel()
        return later

    grove.answer = called_off
    assert grove.begin(method).later.cancelled()
    assert grove.records(method) == [(method, "begun"), (method, "cancelled")]


def test_a_bridge_that_swallows_that_its_caller_left_spends_no_grant_and_acts_not(grove):
    asking = grove.begin("tree.resolved")
    asking.cancel()
    grove.decide()
    looking = asyncio.Event()

    async def resolve(call, params):
        try:
            await looking.wait()
        except asyncio.CancelledError:
            return grove.resolution
        return Resolution()

    resolve_with(grove, resolve)
    grove.begin("tree.resolved").cancel()
    assert grove.cut == []
    assert grove.records("tree.resolved") == [("tree.resolved", "approval_required")]
    resolve_with(grove, lambda call, params: grove.resolution)
    assert grove.begin("tree.resolved").result() == "felled"


def test_a_handler_that_swallows_its_end_does_not_keep_the_daemon_from_stopping(grove):
    over = asyncio.Event()

    async def stubborn():
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    grove.answer = stubborn
    grove.begin("tree.water")
    grove.house._within(grove.house.gate.close(0.01))
    assert grove.records("tree.water") == [("tree.water", "begun")], "the next life says unknown"
    grove.house.run(over.set)


def test_a_handler_that_swallows_one_cancellation_ends_by_the_next_and_has_its_record(grove):
    async def slow():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    grove.answer = slow
    grove.begin("tree.water")
    grove.house._within(grove.house.gate.close(0.01))
    assert grove.records("tree.water") == [("tree.water", "begun"), ("tree.water", "cancelled")]


# -- a handle that changes hands --


def held_in_resolving(grove, method):
    """A call of Jerry's that waits for what it means, and what lets it go on."""
    found = asyncio.Event()

    async def resolve(call, params):
        await found.wait()
        return Resolution(summary="cut", preview="a drawing")

    methods = grove.house.gate.methods
    methods[method] = methods[method]._replace(resolve=resolve)
    grove.house.register("Jerry")
    call = grove.begin(method)
    return call, found


@pytest.mark.parametrize("method", ["tree.resolved", "tree.prune"])
def test_a_revoked_agent_asks_and_does_nothing_with_what_it_called_before(grove, method):
    call, found = held_in_resolving(grove, method)
    grove.house.call("person", "agents.revoke", {"agentId": "Jerry"})
    grove.house.run(found.set)
    with pytest.raises(Unauthenticated, match="revoked"):
        call.result()
    assert grove.pending() == [], "the next Jerry would inherit the question"
    assert grove.cut == []
    assert grove.records(method) == []


def test_what_a_revoked_agent_has_begun_goes_on_and_has_its_end(grove):
    grove.house.register("Jerry")
    slow = Deferred()
    grove.answer = lambda: slow
    call = grove.begin("tree.water")
    grove.house.call("person", "agents.revoke", {"agentId": "Jerry"})
    grove.house.run(lambda: slow.set_result("felled"))
    assert call.result() == "felled"
    assert grove.records("tree.water") == [("tree.water", "begun"), ("tree.water", "ok")]
