"""What the desktop's tools do, in the way of `calls`: generators that yield questions and return results.

Nothing here adds what differs from call to call: a call that waits for the person is made again word for word, and
must be the same one then.
"""

from __future__ import annotations

import math
import os
import re

from bascule import places
from bascule.doors.exits import Refusal, WrongUsage
from bascule.doors.values import NOT_YET
from bascule.shim.calls import SLICE_MS, Ask, Result

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from bascule.shim.calls import Me, Tool

    Asking = Generator[Ask, Any, dict[str, Any]]

# A slow program's large window takes two; what is not done by then hangs.
TIMEOUT_MS = 20_000
DEFAULT_WAIT_MS = 15_000
# The whole tree: the contract's default of 8 levels ends above the buttons of most windows.
MAX_DEPTH = 64
# About 4,000 tokens. A typical window needs a third; a sheet of a thousand cells is looked through with desktop_find.
SHOWN_CHARS = 14_000
# Of one title or value among many.
SHOWN_WORDS = 200

_WINDOW_ID = re.compile(r"w:[0-9a-f]{1,16}\Z")
_NOT_FOUND = "DESKTOP_ELEMENT_NOT_FOUND"
# What the contract calls the roles; a snapshot shows them without AX and in lower case, and so does a model name them.
# Held equal to the host's by a test.
ROLES = {
    name.lower(): f"AX{name}"
    for name in [
        "Application",
        "Window",
        "Dialog",
        "Button",
        "CheckBox",
        "RadioButton",
        "TabGroup",
        "TextField",
        "TextArea",
        "SecureTextField",
        "StaticText",
        "Heading",
        "Link",
        "Image",
        "MenuBar",
        "Menu",
        "MenuItem",
        "ComboBox",
        "Slider",
        "Incrementor",
        "ProgressIndicator",
        "LevelIndicator",
        "ScrollBar",
        "ScrollArea",
        "Splitter",
        "SplitGroup",
        "Toolbar",
        "Table",
        "Outline",
        "Row",
        "Cell",
        "Column",
        "List",
        "Group",
        "WebArea",
        "Canvas",
        "Ruler",
        "Unknown",
    ]
}
# What a model should know of an element's states; the toolkits have thirty.
_TOLD_STATES = ("checked", "selected", "expanded", "focused", "modal", "pressed")
# What to do next, where the daemon's own words do not say; by the contract's codes.
_NEXT = {
    "DESKTOP_TIMEOUT": "look with desktop_observe; it may have been done",
    "DESKTOP_ABORTED": "nothing more of it is done",
    "DESKTOP_INVALID_REQUEST": "mend the arguments and call again",
    "DESKTOP_HOST_NOT_READY": "wait a moment, then call again",
    "DESKTOP_APP_FORBIDDEN": "nobody may use this app through Bascule; ask your user to do it",
}


# -- looking --


def observe(me: Me, arguments: dict[str, Any]) -> Asking:
    pictured, marked, diff = (bool(arguments.get(name)) for name in ("image", "marks", "diff"))
    if marked and not pictured:
        raise WrongUsage("marks are drawn on the picture", "give image: true with them")
    options: dict[str, Any] = {"axMaxDepth": MAX_DEPTH, "diff" if diff else "snapshot": True}
    if pictured:
        options |= {"inline": True, "marks": marked}
    seen = yield from _ask(me, "observe", {**_route(arguments), "options": options}, repeat=True)
    where = seen["routeResolved"]
    out = Result(
        status="ok",
        app=where["frontmostBundleId"],
        window=where["windowTitle"],
        executionId=seen["executionId"],
    )
    if diff:
        out["changes"] = _cut_lines(seen.get("diff") or [], out)
    else:
        out["snapshot"] = "\n".join(_cut_lines((seen.get("snapshot") or "").split("\n"), out))
    if seen.get("partial"):
        out["partial"] = seen["partial"]
    if seen.get("image"):
        picture = seen["image"]
        out["image"] = {name: picture[name] for name in ("width", "height", "scale")}
        out.images = [{"type": "image", "data": picture["data"], "mimeType": picture["mimeType"]}]
    return out


def find(me: Me, arguments: dict[str, Any]) -> Asking:
    selector = _selector(arguments)
    if not selector:
        raise WrongUsage("nothing is looked for", "give role, title or value")
    if "limit" in arguments:
        selector["limit"] = arguments["limit"]
    found = yield from _ask(me, "find", {**_route(arguments), "selector": selector}, repeat=True)
    out: dict[str, Any] = {
        "status": "ok",
        "elements": [_short(each) for each in found["elementRefs"]],
        "matched": found["matched"],
    }
    if found.get("partial"):
        out["partial"] = found["partial"]
    return out


