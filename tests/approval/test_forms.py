"""What a model, a script and a link client read while a person decides."""

import asyncio
import sys
from pathlib import Path

import jsonschema
import pytest
from felling import policy

from bascule.foundation.errors import ApprovalRequired, PolicyDenied
from bascule.kernel.rows import Acts, Effect
from bascule.local_client import exits
from bascule.local_client.exits import Refusal
from bascule.local_client.values import NOT_YET
from bascule.surfaces.mcp.calling import Facts, ToolCall, call_tool
from bascule.testing.house import House
from bascule.workspace.protocol import ProcessParams, ProcessView
from patience import PATIENCE

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

from driving import BY_NAME, Me, Script

ME = Me(directory="/projects/otter")
ANSWER = "a person answers with `bascule approvals show apr_1`"


def asked():
    return ApprovalRequired("a rule says ask", hint=ANSWER, details={"approvalId": "apr_1"})


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
    script = Script(name, ARGUMENTS[name], asked(), {"unread": 0}, me=ME, whole=True)
    result = script.result
    assert result["status"] == "awaiting_approval"
    assert result["approvalId"] == "apr_1"
    assert result["next"] == name
    assert "bascule approvals show apr_1" in result["hint"]
    jsonschema.validate(result, BY_NAME[name].listed()["outputSchema"])


def test_other_refusals_stay_failures():
    with pytest.raises(PolicyDenied):
        Script("exec_stop", ARGUMENTS["exec_stop"], PolicyDenied("no"), me=ME, whole=True)


def test_a_script_has_an_exit_code_for_it():
    assert Refusal(NOT_YET, asked().body()).exit_code == exits.APPROVAL == 11


def test_a_tool_that_waited_for_a_person_works_once_approved():
    row = Acts[ProcessParams, ProcessView]("processes.stop", "For this test.", effect=Effect.PROCESS_CONTROL)
    asks = policy(
        'version = 1\nextends = "standard"\n[[rule]]\nname = "stop"\ndecision = "ask"\nreason = "really?"\n'
        'methods = ["processes.stop"]'
    )
    stopped = []

    def stop(call, params, doing):
        stopped.append(params.process_id)
        return {"processId": params.process_id, "running": False}

    with House(policy=asks, methods=(row.bind(stop),)) as house:
        house.register("Jerry")

        def use():
            me = ToolCall(house.gate, lambda: "agent:Jerry", Facts("mcp"), "call-1", become=None, repeats=False)
            work = me.run(call_tool(me, BY_NAME["exec_stop"], {"processId": "prc_1"}))
            return house._loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

        first = use()
        assert first["status"] == "awaiting_approval"
        assert "no person is set" in first["hint"]
        assert stopped == []
        decision = {"approvalId": first["approvalId"], "decision": "approved"}
        house.call("person", "approvals.decide", decision)
        assert use()["running"] is False
        assert stopped == ["prc_1"]
