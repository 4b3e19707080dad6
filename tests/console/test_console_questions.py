"""Questions in the inbox: none is lost by a failed read, each has its own end, and none keeps the page from STOP."""

import re

import pytest
from browsing import Console, without
from playwright.sync_api import BrowserContext, Route, expect

# A browser's line for each answer that is no success, and ours.
NAMED = (r"503", r"status of 503")


class Failing:
    """The daemon's answers to reads of one question, 503 as long as it says so."""

    def __init__(self, context: BrowserContext) -> None:
        self.on = True
        self.failed = 0
        context.route(re.compile(r"/v1/approvals/apr_\w+$"), self._answer)

    def _answer(self, route: Route) -> None:
        if not self.on:
            route.continue_()
            return
        self.failed += 1
        route.fulfill(status=503, json={"error": {"code": "unavailable", "message": "the store is busy"}})


def counted_by_rows(console: Console) -> int:
    """How many wait by what the rows say."""
    rows = console.page.locator(".inbox-row.is-pending")
    several = [int(each[1:]) for each in rows.locator(".badge").all_inner_texts() if each.startswith("\u00d7")]
    newcomers = console.page.locator(".newcomers").all_inner_texts()
    return rows.count() - len(several) + sum(several) + sum(int(each.split()[0]) for each in newcomers)


def tidied(console: Console) -> None:
    """The page opened anew: all that waits has its place."""
    console.go("live")
    expect(console.page.locator("h1")).to_have_text("Live")
    console.go("approvals")
    expect(console.page.locator("h1")).to_have_text("Approvals")


def test_a_question_whose_read_fails_has_its_row_and_is_read_again(scene, person):
    person.faults.name(*NAMED)
    reads = Failing(person.page.context)
    scene.asks("unlucky")
    expect(person.page.locator(".row-unread")).to_have_text("This could not be read. Trying again.")
    expect(person.page).to_have_title("(1) Approvals · Bascule")
    assert counted_by_rows(person) == 1
    # Opened, it says so, too.
    person.rows.first.click()
    expect(person.page.locator(".question").get_by_role("alert")).to_contain_text(
        "could not be read: the store is busy"
    )
    reads.on = False
    expect(person.page.locator(".row-unread")).to_have_count(0)
    expect(person.rows).to_contain_text(["unlucky"])
    person.ready().press("Deny")
    person.outcome("denied")
    assert reads.failed > 1


def test_where_errors_are_swallowed_the_question_is_not_there(scene, person):
    """The control."""
    person.faults.name(*NAMED)
    without(person.page.context, "inbox.js", ("else if (isPassing(error)) noteUnread(id, error);", ""))
    person.page.goto("about:blank")
    person.go().is_live()
    expect(person.page.locator(".empty-title")).to_be_visible()
    reads = Failing(person.page.context)
    with person.page.expect_response(re.compile(r"/v1/approvals/apr_\w+$")):
        scene.asks("swallowed")
    reads.on = False
    scene.asks("other/one")
    expect(person.page).to_have_title("(1) Approvals · Bascule")
    assert len(scene.local().get("/v1/approvals").json) == 2


def test_the_badge_and_the_rows_count_the_same(scene, person):
    for path in ("alike 1", "alike 2", "alike 3", "alike 4", "one/x", "two/yy/zz"):
        scene.asks(path)
    expect(person.page).to_have_title("(6) Approvals · Bascule")
    tidied(person)
    expect(person.rows).to_have_count(3)
    expect(person.page.locator(".inbox-count")).to_have_text("6 wait for you, in 3 rows")
    assert counted_by_rows(person) == 6
    expect(person.page.locator("nav .count")).to_have_text("6")
    scene.asks("three/new")
    expect(person.page.locator(".newcomers")).to_be_visible()
    expect(person.page.locator("nav .count")).to_have_text("7")
    assert counted_by_rows(person) == 7
    # Whose agents are called as they like: what they are stands before it.
    assert all(each.startswith("agent:Jerry") for each in person.rows.locator("strong").all_inner_texts())


# The daemon's answer for one of them says that its time is over.
ENDED = """const asked = window.fetch; window.fetch = async (...given) => {
    const answer = await asked(...given);
    if (!/\\/v1\\/approvals\\/apr_\\w+$/.test(given[0])) return answer;
    const view = await answer.json();
    if (view.summary.includes("alike 1")) view.expiresAt = "2020-01-01T00:00:00Z";
    return new Response(JSON.stringify(view), {status: answer.status, headers: answer.headers});
}"""


def test_of_several_alike_each_has_its_own_end(scene, browser):
    scene.clear()
    asked = [scene.asks(f"alike {number}") for number in (1, 2, 3)]
    with scene.browser(browser) as (context, _):
        context.add_init_script(ENDED)
        console = scene.signed_in(context)
        console.rows.first.click()
        console.ready()
        expect(console.page.locator(".one").filter(has_text="alike 1").locator(".badge.warn")).to_have_text("expired")
        expect(console.page.locator(".one .badge.warn")).to_have_count(1)
        console.press("Deny 2")
        console.outcome("denied")
    assert [scene.state(each) for each in asked] == ["pending", "denied", "denied"]