def wait(me: Me, arguments: dict[str, Any]) -> Asking:
    wait_ms = min(arguments.get("timeoutMs", DEFAULT_WAIT_MS), me.slice_ms)
    params = {**_route(arguments), "condition": _condition(arguments)}
    try:
        seen = yield from _ask(me, "waitUntil", params, arguments, timeout_ms=wait_ms, repeat=True)
    except Refusal as refused:
        if _code(refused) != "DESKTOP_TIMEOUT":
            raise
        # What the caller wanted to know, not a failure.
        return {"status": "timeout", "elapsedMs": wait_ms, "next": "desktop_observe"}
    return {"status": "ok", "elapsedMs": seen["elapsedMs"]}


def windows(me: Me, arguments: dict[str, Any]) -> Asking:
    if "focus" in arguments:
        params = {"route": {"window": {"windowId": arguments["focus"]}}}
        return _done((yield from _ask(me, "focusWindow", params)))
    listed = yield from _ask(me, "windows", {}, repeat=True)
    return {"status": "ok", "windows": [_window(each) for each in listed["windows"]]}


# -- acting --


def click(me: Me, arguments: dict[str, Any]) -> Asking:
    chosen = [name for name in ("kind", "scroll", "dragTo") if name in arguments]
    if len(chosen) > 1:
        raise WrongUsage(f"{' and '.join(chosen)} are different things", "give one of them, and call again for another")
    params: dict[str, Any] = {**_route(arguments), "target": _target(arguments)}
    if "scroll" in arguments:
        params |= {"direction": arguments["scroll"]} | ({"steps": arguments["steps"]} if "steps" in arguments else {})
        return _done((yield from _ask(me, "scroll", params)))
    if "dragTo" in arguments:
        params["to"] = _by_ref(arguments["dragTo"])
        return _done((yield from _ask(me, "drag", params)))
    method = {"double": "doubleClick", "right": "rightClick"}.get(arguments.get("kind", "click"), "click")
    return _done((yield from _ask(me, method, params)))


def type_text(me: Me, arguments: dict[str, Any]) -> Asking:
    text = arguments["text"]
    if arguments.get("set"):
        params = {**_route(arguments), "target": _target(arguments), "value": _value(text)}
        return _done((yield from _ask(me, "setValue", params, arguments)))
    params = {**_route(arguments), "text": text}
    if target := _target(arguments, needed=False):
        params["target"] = target
    if arguments.get("clear"):
        params["options"] = {"clearBefore": True}
    return _done((yield from _ask(me, "typeText", params, arguments)))


def hotkey(me: Me, arguments: dict[str, Any]) -> Asking:
    return _done((yield from _ask(me, "hotkey", {**_route(arguments), "keys": arguments["keys"]})))


def abort(_me: Me, arguments: dict[str, Any]) -> Asking:
    done = yield Ask("desktop.abort", {"executionId": arguments["id"]})
    return {"status": "aborted" if done["aborted"] else "over already", "executionId": done["executionId"]}


TOOLS: dict[str, Tool] = {
    "desktop_observe": observe,
    "desktop_find": find,
    "desktop_click": click,
    "desktop_type": type_text,
    "desktop_hotkey": hotkey,
    "desktop_wait": wait,
    "desktop_abort": abort,
    "desktop_windows": windows,
}


# -- what is asked --


def _ask(
    me: Me,
    method: str,
    params: dict[str, Any],
    arguments: dict[str, Any] | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
    repeat: bool = False,
) -> Asking:
    """One call, with where its evidence goes."""
    said = {**params, "timeoutMs": timeout_ms}
    if arguments and "requestId" in arguments:
        said["requestId"] = arguments["requestId"]
    workspace = _workspace(me.directory)
    try:
        if workspace is not None:
            try:
                return dict((yield _asked(method, {**said, "workspacePath": workspace}, timeout_ms, repeat=repeat)))
            except Refusal as refused:
                # The user's setting says where evidence may lie, and our directory is not there: then with the daemon.
                if _code(refused) != "DESKTOP_WORKSPACE_FORBIDDEN":
                    raise
        return dict((yield _asked(method, said, timeout_ms, repeat=repeat)))
    except Refusal as refused:
        if refused.status != NOT_YET:
            refused.hint = _hint(refused)
        raise


def _asked(method: str, params: dict[str, Any], timeout_ms: int, *, repeat: bool) -> Ask:
    ask = Ask(f"desktop.{method}", params, repeat=repeat)
    # The person may take the whole slice, and then it begins.
    ask.held_ms = SLICE_MS + timeout_ms
    return ask


def _workspace(directory: str | None) -> str | None:
    """Where we were started, if that is a directory below the user's home: the daemon takes no other unless told to."""
    if directory is None:
        return None
    home, here = os.path.realpath(places.home()), os.path.realpath(directory)
    return here if here != home and os.path.commonpath((home, here)) == home else None


