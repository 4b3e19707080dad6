"""The desktop through both clients: each verb is the daemon's row, and a person is waited for."""

import asyncio
import inspect

import pytest
from acting import go
from scripted import ScriptedServer, refusal

from bascule.client import Client, Desktop, SyncClient, SyncDesktop
from bascule.client.desktop_verbs import target_of
from bascule.desktop import protocol as d
from bascule.desktop import rows as desktop_rows
from bascule.foundation.errors import ApprovalRequired
from gabp import codec

ROWS = {row.name: row for row in desktop_rows.METHODS}
EVIDENCE = {"dir": "/e/"}
ACTED = {"executionId": "x", "done": True, "effect": "confirmed", "evidence": EVIDENCE}
STATUS = {"enabled": True, "stopped": False, "host": "ready", "stopKeys": "Ctrl+Alt+Shift+Escape"}
OBSERVED = {
    "executionId": "x",
    "routeResolved": {"frontmostBundleId": "a.b", "windowTitle": "t"},
    "evidence": EVIDENCE,
    "snapshot": "button [e:1]",
}
ELEMENT = {
    "elementId": "e:4",
    "fingerprint": "f",
    "role": "AXButton",
    "title": "OK",
    "value": None,
    "frame": {"x": 0, "y": 0, "width": 1, "height": 1},
    "nativeRole": "push button",
    "visible": True,
    "states": [],
}
ANSWERS = {
    "desktop.status": STATUS,
    "desktop.stop": {"stopped": True, "aborted": 2},
    "desktop.abort": {"aborted": True, "executionId": "x"},
    "desktop.windows": {"windows": []},
    "desktop.observe": OBSERVED,
    "desktop.find": {"executionId": "x", "elementRefs": [ELEMENT], "matched": 1, "evidence": EVIDENCE},
    "desktop.listModals": {"executionId": "x", "modals": [], "evidence": EVIDENCE},
    "desktop.waitUntil": {"executionId": "x", "ok": True, "matched": 1, "elapsedMs": 3, "evidence": EVIDENCE},
    "desktop.click": {"executionId": "x", "clicked": True, "evidence": EVIDENCE, "effect": "none", "method": "action"},
    "desktop.typeText": {
        "executionId": "x",
        "typed": True,
        "evidence": EVIDENCE,
        "effect": "confirmed",
        "clipboard": "empty",
    },
    "desktop.hotkey": {"executionId": "x", "sent": True, "evidence": EVIDENCE, "effect": "unverified"},
}
# Each verb once, with what the row must have been asked.
CALLS = [
    ("status", (), {}, "status", {}),
    ("stop", (), {}, "stop", {}),
    ("abort", ("r-1",), {}, "abort", {"executionId": "r-1"}),
    ("windows", (), {}, "windows", {}),
    ("observe", (), {"app": "a.b"}, "observe", {"route": {"app": {"bundleId": "a.b"}}}),
    ("find", (d.Selector(title_contains="OK"),), {}, "find", {"selector": {"titleContains": "OK"}}),
    ("list_modals", (), {"pid": 7}, "listModals", {"route": {"app": {"pid": 7}}}),
    ("wait_until", (d.Condition(title_matches="x"),), {"timeout": 2}, "waitUntil", {"timeoutMs": 2000}),
    ("click", ("e:4",), {"window": "w:1f"}, "click", {"route": {"window": {"windowId": "w:1f"}}}),
    ("double_click", ("e:4",), {"window": "^t"}, "doubleClick", {"route": {"window": {"titlePattern": "^t"}}}),
    ("right_click", ("e:4",), {"request_id": "r"}, "rightClick", {"requestId": "r"}),
    ("type_text", ("中文", "e:4"), {"clear": True}, "typeText", {"text": "中文", "options": {"clearBefore": True}}),
    ("hotkey", ("ctrl", "s"), {"require_focused": True}, "hotkey", {"route": {"focusPolicy": "requireFocused"}}),
    ("scroll", ("e:4", "down", 5), {}, "scroll", {"direction": "down", "steps": 5}),
    ("drag", ("e:4", "e:5"), {}, "drag", {"to": {"elementRef": {"elementId": "e:5"}}}),
    ("set_value", ("e:4", 0.5), {"workspace": "/w"}, "setValue", {"value": 0.5, "workspacePath": "/w"}),
    ("focus_window", (), {"window": "w:1"}, "focusWindow", {"route": {"window": {"windowId": "w:1"}}}),
    ("dismiss_modal", ("Cancel",), {}, "dismissModal", {"button": "Cancel"}),
]


