"""Bad days of somebody at the console: the daemon goes and comes, clocks are wrong, disks are full, crowds arrive."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator

import pytest
from browsing import Console, opened, without
from living import eventually, short_dir
from playwright.sync_api import expect
from scenes import NO_WAIT, Scene

LONG = bool(os.environ.get("BASCULE_LONG"))
# A hundred clicks take ten seconds, and two minutes where many others work; each step has a bound of its own.
# A browser opens six connections to one server.
TABS = 10
CLICKS = 1_000 if LONG else 100
ARRIVALS_PER_SECOND = 20
MOST_WAITING = 200
TARGETS = 8
MIDDLE = """row => {
    const {x, y, width, height} = row.getBoundingClientRect();
    return [row.getAttribute("href"), x + width / 2, y + height / 2];
}"""
MANY = 1_000 if LONG else 300
# So many questions of one agent may wait.
PER_AGENT = 32
# A person is asked to read half a mebibyte at most; a message may be larger.
MOST_ASKED = 480_000
MOST_SENT = 1_030_000
# Some pages of it.
LONG_PREVIEW = 20_000
READ_THROUGH = """async box => {
    const frame = () => new Promise(requestAnimationFrame);
    box.scrollTop = 0;
    await frame();
    while (box.scrollTop + box.clientHeight < box.scrollHeight - 1) {
        box.scrollTop += box.clientHeight / 2;
        await frame();
    }
}"""
HOURS_2 = 2 * 3_600 * 1_000
# The disk is full while this file is there.
FULL = """
import os, sqlite3
from bascule.stores.sqlite import SqliteStore
put = SqliteStore._put_rows
def full(self, batch):
    if os.path.exists({path!r}):
        raise sqlite3.OperationalError("database or disk is full")
    put(self, batch)
