"""Effects outside the store: begun on disk before, finished on disk after, never lost with their client."""

import asyncio

import pytest
from felling import Grove, later, stricter

from bascule.foundation.deferred import Deferred
from bascule.foundation.errors import Internal, InvalidRequest, StorageFull
from bascule.kernel.resolution import Resolution
from bascule.testing.stores import HeldStore


@pytest.fixture
def store():
    return HeldStore(hold=False)


@pytest.fixture
def grove(store):
    grove = Grove(store=store)
    yield grove
    store.hold = False
    grove.house.close()


def water(grove, path="oak"):
    return grove.begin("tree.water", path)


def begun(grove):
    return [row.method for row in grove.house.effects.table.rows.values()]


def test_nothing_happens_before_its_beginning_is_on_disk(grove, store):
    store.hold = True
    call = water(grove)
    assert grove.cut == []
    grove.house.run(store.finish)
    assert grove.cut == ["oak"]
    assert not call.done, "and nothing is told before its end is"
    grove.house.run(store.finish)
    assert call.result() == "felled"
    assert grove.records("tree.water") == [("tree.water", "begun"), ("tree.water", "ok")]
    assert begun(grove) == []


def test_a_disk_that_cannot_take_the_beginning_means_that_nothing_happens(grove, store):
    store.hold = True
    call = water(grove)
    grove.house.run(store.fail)
    with pytest.raises(StorageFull, match="nothing was stored"):
        call.result()
    assert grove.cut == []
    assert begun(grove) == []


def test_a_disk_that_cannot_take_the_end_is_reported_as_done_and_unrecorded(grove, store):
    store.hold = True
    call = water(grove)
    grove.house.run(store.finish)
    grove.house.run(store.fail)
    with pytest.raises(StorageFull, match="it was executed"):
        call.result()
    assert begun(grove) == ["tree.water"]
    store.hold = False
    grove.house.restart(clean=False)
    assert grove.records("tree.water")[-1] == ("tree.water", "unknown")
    assert grove.cut == ["oak"], "never twice"


def test_a_crash_in_between_is_unknown_after_the_restart_and_never_runs_again(grove):
    grove.answer = Deferred
    call = water(grove)
    assert not call.done
    assert begun(grove) == ["tree.water"]
    grove.house.restart(clean=False)
    assert grove.records("tree.water") == [("tree.water", "begun"), ("tree.water", "unknown")]
    assert grove.cut == ["oak"]
    assert begun(grove) == []


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [(InvalidRequest("no such tree"), "invalid_request"), (ZeroDivisionError(), "internal")],
)
def test_a_failure_is_recorded_as_the_end(grove, answer, outcome):
    grove.answer = answer
    with pytest.raises((InvalidRequest, Internal)):
        water(grove).result()
    assert grove.records("tree.water")[-1] == ("tree.water", outcome)
    assert begun(grove) == []


@pytest.mark.parametrize("kind", ["later", "future"])
def test_an_effect_may_take_its_time(grove, kind):
    def future():
        return asyncio.get_running_loop().run_in_executor(None, lambda: "slowly")

    grove.answer = future if kind == "future" else lambda: later("slowly")
    assert grove.house.call("agent:Jerry", "tree.water", {"path": "oak"}) == "slowly"
    assert grove.records("tree.water")[-1] == ("tree.water", "ok")


def test_an_effect_under_way_goes_on_without_its_client_and_its_end_is_recorded(grove):
    slow = Deferred()
    grove.answer = lambda: slow
    call = water(grove)
    call.cancel()
    assert not slow.done()
    grove.house.run(lambda: slow.set_result("felled"))
    assert grove.records("tree.water")[-1] == ("tree.water", "ok")


def test_a_client_that_left_before_it_began_has_nothing_done(grove, store):
    store.hold = True
    call = water(grove)
    call.cancel()
    grove.house.run(store.finish_all)
    grove.house.run(store.finish_all)
    assert grove.cut == []
    assert grove.records("tree.water")[-1] == ("tree.water", "cancelled")


def test_details_of_the_handler_are_in_the_record_of_the_end(grove):
    water(grove).result()
    record = grove.house.ledger()[-1]
    assert record["details"]["rings"] == 7


# -- behind -----------------------------------------------------------------------------------------


def prune(grove, **resolution):
    grove.resolution = Resolution(summary="prune", preview="a drawing", **resolution)
    return grove.begin("tree.prune")


def test_what_can_be_taken_back_happens_while_its_record_is_on_the_way(grove, store):
    store.hold = True
    call = prune(grove)
    assert grove.cut == ["oak"]
    assert call.result() == "felled"
    grove.house.run(store.finish_all)
    assert grove.records("tree.prune") == [("tree.prune", "begun"), ("tree.prune", "ok")]
    assert begun(grove) == []


def test_what_its_bridge_says_cannot_be_taken_back_waits_for_its_record(grove, store):
    store.hold = True
    call = prune(grove, record_first=True)
    assert grove.cut == []
    grove.house.run(store.finish)
    assert grove.cut == ["oak"]
    grove.house.run(store.finish_all)
    assert call.result() == "felled"


def test_a_persons_yes_is_spent_on_disk_before_what_it_is_spent_for(grove, store):
    grove.set_person()
    asking = prune(grove, verdict=stricter())
    asking.cancel()
    grove.decide()
    store.hold = True
    call = prune(grove, verdict=stricter())
    assert grove.cut == []
    grove.house.run(store.finish)
    assert grove.cut == ["oak"]
    grove.house.run(store.finish_all)
    assert call.result() == "felled"


def test_what_a_call_rests_on_is_there_for_its_handler(grove):
    prune(grove, bound={"rings": 3}).result()
    assert grove.effects[-1].resolution.bound == {"rings": 3}
