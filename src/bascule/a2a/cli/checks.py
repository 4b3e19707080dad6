"""A2A: whether what is set can be done, and whether agents elsewhere are as they were added."""

from importlib.util import find_spec

from bascule.a2a.settings import INSTALL
from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok, warn


def check_a2a(patient: Patient) -> Verdict:
    if find_spec("a2a") is None:
        return info(f"agents beyond A2A need the a2a-sdk: {INSTALL}")
    if patient.client is None:
        return info("the a2a-sdk is installed; what is published is known to a running daemon")
    listed = patient.client.call("a2a.published", {})
    peers = patient.client.call("a2a.agents", {})
    if listed["problem"]:
        return warn(f"the door for A2A is not open: {listed['problem']}", "choose another a2a_port")
    for each in peers:
        if each.get("problem"):
            return warn(f"{each['agentId']}: {each['problem']}", f"bascule a2a add {each['agentId'][:-4]} {each['url']}")
    door = listed["door"] or "closed"
    return ok(f"door {door}, {len(listed['agents'])} published; {len(peers)} agents elsewhere")


CHECKS: tuple[Check, ...] = (Check("a2a", check_a2a),)