SqliteStore._put_rows = full
"""


# -- the daemon goes and comes ----------------------------------------------------------------------------------


def test_the_page_waits_for_a_daemon_that_is_restarted_and_keeps_what_was_typed(browser):
    with short_dir() as folder, contextlib.ExitStack() as ends:
        scene = Scene(folder, **NO_WAIT)
        ends.callback(lambda: scene.daemon.__exit__())  # noqa: PLW0108 - of the daemon that is there in the end
        scene.people()
        with scene.browser(browser) as (context, faults):
            faults.name(r"ERR_", r"answered 401", r"status of 401")
            console = scene.signed_in(context)
            scene.asks("before")
            console.choose("before").press("Deny with words")
            words = console.page.get_by_label("Why not?")
            words.fill("half a sentence")
            scene.daemon.stop()
            expect(console.page.get_by_text("The daemon does not answer.")).to_be_visible()
            expect(words).to_have_value("half a sentence")
            scene.start_again()
            expect(console.page.get_by_text("This session has ended")).to_be_visible()
            expect(words).to_have_value("half a sentence")
            # In place: by the dialog, on the same page.
            console.page.get_by_role("button", name="Sign in again").click()
            console.is_signed_in().is_live()
            expect(words).to_have_value("half a sentence")
            console.ready().press("Send these words")
            console.outcome("half a sentence")


# -- tabs ---------------------------------------------------------------------------------------------------------


def test_ten_tabs_share_one_stream_and_all_of_them_load(scene, browser):
    scene.clear()
    with scene.browser(browser) as (context, faults):
        faults.name("ERR_INCOMPLETE_CHUNKED_ENCODING.*/v1/events/all")
        first = scene.signed_in(context)
        tabs = [first, *(Console(context, scene.origin).go() for _ in range(TABS - 1))]
        for tab in tabs:
            tab.is_signed_in().is_live()
        asked = [url for url in faults.requests if "/v1/events/all" in url]
        leaders = [tab.page.evaluate("document.documentElement.dataset.leading") for tab in tabs]
        assert leaders.count("true") == 1
        assert len(asked) == 1
        # Whoever leads, all hear of it; and when the leader is closed, the next one takes over.
        scene.asks("for all tabs")
        for tab in tabs:
            expect(tab.page).to_have_title("(1) Approvals · Bascule")
        first.page.close()
        scene.asks("for the others")
        for tab in tabs[1:]:
            expect(tab.page).to_have_title("(2) Approvals · Bascule")


# -- much -----------------------------------------------------------------------------------------------------------


def test_many_questions_are_listed_and_the_last_can_be_answered(scene, browser):
    scene.clear()
    crowd = scene.crowd(MANY // PER_AGENT + 1)
    for number in range(MANY):
        # No two of one agent are alike: each has its own row.
        name = "abcdefghijklmnop"[number % 16] + "abcdefghijklmnop"[number // 16 % 16]
        scene.asks(f"{name} tree", crowd[number // PER_AGENT])
    with scene.browser(browser) as (context, _):
        console = scene.signed_in(context)
        expect(console.page).to_have_title(f"({MANY}) Approvals · Bascule")
        expect(console.rows).to_have_count(MANY)
        console.rows.last.click()
        console.ready().press("Deny")
        console.outcome("denied")
        expect(console.page).to_have_title(f"({MANY - 1}) Approvals · Bascule")


def lines(size: int) -> str:
    line = "all work and no play makes a dull tree " * 3
    return "\n".join(f"{number:6} {line}" for number in range(size // (len(line) + 8)))


def test_a_message_of_a_mebibyte_is_shown(scene, person):
    ticket = scene.local().register("Long").send("Jerry", lines(MOST_SENT))
    person.go(f"tickets/{ticket}")
    expect(person.page.locator("main")).to_contain_text("all work and no play")


def test_a_question_of_half_a_mebibyte_is_shown_and_can_be_denied(scene, person):
    approval = scene.asks("big\n" + lines(MOST_ASKED))
    person.choose("big")
    expect(person.page.locator(".question-body")).to_contain_text("all work and no play")
    person.press("Deny")
    person.outcome("denied")
    assert scene.state(approval) == "denied"


def test_a_long_question_is_approved_only_when_all_of_it_was_in_sight(scene, person):
    approval = scene.asks("long\n" + lines(LONG_PREVIEW))
    person.choose("long")
    approve, body = person.page.locator(".answers .primary"), person.page.locator(".question-body")
    expect(approve).to_have_attribute("aria-disabled", "true")
    # It looks disabled; somebody presses it all the same, and somebody jumps to the end.
    approve.click(force=True)
    expect(person.page.locator(".answers").get_by_role("alert")).to_contain_text("Scroll through")
    body.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    expect(person.page.locator(".end-of-preview")).to_be_in_viewport()
    expect(approve).to_have_attribute("aria-disabled", "true")
    assert scene.state(approval) == "pending"
    # The control: page by page.
    body.evaluate(READ_THROUGH)
    expect(approve).not_to_have_attribute("aria-disabled", "true")
    person.ready().approve()
    person.outcome("approved")
    assert scene.state(approval) == "approved"


# -- clocks and disks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_ms", [HOURS_2, -HOURS_2])
def test_a_wrong_clock_of_the_browser_neither_ends_a_question_nor_keeps_one(scene, browser, ahead_ms):
    scene.clear()
    approval = scene.asks(f"clock {ahead_ms}")
    with scene.browser(browser) as (context, _):
        context.add_init_script(f"const now = Date.now; Date.now = () => now() + {ahead_ms};")
        console = scene.signed_in(context)
        console.choose("clock")
        expect(console.page.locator(".question-head .countdown")).to_have_text(re.compile(r"^1?\d:\d\d$"))
        console.approve()
        console.outcome("approved")
    assert scene.state(approval) == "approved"


def test_where_the_page_believes_its_own_clock_a_question_that_waits_looks_over(scene, browser):
    """The control."""
    scene.clear()
    approval = scene.asks("believed clock")
    with scene.browser(browser) as (context, _):
        without(context, "main.js", ("noteSkew(session.value.aheadMs ?? 0)", "noteSkew(0)"))
        context.add_init_script(f"const now = Date.now; Date.now = () => now() + {HOURS_2};")
        console = scene.signed_in(context)
        console.row("believed clock").click()
        console.outcome("expired")
    assert scene.state(approval) == "pending"


def test_a_full_disk_is_named_and_the_question_stays(browser):
    with short_dir() as folder:
        path = f"{folder}/full"
        scene = Scene(folder, bug=FULL.format(path=path), **NO_WAIT)
        with scene.daemon, opened(browser) as (context, faults):
            faults.name(r"507", r"50[03]")
            scene.people()
            approval = scene.asks("full")
            console = scene.signed_in(context)
            console.choose("full")
            with open(path, "w", encoding="utf-8"):
                pass
            console.press("Deny")
            expect(console.page.get_by_role("alert")).to_contain_text("nothing was stored")
            assert scene.state(approval) == "pending"
            os.remove(path)
            console.ready().press("Deny")
            console.outcome("denied")
            assert scene.state(approval) == "denied"


# -- nothing moves ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def pouring(scene: Scene) -> Iterator[list[str]]:
    """New questions come, 20 each second, and the oldest of them are answered elsewhere; the ids of all that came."""
    over = threading.Event()
    arrived: list[str] = []
    crowd = scene.crowd(MOST_WAITING // PER_AGENT + 1)

    def pour() -> None:
        with scene.person() as link:
            while not over.wait(1 / ARRIVALS_PER_SECOND):
                number = len(arrived)
                path = f"flood {number} {'xyz'[number % 3] * (number % 11)}"
                arrived.append(scene.asks(path, crowd[number % len(crowd)]))
                if number >= MOST_WAITING:
                    link.call("approvals.decide", {"approvalId": arrived[number - MOST_WAITING], "decision": "denied"})

    thread = threading.Thread(target=pour, daemon=True)
    thread.start()
    try:
        yield arrived
    finally:
        over.set()
        thread.join()


def misses(console: Console, clicks: int) -> Iterator[tuple[str, str]]:
    """Clicks at the places of rows: what was aimed at, and what was hit instead.

    Where the eye saw a row, the finger must find it: the place is read first, and the click comes to the same place.
    """
    for number in range(clicks):
        aimed, x, y = console.rows.nth(number % TARGETS).evaluate(MIDDLE)
        console.page.mouse.click(x, y)
        hit = console.page.evaluate("location.hash")
        if hit != aimed:
            yield aimed, hit


def test_a_click_hits_what_it_aimed_at_while_questions_pour_in(scene, browser):
    scene.clear()
    for letter in "abcdefgh"[:TARGETS]:
        scene.asks(f"target {letter} there")
    with scene.browser(browser) as (context, _):
        console = scene.signed_in(context)
        expect(console.rows).to_have_count(TARGETS)
        with pouring(scene) as arrived:
            assert list(misses(console, CLICKS)) == []
            eventually(lambda: len(arrived) > ARRIVALS_PER_SECOND, "the flood")
        # They wait where they push nothing away.
        expect(console.page.locator(".newcomers")).to_contain_text("new")
        expect(console.rows).to_have_count(TARGETS)


def test_where_newcomers_come_to_the_top_by_themselves_clicks_miss(scene, browser):
    """The control: the same clicks on a list that puts the newest first, as most do."""
    scene.clear()
    for letter in "abcdefgh"[:TARGETS]:
        scene.asks(f"target {letter} there")
    with scene.browser(browser) as (context, _):
        without(
            context,
            "pages/approvals.js",
            ("[...order.peek(), ...rowsOf(newcomers.peek())]", "[...rowsOf(newcomers.peek()), ...order.peek()]"),
            ("newcomers.value.length && !order.value.length", "newcomers.value.length"),
        )
        console = scene.signed_in(context)
        expect(console.rows).to_have_count(TARGETS)
        with pouring(scene):
            assert next(misses(console, CLICKS), None) is not None
