"""M6: somebody on another machine reaches the rows of the mesh and nothing else, whatever method it names.

No door gives such a principal, and letters become calls of the mesh's rows alone (`test_mesh_simulation`). Here it
stands at the gate all the same, as if one of the two had failed.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from machines import Machine, Machines

from bascule.bridge_list import BRIDGES, rows_of
from bascule.foundation.errors import BasculeError, InvalidRequest
from bascule.kernel.identity import ownership
from bascule.kernel.rows import OTHER_NODE, Row
from bascule.testing.house import StillWaiting
from outside_scene import sample

OUTSIDERS = ("agent:Mallory@evil", "local@evil", "person@evil", "node:evil")
ROWS = [row for row in rows_of(BRIDGES) if row.shape != "operation" and row.who != OTHER_NODE]
# Of bridges that no house of these tests has: their rows are asked whose call it may be, there is nothing to call.
UNMOUNTED = ("desktop", "games")


@pytest.fixture
def pair() -> Iterator[Machines]:
    with Machines("desk", "evil") as machines:
        machines["desk"].house.register("Jerry")
        machines["evil"].house.register("Mallory")
        machines.advance(1)
        machines.settle()
        machines["desk"].call("local", "messages.send", {"agentId": "Jerry", "payload": "secret", "ticketId": "theirs"})
        machines["evil"].send("Mallory", "Jerry@desk")
        machines.settle()
        yield machines


def _outcome(desk: Machine, principal: str, row: Row, params: dict[str, Any]) -> str:
    try:
        answer = desk.call(principal, row.name, params)
    except StillWaiting:
        return "taken"
    except BasculeError as error:
        return error.code
    return "nothing" if answer == [] else "taken"


def _reached(desk: Machine, principal: str, **params: Any) -> dict[str, str]:
    """What every method says that is not a plain no."""
    reached = {}
    for row in ROWS:
        if row.name in desk.house.gate.methods:
            given = sample(row)
            given |= {name: value for name, value in params.items() if name in given}
            refusals = {"forbidden", "invalid_request"}
            if row.who.kind == "starter":
                # What nobody started is nobody's.
                refusals.add("not_found")
            if (code := _outcome(desk, principal, row, given)) not in refusals:
                reached[row.name] = code
    return reached


@pytest.mark.req("MESH-M-6")
@pytest.mark.parametrize("principal", OUTSIDERS)
def test_every_method_outside_the_mesh_refuses_a_caller_of_another_machine(pair: Machines, principal: str) -> None:
    reached = _reached(pair["desk"], principal)
    # Jerry is not published, and the list has what its caller sent, of which nothing fits.
    assert reached == {"messages.send": "not_found", "tickets.list": "nothing"}
    assert len(pair["desk"].house.gate.methods) > 60


def test_a_caller_of_another_machine_that_names_itself_and_its_own_ticket_sees_that_ticket_alone(
    pair: Machines,
) -> None:
    desk = pair["desk"]
    (own,) = desk.mesh.state.copies.rows
    named = {"agentId": "Mallory@evil", "ticketId": own, "ticketIds": [own]}
    reached = _reached(desk, "agent:Mallory@evil", **named)
    seen = {"tickets.show": "taken", "replies.wait": "taken", "replies.stream": "taken"}
    # Its home alone withdraws it.
    assert reached == {**seen, "tickets.cancel": "conflict", "messages.send": "not_found", "tickets.list": "nothing"}
    (listed,) = desk.call("agent:Mallory@evil", "tickets.list")
    assert listed["ticketId"] == own


@pytest.mark.req("MESH-M-6")
@pytest.mark.parametrize("principal", OUTSIDERS)
def test_no_row_that_is_anyones_is_open_to_a_caller_of_another_machine(principal: str) -> None:
    """Also where params were guessed wrong above, and of bridges that no house here has: no desktop, no game."""
    of_starters = {row.who.field: _nobody for row in ROWS if row.who.kind == "starter"}
    for row in ROWS:
        if row.who.kind in ("anyone", "local", "person", "browser") and row.outside is None:
            check = ownership.ownership(row, _nobody, of_starters)
            assert check is not None, row.name
            with pytest.raises(BasculeError):
                check(principal, None)  # type: ignore[arg-type] # a principal by its text
    assert {row.name.partition(".")[0] for row in ROWS} >= {*UNMOUNTED, "spaces"}


def _nobody(_id: str) -> Any:
    raise AssertionError("who may call is known without a look at what was started")


def test_without_the_check_a_caller_of_another_machine_would_see_this_one(
    pair: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(ownership, "is_outside", lambda _principal: False)
    reached = _reached(pair["desk"], "agent:Mallory@evil")
    assert {"agents.list", "events.recent", "conversations.list", "messages.broadcast"} <= set(reached)


@pytest.mark.parametrize("handle", ["Mallory@evil", "Jerry@desk", "@evil", "node:evil"])
def test_no_handle_that_can_be_registered_makes_a_principal_of_another_machine(pair: Machines, handle: str) -> None:
    with pytest.raises(InvalidRequest):
        pair["desk"].call("local", "agents.register", {"agentId": handle})
