"""Every page of the console on the scripted day, in the looks that people have."""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from browsing import Console
from day import Day
from playwright.sync_api import expect


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
    then: Callable[[Console], None] | None = None


def places(day: Day) -> Iterator[Place]:
    """Every page, and of those that list things also one of them."""
    ids = day.waiting()
    yield Place("approvals", "approvals", ".inbox-row")
    yield Place("approval-command", f"approvals/{ids['rm -rf']}", ".answers")
    yield Place("approval-long", f"approvals/{ids['migrations/']}", ".answers")
    yield Place("approval-alike", f"approvals/{ids['fixtures/tea']}", ".answers .primary:has-text('4')")
    yield Place("approval-click", f"approvals/{ids['AXMenu']}", ".picture img")
    yield Place("approval-text", f"approvals/{ids['typeText']}", ".picture img")
    yield Place("approval-game", f"approvals/{ids['burrow/restart']}", ".answers")
    yield Place("question", f"approvals/{day.question}", ".choices")
    yield Place("live", "live", ".event")
    yield Place("tickets", "tickets", ".ticket-row")
    yield Place("ticket", f"tickets/{day.review}", ".timeline .step")
    yield Place("conversations", "tickets/~conversations", "main a[data-row]")
    yield Place("write", "tickets/~new?to=Jerry", ".form")
    yield Place("runs", "runs", "main a[data-row]")
    yield Place("run", f"runs/{day.main_run}", ".diff-line")
    yield Place("evidence", f"evidence/{day.execution}", ".wipe img, .shot img")
    yield Place("games", "games", "main .card, main a[data-row]")
    yield Place("game", "games/burrow", ".tools > li")
    yield Place("ledger", "ledger", "a.record")
    yield Place("record", f"ledger/{day.record}", "main dl")
    yield Place("policy", "policy", ".rules > li")
    yield Place("health", "health", ".chart")
    yield Place("person", "person", ".panel")


def visit(console: Console, place: Place) -> None:
    """Until it is whole: what it shows is there, and nothing is still loading."""
    console.go(place.path)
    expect(console.page.locator(place.there).first).to_be_visible()
    if place.then:
        place.then(console)
    settled(console)


def settled(console: Console) -> None:
    expect(console.page.get_by_text(re.compile(r"^Loading")).locator("visible=true")).to_have_count(0)
    expect(console.page.locator(".answers.deaf")).to_have_count(0)
    # Two frames: what the last answer changed is painted.
    console.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
