"""What a model, a script and a link client read while a person decides."""

import asyncio
import sys
from pathlib import Path

import jsonschema
import pytest
from bascule.mcp.errand import Errand
from bascule.shim.calls import Ask, Me
from felling import policy

from bascule.doors import exits
from bascule.doors.exits import Refusal
from bascule.doors.values import NOT_YET
from bascule.errors import ApprovalRequired
from bascule.protocols.methods import ANYONE, Consent, Effect, Record, Row
from bascule.protocols.workspace import ProcessParams, ProcessView
from bascule.shim import calls, tools
from bascule.shim.link import ANSWER_SECONDS, Link
from bascule.testing.house import House
from patience import PATIENCE

sys.path.insert(0, str(Path(__file__).parent.parent / "shim"))

from driving import Script

ME = Me(lambda: "Jerry", None, directory="/projects/otter")
REFUSED = Refusal(
    NOT_YET,
    ApprovalRequired(
        "a rule says ask", hint="a person answers with `bascule approvals show apr_1`", details={"approvalId": "apr_1"}
    ).body(),
)
ARGUMENTS = {
    "exec": {"command": "make", "background": True},
    "exec_stop": {"processId": "prc_1"},
    "read_file": {"path": "x"},
    "create_file": {"path": "x", "content": ""},
    "edit_file": {"path": "x", "edits": []},
    "delete_file": {"path": "x"},
    "workspace_run": {"operations": []},
    "run_diff": {"runId": "run_1"},
    "run_undo": {"runId": "run_1"},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_tool_that_waits_for_a_person_answers_so_in_the_shape_it_promises(name):
    script = Script(calls.answer(ME, name, ARGUMENTS[name]), REFUSED, {"unread": 0})
    result = script.result
    assert result["status"] == "awaiting_approval"
    assert result["approvalId"] == "apr_1"
    assert result["next"] == name
    assert "bascule approvals show apr_1" in result["hint"]
    jsonschema.validate(result, tools.BY_NAME[name]["outputSchema"])


def test_other_refusals_stay_failures():
    denied = Refusal(403, {"code": "policy_denied", "message": "no"})
    with pytest.raises(Refusal):
        Script(calls.answer(ME, "exec_stop", ARGUMENTS["exec_stop"]), denied)


def test_the_shim_waits_as_long_as_the_daemon_may_hold():
    sent = []

    class Socket:
        unsent = bytearray()
        send = sent.append

    class Quiet:
        enabled = False

        def finish(self):
            """Nothing was started."""

    now = 1_000.0
    link = Link(Socket, "here", Quiet(), lambda: now)
    link._socket = Socket()
    link.ready = True
    held = link.ask(Ask("processes.stop", {}), lambda *_: None)
    plain = link.ask(Ask("agents.list", {}), lambda *_: None)
    assert plain.give_up == now + ANSWER_SECONDS
    assert held.give_up == now + calls.SLICE_MS / 1000 + ANSWER_SECONDS


def test_a_script_has_an_exit_code_for_it():
    assert REFUSED.exit_code == exits.APPROVAL == 11


class Held:
    """What /mcp tells a call about its client: it is there."""

    def hold(self, later):
        """The client stays."""

    def let_go(self):
        """Nothing was held."""


def test_over_mcp_the_same_tool_answers_the_same_and_works_once_approved():
    row = Row(
        name="processes.stop",
        summary="For this test.",
        params=ProcessParams,
        result=ProcessView,
        effect=Effect.PROCESS_CONTROL,
        who=ANYONE,
        record=Record.AHEAD,
        consent=Consent.HOLD,
    )
    asks = policy(
        'version = 1\nextends = "standard"\n[[rule]]\nname = "stop"\ndecision = "ask"\nreason = "really?"\n'
        'methods = ["processes.stop"]'
    )
    stopped = []

    def stop(call, params, doing):
        stopped.append(params.process_id)
        return {"processId": params.process_id, "running": False}

    with House(policy=asks, rows=(row,), handlers={"processes.stop": stop}) as house:
        house.register("Jerry")

        def use():
            errand = Errand(house.dispatch, "agent:Jerry", Held(), None, 1.0)
            work = calls.answer(Me(lambda: "Jerry", None), "exec_stop", {"processId": "prc_1"})
            return house._loop.run_until_complete(asyncio.wait_for(errand.run(work), PATIENCE))

        first = use()
        assert first["status"] == "awaiting_approval"
        assert "no person is set" in first["hint"]
        assert stopped == []
        decision = {"approvalId": first["approvalId"], "decision": "approved"}
        house.call("person", "approvals.decide", decision)
        assert use()["running"] is False
        assert stopped == ["prc_1"]