def test_a_question_that_ends_takes_its_dialog_with_it(scene, person):
    asked = scene.asks("touched/too/late")
    person.choose("touched")
    person.key.touches(by_itself=False)
    person.approve()
    dialog = person.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Touch your key")
    with scene.person() as link:
        link.call("approvals.decide", {"approvalId": asked, "decision": "denied"})
    expect(dialog).to_have_count(0)
    expect(person.page.locator(".toast")).to_contain_text("That question is over")
    person.key.touches(by_itself=True)
    assert scene.state(asked) == "denied"


@pytest.mark.parametrize("size", [(1280, 800), (390, 640)])
@pytest.mark.parametrize("choices", [["long " * 1_000], [str(number) for number in range(1_600)]])
def test_the_buttons_stay_in_sight_beside_any_choices(scene, browser, size, choices):
    scene.clear()
    ticket = scene.jerry.send("person", {"question": "Which?", "choices": choices})
    try:
        with scene.browser(browser, viewport={"width": size[0], "height": size[1]}) as (context, _):
            console = scene.signed_in(context)
            console.go(f"approvals/{ticket}").ready()
            for name in ("Send the answer", "Not now"):
                expect(console.page.get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    finally:
        assert scene.jerry.post(f"/tickets/{ticket}/cancel", {}).status == 200


# -- much, and STOP first -------------------------------------------------------------------------------------------

# Frames wait until the test lets them: what is to come in later ones has not come.
NO_FRAMES = """globalThis.frames = []; globalThis.holding = false;
const frame = requestAnimationFrame;
globalThis.requestAnimationFrame = work => frame(now => { holding ? frames.push(work) : work(now); });
globalThis.release = () => { holding = false; for (const work of frames.splice(0)) frame(work); };"""
HIDDEN_LETTERS = "a\u200b" * 30_000


def opened_without_frames(scene, context: BrowserContext) -> Console:
    scene.asks("hidden " + HIDDEN_LETTERS)
    context.add_init_script(NO_FRAMES)
    console = scene.signed_in(context).keyed()
    expect(console.rows).to_have_count(1)
    console.page.evaluate("holding = true")
    console.rows.first.click()
    expect(console.page.locator(".answers")).to_be_visible()
    return console


def shown(console: Console) -> int:
    """How many of the hidden letters have been made visible."""
    return int(
        console.page.evaluate("document.querySelector('.question-body').textContent.split('⟨U+200B⟩').length - 1")
    )


def test_stop_is_heard_before_a_heavy_question_is_whole(scene, browser):
    scene.clear()
    with scene.browser(browser) as (context, _):
        console = opened_without_frames(scene, context)
        assert shown(console) < 30_000
        console.page.keyboard.press("s")
        expect(console.page.locator("button.stop")).to_contain_text("Press again")
        console.page.keyboard.press("s")
        expect(console.page.locator(".banner.stopped")).to_be_visible()
        assert shown(console) < 30_000
        expect(console.page.locator(".answers .primary")).to_have_attribute("title", "Loading…")
        console.page.evaluate("release()")
        expect(console.page.locator(".answers .primary")).not_to_have_attribute("title", "Loading…")
        assert shown(console) >= 30_000
        # No part of it makes a browser look through the whole of it again and again.
        assert console.page.evaluate("document.querySelectorAll('bdi:not([dir]), [dir=auto]').length") == 0
        most = "Math.max(...[...document.querySelectorAll('bdi')].map(each => each.childNodes.length))"
        assert console.page.evaluate(most) < 4_000
    with scene.person() as link:
        link.call("admin.resume")


def test_where_nothing_is_sliced_a_heavy_question_comes_first(scene, browser):
    """The control."""
    scene.clear()
    with scene.browser(browser) as (context, _):
        without(context, "widgets.js", ("const CHUNKS_AT_ONCE = 2", "const CHUNKS_AT_ONCE = 1e9"))
        console = opened_without_frames(scene, context)
        assert shown(console) >= 30_000


def test_fifty_heavy_questions_are_a_few_nodes_each_in_the_list(scene, person):
    for number, who in enumerate(scene.crowd(10) * 5):
        scene.asks(f"{'abcdefghij'[number % 10]}{'vwxyz'[number // 10]} " + "a\u200b" * 4_000, who)
    expect(person.page).to_have_title("(50) Approvals · Bascule")
    tidied(person)
    expect(person.rows).to_have_count(50)
    nodes = person.page.evaluate("document.querySelector('.inbox-list').querySelectorAll('*').length")
    assert nodes < 50 * 200
