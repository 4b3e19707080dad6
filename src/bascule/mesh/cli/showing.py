"""What `bascule mesh status` and `bascule node list` print."""

from typing import Any

from bascule.foundation.text import one_line, visible
from bascule.programs.helpers.terminal import show, show_table

_NO_MESH = "in no mesh: begin one with `bascule mesh new NAME`, or join one with `bascule join CODE`"


def show_nodes(listed: dict[str, Any]) -> None:
    if not listed.get("mesh"):
        show(_NO_MESH)
        return
    nodes = listed.get("nodes", [])
    show_table(("NODE", "STANDING", "OWNER", "REACHABLE", "VERSION", "CARD ENDS"), [_line(each) for each in nodes])
    for each in nodes:
        if each["standing"] == "waiting":
            words = f", with the words: {each['words']}" if each.get("words") else ""
            show(f"\n{each['node']} asks to join{words}\n  bascule node accept {each['node']}")


def _line(node: dict[str, Any]) -> tuple[str, ...]:
    owner = one_line(node.get("owner") or "")
    return (
        node["node"] + (" (here)" if node.get("here") else ""),
        node["standing"],
        "you" if node.get("own") else owner or "-",
        _reachable(node),
        visible(node.get("version") or "-"),
        (node.get("cardEnds") or "-")[:10],
    )


def _reachable(node: dict[str, Any]) -> str:
    if node.get("here"):
        return "-"
    if node.get("reachable"):
        return "yes"
    if node.get("reachable") is False:
        return f"no, last seen {node.get('since', 'never')}"
    if node["standing"] != "member":
        return "-"
    # While this machine is not connected nobody knows.
    return f"unknown, last seen {node['since']}" if node.get("since") else "not heard of yet"


def show_status(status: dict[str, Any]) -> None:
    if status["standing"] == "none":
        show(_NO_MESH)
        if status.get("ended"):
            show(f"the last attempt to join ended: {visible(status['ended'])}")
        return
    for name, value in _facts(status):
        show(f"{name:<10} {value}")
    nodes = status.get("nodes", [])
    if nodes:
        show("")
        show_table(("NODE", "STANDING", "REACHABLE", "OUTBOX", "LAG"), [_traffic(each) for each in nodes])
    for fault in status.get("faults", []):
        show(f"\nproblem    {visible(fault['what'])}\n  -> {visible(fault['remedy'])}")


def _facts(status: dict[str, Any]) -> list[tuple[str, str]]:
    joining = status.get("joining")
    connected = "connected" if status.get("connected") else "not connected"
    version = f", NATS {status['serverVersion']}" if status.get("serverVersion") else ""
    facts = [
        ("mesh", visible(status.get("mesh") or "-")),
        (
            "node",
            f"{status.get('node')}, {status['standing']}" + (", holds the mesh key" if status.get("holder") else ""),
        ),
        ("server", f"{visible(status.get('server') or '-')}" + ("" if joining else f" ({connected}{version})")),
    ]
    if status.get("addresses"):
        facts.append(("reached at", ", ".join(map(visible, status["addresses"]))))
    if status.get("cardEnds"):
        facts.append(("card ends", status["cardEnds"][:10]))
    if joining:
        facts += [
            ("words", joining.get("words") or "-"),
            (
                "waits for",
                f"`bascule node accept {status['node']}` at {visible(joining['holder'])}, until {joining['endsAt']}",
            ),
        ]
    if status.get("asking"):
        names = ", ".join(status["asking"])
        facts.append(("asking", f"{names}: `bascule node list` shows their words"))
    return facts


def _traffic(node: dict[str, Any]) -> tuple[str, ...]:
    lag = node.get("lagMs")
    items = node.get("outboxItems", 0)
    return (
        node["node"],
        node["standing"],
        _reachable(node),
        f"{items} ({node.get('outboxBytes', 0)} bytes)" if items else "empty",
        "-" if lag is None else f"{lag / 1000:.1f} s",
    )
