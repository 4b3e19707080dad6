"""How the console calls for somebody: a count in title and badge, a notification, a sound. No word of an agent."""

import json
from typing import Any

import pytest
from browsing import Console
from hostile_text import corpus
from playwright.sync_api import expect

HOSTILE = "deny me <img src=x onerror=hit()> \u202e"
# The browser's own notifications, badge and sound, with a list of what they were asked for and what became of it. A tab
# without a window is never hidden, so the page is told that it is.
WATCH = """
globalThis.called = {notes: [], shown: [], badges: [], sounds: []};
const Real = globalThis.Notification;
globalThis.Notification = class extends Real {
    constructor(title, options) {
        super(title, options);
        called.notes.push({title, ...options});
        this.addEventListener("show", () => called.shown.push("show"));
        this.addEventListener("error", () => called.shown.push("error"));
        globalThis.lastNote = this;
    }
};
for (const name of ["setAppBadge", "clearAppBadge"]) {
    const real = navigator[name]?.bind(navigator); // none in the empty page before ours
    navigator[name] = (...given) => { called.badges.push(given[0] ?? 0); return real(...given); };
}
const RealAudio = globalThis.AudioContext;
globalThis.AudioContext = class extends RealAudio {
    constructor() { super(); called.sounds.push(this); }
};
Object.defineProperty(Document.prototype, "hidden", {get: () => globalThis.away ?? false});
"""


def called(person: Console) -> dict[str, Any]:
    found: dict[str, Any] = person.page.evaluate("({...called, sounds: called.sounds.map(each => each.state)})")
    return found


@pytest.fixture
def person(scene, browser):
    scene.clear()
    with scene.browser(browser) as (context, faults):
        context.grant_permissions(["notifications"], origin=scene.origin)
        context.add_init_script(WATCH)
        console = scene.signed_in(context, "person")
        console.faults = faults
        yield console


def turn_on(person: Console, words: str) -> None:
    person.go("person")
    person.page.get_by_label(words).check()


def test_title_and_badge_count_what_waits(scene, person):
    for number in (1, 2, 3):
        scene.asks(f"{HOSTILE} {number}")
        expect(person.page).to_have_title(f"({number}) Person · Bascule")
    assert called(person)["badges"][-1] == 3
    scene.clear()
    expect(person.page).to_have_title("Person · Bascule")
    assert called(person)["badges"][-1] == 0
    # Nobody asked for these.
    assert (called(person)["notes"], called(person)["sounds"]) == ([], [])


def test_a_notification_is_a_count_and_leads_to_the_inbox(scene, person):
    turn_on(person, "A notification while")
    # In sight there is none.
    scene.asks(f"{HOSTILE} in sight")
    expect(person.page).to_have_title("(1) Person · Bascule")
    assert called(person)["notes"] == []
    person.page.evaluate("globalThis.away = true")
    texts = [HOSTILE, *corpus()[:20:4]]
    for number, text in enumerate(texts, 2):
        scene.asks(f"{text} {number}".replace("\x00", ""))
        person.page.wait_for_function("many => called.notes.length === many", arg=number - 1)
    notes = called(person)["notes"]
    assert notes == [
        {"title": "Bascule", "body": f"{number} questions wait for you.", "tag": "bascule-inbox"}
        for number in range(2, len(texts) + 2)
    ]
    # The system has really shown them.
    person.page.wait_for_function("() => called.shown.includes('show')")
    assert "error" not in called(person)["shown"]
    person.page.evaluate("lastNote.onclick()")
    expect(person.page.get_by_role("heading", name="Approvals").first).to_be_visible()


def test_words_of_a_question_in_words_are_in_no_notification(scene, person):
    turn_on(person, "A notification while")
    person.page.evaluate("globalThis.away = true")
    ticket = scene.jerry.send("person", {"question": HOSTILE, "choices": [HOSTILE, "no"]}, timeoutMs=600_000)
    person.page.wait_for_function("() => called.notes.length")
    (note,) = called(person)["notes"]
    assert "deny" not in json.dumps(note)
    assert note["body"] == "1 question waits for you."
    # It would wait in the inbox of the tests after this one.
    assert scene.jerry.post(f"/tickets/{ticket}/cancel").status == 200
    expect(person.page).to_have_title("Person · Bascule")


def test_a_browser_that_forbids_notifications_says_so_and_the_switch_stays_off(scene, browser):
    with scene.browser(browser, permissions=[]) as (context, _):
        context.add_init_script("Notification.requestPermission = async () => 'denied';")
        person = scene.signed_in(context, "person")
        box = person.page.get_by_label("A notification while")
        box.click()
        expect(person.page.locator(".toast")).to_contain_text("does not allow notifications")
        expect(box).not_to_be_checked()


def test_a_sound_is_played_to_its_end(scene, person):
    turn_on(person, "A short sound")
    scene.asks(f"{HOSTILE} heard")
    person.page.wait_for_function("() => called.sounds.length === 1 && called.sounds[0].state === 'closed'")


def test_a_page_that_nobody_has_touched_yet_keeps_no_sounds(scene, person):
    """A browser lets a page be heard after a first key or click; until then each would stay."""
    turn_on(person, "A short sound")
    # Another tab takes over the session; the one that was clicked in goes. What Playwright runs in a page counts as a
    # touch, so this one is told that it had none.
    person.page.context.add_init_script(
        "Object.defineProperty(navigator, 'userActivation', {value: {hasBeenActive: false}});"
    )
    tab = Console(person.page.context, scene.origin).go("person").is_signed_in()
    person.page.close()
    tab.is_live()
    for number in range(3):
        scene.asks(f"{HOSTILE} {number}")
        expect(tab.page).to_have_title(f"({number + 1}) Person · Bascule")
    assert called(tab)["sounds"] == []
