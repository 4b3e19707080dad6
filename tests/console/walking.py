"""Every page of the console on the scripted day, in the looks that people have."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from browsing import Console
from day import Day
from playwright.sync_api import expect

PACKAGES = Path(__file__).with_name("npm_packages.json")
# A style that axe-core itself would like to have in the page, and our policy refuses.
OWN_STYLE = "Applying inline style .*sha256-lVBG1WX76agw"
LEVELS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


class Look(NamedTuple):
    name: str
    width: int
    height: int
    scheme: str

    @property
    def context(self) -> dict[str, Any]:
        """What the browser is told about its window."""
        return {"viewport": {"width": self.width, "height": self.height}, "color_scheme": self.scheme}


LIGHT = Look("light", 1280, 800, "light")
DARK = Look("dark", 1280, 800, "dark")
PHONE = Look("phone", 390, 844, "dark")
LOOKS = (LIGHT, DARK, PHONE)


class Place(NamedTuple):
    """A page, how one comes to it, and what shows that it is there."""

    name: str
    path: str
    there: str

    def on(self, day: Day) -> "Place":
        """With the ids of this day."""
        return self._replace(path=re.sub(r"<(.+?)>", lambda found: day.place(found[1]), self.path))


# Every page, and of those that list things also one of them.
PLACES = (
    Place("approvals", "approvals", ".inbox-row"),
    Place("approval-command", "approvals/<rm -rf>", ".answers"),
    Place("approval-long", "approvals/<migrations/>", ".answers"),
    Place("approval-alike", "approvals/<fixtures/tea>", ".answers .primary:has-text('4')"),
    Place("approval-click", "approvals/<click AX>", ".picture img"),
    Place("approval-text", "approvals/<typeText>", ".picture img"),
    Place("approval-game", "approvals/<burrow/restart>", ".answers"),
    Place("question", "approvals/<question>", ".choices"),
    Place("live", "live", ".event"),
    Place("tickets", "tickets", ".ticket-row"),
    Place("ticket", "tickets/<review>", ".timeline .step"),
    Place("conversations", "tickets/~conversations", "main a[data-row]"),
    Place("conversation", "tickets/~conversation/ada-today", ".timeline .step"),
    Place("write", "tickets/~new?to=Jerry", ".form"),
    Place("runs", "runs", "main a[data-row]"),
    Place("run", "runs/<main run>", ".diff-line"),
    Place("evidence", "evidence/<execution>", ".wipe img, .shot img"),
    Place("games", "games", "main .card"),
    Place("game", "games/burrow", ".tools > li"),
    Place("ledger", "ledger", "a.record"),
    Place("record", "ledger/<record>", "main dl"),
    Place("policy", "policy", ".rules > li"),
    Place("health", "health", ".chart"),
    Place("person", "person", ".panel"),
)


def visit(console: Console, place: Place) -> None:
    """Until it is whole: what it shows is there, and nothing is still loading."""
    console.go(place.path)
    expect(console.page.locator(place.there).first).to_be_visible()
    settled(console)


def settled(console: Console) -> None:
    expect(console.page.get_by_text(re.compile(r"^Loading")).locator("visible=true")).to_have_count(0)
    expect(console.page.locator(".answers.deaf")).to_have_count(0)
    # Two frames: what the last answer changed is painted.
    console.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def audit(console: Console, axe: str) -> list[str]:
    """What axe-core finds on the page as it is: the rule, and where."""
    # By the debugger, which the page's own policy does not bind.
    if not console.page.evaluate("() => 'axe' in globalThis"):
        console.page.evaluate(axe)
    options = {"runOnly": {"type": "tag", "values": LEVELS}, "resultTypes": ["violations"], "preload": False}
    result = console.page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{violation['id']}: {' '.join(map(str, node['target']))} ({node['failureSummary'].splitlines()[-1].strip()})"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]
