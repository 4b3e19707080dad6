"""Whatever agents write is shown as text: 500 payloads in every field, and nothing comes of it.

The control puts the same texts into a page of its own that trusts them, where most of them do something.
"""

import json
import os
import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsing import Faults, opened
from hostile_text import COUNT, WATCH, answers, corpus
from playwright.sync_api import Browser, Page, expect

PAYLOADS = corpus()
# Of each list: every field then has this many of them, and every page has all.
ROWS = COUNT if os.environ.get("BASCULE_LONG") else 100
PAGES = {
    "approvals": "apr_00000000000000000001",
    "live": "",
    "tickets": "t",
    "tickets/conversations": "c",
    "runs": "run_1",
    "evidence": "e",
    "games": "g",
    "ledger": "about",
    "policy": "",
    "health": "",
    "person": "",
}
# Seen by eyes and by scrolling: what is not in sight is often not made.
SCROLL = """async () => {
    const frame = () => new Promise(requestAnimationFrame);
    const boxes = [...document.querySelectorAll("main, main *")].filter(box => box.scrollHeight > box.clientHeight + 4);
    boxes.sort((one, other) => other.scrollHeight - one.scrollHeight);
    for (const box of boxes.slice(0, 3)) {
        for (let step = 0; step <= 12; step++) {
            box.scrollTop = box.scrollHeight * step / 12;
            await frame();
        }
    }
}"""


def effects(page: Page) -> list[str]:
    found: list[str] = page.evaluate("[...new Set(effects)]")
    return found


def trusted(browser: Browser, texts: list[str]) -> tuple[int, list[str], Faults]:
    """How many of them do something in a page that makes markup of them, what is seen of it, and what else was."""
    with opened(browser) as (context, faults):
        faults.name(r".*")
        context.add_init_script(WATCH)
        page = context.new_page()
        page.route("http://control.test/", lambda route: route.fulfill(body="<p>", content_type="text/html"))
        page.goto("http://control.test/")
        acted: int = page.evaluate(
            """async payloads => {
                const acted = [];
                for (const payload of payloads) {
                    const before = effects.length;
                    const box = document.createElement("div");
                    box.innerHTML = payload;
                    document.body.append(box);
                    await new Promise(requestAnimationFrame);
                    if (effects.length > before) acted.push(payload);
                    box.remove();
                }
                return acted.length;
            }""",
            # A page that goes elsewhere cannot be asked any more.
            [text.replace("refresh", "") for text in texts],
        )
        return acted, page.evaluate("effects"), faults


def test_most_of_them_act_where_text_is_trusted(browser):
    """The control."""
    acted, seen, faults = trusted(browser, PAYLOADS)
    assert acted > COUNT * 0.8
    assert seen.count("script") > COUNT * 0.2
    assert any(fault.startswith("dialog") for fault in faults.seen)
    assert any("evil.test" in url for url in faults.requests)


@pytest.fixture(scope="module")
def hostile(scene) -> dict[re.Pattern[str], Any]:
    """For each route that answers JSON, an answer with a payload in every string."""
    document = scene.local().get("/openapi.json").json
    parts = document["components"]["schemas"]
    made = {}
    for path, verbs in document["paths"].items():
        content = verbs.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema")
        # Its own session is what the page is.
        if schema is None or path == "/v1/console/session":
            continue
        pattern = re.compile(re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(path)) + "$")
        made[pattern] = json.dumps(answers(schema, parts, PAYLOADS, ROWS))
    assert len(made) > 40
    return made


def test_a_daemon_full_of_them_shows_them_as_text(scene, person, hostile):
    """No daemon of ours answers like this: whatever it leaves through, the page still stands."""
    page = person.page
    # The one stream of a thing that is not there.
    person.faults.name(r"/v1/runs/run_1/stream", r"/picture", r"/v1/games/[^ ]*/stream")
    shown = set()

    def answer(route: Any) -> None:
        path = urlsplit(route.request.url).path
        body = next((text for pattern, text in hostile.items() if pattern.match(path)), None)
        if body is None or route.request.method != "GET" or "event-stream" in route.request.headers.get("accept", ""):
            route.continue_()
            return
        shown.add(path)
        route.fulfill(body=body, content_type="application/json")

    page.context.add_init_script(WATCH)
    page.route(f"{scene.origin}/**", answer)
    page.reload()
    came = {}
    for name, detail in PAGES.items():
        for place in [name, f"{name}/{detail}"] if detail else [name]:
            person.go(place)
            # It is there to be read.
            expect(page.locator("main")).to_contain_text(re.compile("hit|evil|onerror"))
            page.evaluate(SCROLL)
            came[place] = effects(page)
    assert not any(came.values()), came
    assert len(shown) > len(PAGES)
    page.unroute_all(behavior="ignoreErrors")


def test_agents_write_them_wherever_they_can(scene, person):
    """The real daemon, with its own drawing of what is not to be seen."""
    page = person.page
    page.context.add_init_script(WATCH)
    page.reload()
    person.is_signed_in().is_live()
    parts = ["\n".join(PAYLOADS[at : at + 50]) for at in range(0, COUNT, 50)]
    person.go("live")
    expect(page.get_by_role("heading", name="Live")).to_be_visible()
    for number, text in enumerate(parts):
        writer = scene.local().register(f"Writer{number}", metadata={"note": text[:1_000], text[:50]: 1})
        ticket = writer.send("Jerry", text)
        scene.asks(text)
    expect(page.get_by_text("Writer9").first).to_be_visible()
    assert effects(page) == []
    for place, words in ((f"tickets/{ticket}", "hit"), ("ledger", "messages.send"), ("approvals", "hit")):
        person.go(place)
        expect(page.locator("main")).to_contain_text(words)
        page.evaluate(SCROLL)
    person.choose("hit")
    expect(page.locator(".question-body")).to_contain_text("hit")
    assert effects(page) == []