def _code(refused: Refusal) -> str | None:
    """The contract's own code of what went wrong."""
    told = refused.details.get("desktop")
    return str(told.get("code")) if isinstance(told, dict) else None


def _hint(refused: Refusal) -> str | None:
    """In the names of the tools, which is what a model has."""
    if _code(refused) == _NOT_FOUND:
        about = refused.details["desktop"].get("details")
        missing = about.get("reason") if isinstance(about, dict) else None
        return "desktop_windows lists the windows" if missing == "route" else "desktop_observe shows what is there now"
    return refused.hint or _NEXT.get(_code(refused) or "")


def _route(arguments: dict[str, Any]) -> dict[str, Any]:
    route: dict[str, Any] = {}
    if "app" in arguments:
        route["app"] = {"bundleId": arguments["app"]}
    if "window" in arguments:
        window = arguments["window"]
        route["window"] = {"windowId" if _WINDOW_ID.match(window) else "titlePattern": window}
    return {"route": route} if route else {}


def _selector(arguments: dict[str, Any]) -> dict[str, Any]:
    selector: dict[str, Any] = {}
    if "role" in arguments:
        selector["byRole"] = ROLES.get(arguments["role"].lower().removeprefix("ax"), arguments["role"])
    if "title" in arguments:
        selector["titleContains"] = arguments["title"]
    if "value" in arguments:
        selector["valueContains"] = arguments["value"]
    return selector


def _target(arguments: dict[str, Any], *, needed: bool = True) -> dict[str, Any]:
    selector = _selector(arguments)
    if "ref" in arguments:
        if selector or "index" in arguments:
            raise WrongUsage("a ref names the element by itself", "leave out role, title, value and index")
        return _by_ref(arguments["ref"])
    if selector:
        return {"selector": selector | ({"index": arguments["index"]} if "index" in arguments else {})}
    if needed or "index" in arguments:
        raise WrongUsage("no element is named", "give a ref of desktop_observe or desktop_find, or role, title, value")
    return {}


def _by_ref(ref: str) -> dict[str, Any]:
    # As it stands in a snapshot, too.
    return {"elementRef": {"elementId": ref.strip().removeprefix("[").removesuffix("]")}}


def _condition(arguments: dict[str, Any]) -> dict[str, Any]:
    until, text, selector = arguments["until"], arguments.get("text"), _selector(arguments)
    if until in ("exists", "gone", "value") and not selector:
        raise WrongUsage(f"until {until}: of which element?", "give role, title or value")
    if until in ("value", "title", "window") and not text:
        raise WrongUsage(f"until {until}: which text?", "give text")
    conditions: dict[str, Any] = {
        "exists": ("selectorExists", selector),
        "gone": ("selectorGone", selector),
        "value": ("valueContains", {"selector": selector, "text": text}),
        "title": ("titleMatches", text),
        "window": ("windowExists", {"titlePattern": text}),
        "stable": ("stable", {}),
    }
    name, value = conditions[until]
    return {name: value}


def _value(text: str) -> str | float:
    """Sliders and spin buttons take numbers, fields take texts."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


# -- what a model reads --


def _done(result: dict[str, Any]) -> dict[str, Any]:
    out = {"status": "ok", "effect": result["effect"], "executionId": result["executionId"]}
    if result.get("rematched"):
        out["note"] = "the ref was stale; the element that looks the same was taken"
    if result.get("clipboard") == "lost":
        out["clipboard"] = "lost"
    if result["effect"] != "confirmed":
        out["next"] = "desktop_observe"
    return out


def _short(element: dict[str, Any]) -> dict[str, Any]:
    out = {"ref": element["elementId"], "role": element["role"].removeprefix("AX").lower()}
    for name in ("title", "value"):
        if element.get(name):
            out[name] = _cut(element[name])
    has = element.get("states", ())
    states = [each for each in _TOLD_STATES if each in has]
    if not {"enabled", "sensitive"}.intersection(has):
        states.append("disabled")
    if states:
        out["states"] = states
    if not element.get("visible", True):
        out["visible"] = False
    return out


def _window(window: dict[str, Any]) -> dict[str, Any]:
    out = {"windowId": window["windowId"], "app": window["bundleId"]}
    if window.get("title"):
        out["title"] = _cut(window["title"])
    for name in ("active", "forbidden"):
        if window.get(name):
            out[name] = True
    return out


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_WORDS else text[: SHOWN_WORDS - 1] + "…"


def _cut_lines(lines: list[str], out: dict[str, Any]) -> list[str]:
    """As many as a model should read at once."""
    room = SHOWN_CHARS
    for count, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0 and count:
            out.update(truncated=len(lines) - count, next="desktop_find")
            return lines[:count]
    return lines