def script(request):
    return {"result": ANSWERS.get(request["method"], ACTED)}


def holds(given, wanted):
    """Whether all that is wanted was said; defaults may stand beside it."""
    if not isinstance(wanted, dict):
        return given == wanted
    return all(name in given and holds(given[name], value) for name, value in wanted.items())


def test_every_verb_asks_its_row_and_both_clients_ask_the_same():
    async def main():
        async with ScriptedServer(script).running() as server:
            async with Client.connect(server.state_dir) as client:
                for verb, args, where, _, _ in CALLS:
                    await getattr(client.desktop, verb)(*args, **where)

            def blocking():
                with SyncClient.connect(server.state_dir) as client:
                    for verb, args, where, _, _ in CALLS:
                        getattr(client.desktop, verb)(*args, **where)

            await asyncio.to_thread(blocking)
            return [each for each in server.requests if each["method"].startswith("desktop.")]

    asked = go(main())
    first, second = asked[: len(CALLS)], asked[len(CALLS) :]
    assert [each["params"] for each in first] == [each["params"] for each in second]
    for request, (_, _, _, method, params) in zip(first, CALLS, strict=True):
        assert request["method"] == f"desktop.{method}"
        assert holds(request["params"], params), request
        codec.convert(request["params"], ROWS[request["method"]].params)


def test_what_agents_may_ask_for_has_a_verb_and_both_clients_have_the_same():
    theirs = {"desktop.enable", "desktop.disable", "desktop.resume", "desktop.health", "desktop.doctor"}
    assert {f"desktop.{method}" for _, _, _, method, _ in CALLS} == set(ROWS) - theirs
    verbs = {verb for verb, *_ in CALLS}
    for shell in (Desktop, SyncDesktop):
        assert {name for name, _ in inspect.getmembers(shell, inspect.isfunction) if name[0] != "_"} == verbs
    for verb in verbs:
        one, two = (inspect.signature(getattr(shell, verb)) for shell in (Desktop, SyncDesktop))
        assert one == two


def test_an_element_is_named_by_ref_by_description_or_as_it_was_found():
    found = codec.convert(ELEMENT, d.FoundElement)
    assert target_of("e:4").element_ref.element_id == "e:4"
    assert target_of(d.Selector(by_role="AXButton")).selector.by_role == "AXButton"
    assert target_of(found).element_ref.fingerprint == "f"
    assert target_of(target_of("e:4")) == target_of("e:4")


@pytest.mark.parametrize(("patience", "asked"), [(None, 1), (60, 3)])
def test_a_person_is_waited_for_as_long_as_the_program_says(patience, asked):
    def slow(request):
        waits = refusal("approval_required", "why", details={"approvalId": "apr_1"})
        seen = [each for each in server.requests if each["method"] == request["method"]]
        return waits if len(seen) < 3 else {"result": ANSWERS["desktop.click"]}

    server = ScriptedServer(slow)

    async def main():
        async with server.running(), Client.connect(server.state_dir) as client:
            if patience is None:
                with pytest.raises(ApprovalRequired) as waits:
                    await client.desktop.click("e:4")
                assert waits.value.details["approvalId"] == "apr_1"
            else:
                assert (await client.desktop.click("e:4", patience=patience)).clicked
        calls = server.params("desktop.click")
        assert len(calls) == asked
        assert all(each == calls[0] for each in calls)

    go(main())
