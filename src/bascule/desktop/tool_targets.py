"""Which window, element or condition a tool's arguments mean, in the contract's words."""

import math
import re
from typing import Any

from bascule.desktop import roles as desktop_roles
from bascule.foundation.errors import InvalidRequest

_WINDOW_ID = re.compile(r"w:[0-9a-f]{1,16}\Z")
# A snapshot shows the contract's roles without AX and in lower case, and so does a model name them.
_ROLES = {role.removeprefix("AX").lower(): role for role in desktop_roles.known_roles()}


def route_of(plain: dict[str, Any]) -> dict[str, Any]:
    route: dict[str, Any] = {}
    if "app" in plain:
        route["app"] = {"bundleId": plain["app"]}
    if "window" in plain:
        window = plain["window"]
        route["window"] = {"windowId" if _WINDOW_ID.match(window) else "titlePattern": window}
    return {"route": route} if route else {}


def selector_of(plain: dict[str, Any]) -> dict[str, Any]:
    selector: dict[str, Any] = {}
    if "role" in plain:
        selector["byRole"] = _ROLES.get(plain["role"].lower().removeprefix("ax"), plain["role"])
    if "title" in plain:
        selector["titleContains"] = plain["title"]
    if "value" in plain:
        selector["valueContains"] = plain["value"]
    return selector


def target_of(plain: dict[str, Any], *, needed: bool = True) -> dict[str, Any]:
    selector = selector_of(plain)
    if "ref" in plain:
        if selector or "index" in plain:
            raise InvalidRequest("a ref names the element by itself", hint="leave out role, title, value and index")
        return target_by_ref(plain["ref"])
    if selector:
        return {"selector": selector | ({"index": plain["index"]} if "index" in plain else {})}
    if needed or "index" in plain:
        raise InvalidRequest(
            "no element is named", hint="give a ref of desktop_observe or desktop_find, or role, title, value"
        )
    return {}


def target_by_ref(ref: str) -> dict[str, Any]:
    # As it stands in a snapshot, too.
    return {"elementRef": {"elementId": ref.strip().removeprefix("[").removesuffix("]")}}


def condition_of(plain: dict[str, Any]) -> dict[str, Any]:
    until, text, selector = plain["until"], plain.get("text"), selector_of(plain)
    if until in ("exists", "gone", "value") and not selector:
        raise InvalidRequest(f"until {until}: of which element?", hint="give role, title or value")
    if until in ("value", "title", "window") and not text:
        raise InvalidRequest(f"until {until}: which text?", hint="give text")
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


def value_of(text: str) -> str | float:
    """Sliders and spin buttons take numbers, fields take texts."""
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
