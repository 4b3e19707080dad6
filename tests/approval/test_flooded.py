"""A program of the same user that calls as often as it can, or takes every place: the person still stops and sees."""

import pytest
from console_page import Page

from bascule.admin.consent import MAX_WATCHERS
from bascule.daemon.quota import CallQuota
from bascule.foundation.errors import Overloaded
from bascule.kernel.event_ring import MAX_READERS


def flood(house):
    """`local` has called as often as it may."""
    house.gate._quota = CallQuota(house.clock, per_second=1, burst=1)
    house.call("local", "agents.list")
    with pytest.raises(Overloaded):
        house.call("local", "agents.list")


def test_everything_is_stopped_in_the_middle_of_a_flood(grove):
    flood(grove.house)
    assert grove.house.call("local", "admin.stop")["stopped"]


def test_a_stop_that_waits_its_turn_is_refused(grove):
    """The control."""
    methods = grove.house.gate.methods
    methods["admin.stop"] = methods["admin.stop"]._replace(urgent=False)
    flood(grove.house)
    with pytest.raises(Overloaded):
        grove.house.call("local", "admin.stop")


@pytest.mark.parametrize(("method", "most"), [("events.all", MAX_READERS), ("approvals.stream", MAX_WATCHERS)])
def test_the_person_has_a_place_where_programs_took_all_of_theirs(grove, method, most):
    house = grove.house
    open_streams = [house.begin("local", method) for _ in range(most)]
    with pytest.raises(Overloaded):
        house.call("local", method)
    page = Page(grove).sign_in()
    open_streams.append(page.call(method))
    # The control: the person has no more places than anybody.
    with pytest.raises(Overloaded):
        open_streams.extend(page.call(method) for _ in range(most))
