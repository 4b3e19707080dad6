"""Words are no commands: somebody types while questions come, go, run out and are answered elsewhere.

The keys are real ones of the browser, each with the time at which it was pressed. The typist's own clock goes at most
`KEY_MS` on from one key to the next: a busy machine makes them slower at the keyboard, never a person who has paused.
"""

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest
from browsing import Console, without
from playwright.sync_api import expect

LONG = bool(os.environ.get("BASCULE_LONG"))
KEYS = 10_000 if LONG else 1_500
SENTENCE = 250
KEY_MS = 60
# Half of what is typed are keys that mean something: s twice stops, d denies, j opens the next, r its box.
LETTERS = "ssddjjkrranugltehp?/0 " + "bcefhioqvwxyz\n"
NAMED = {" ": ("Space", 32), "\n": ("Enter", 13), "?": ("Slash", 191), "/": ("Slash", 191)}
RUN_OUT = "Date.now = (now => () => now() + 16 * 60_000)(Date.now)"


class Typist:
    """Presses keys without looking."""

    def __init__(self, console: Console) -> None:
        self._wire = console.page.context.new_cdp_session(console.page)
        self._at = time.time()
        self.pressed = 0

    def key(self, letter: str, after_ms: int = KEY_MS, *, up_first: bool = False) -> None:
        code, number = NAMED.get(letter) or (
            (f"Key{letter.upper()}", ord(letter.upper())) if letter.isalpha() else (f"Digit{letter}", ord(letter))
        )
        self._at = min(time.time(), self._at + after_ms / 1000)
        named = {"key": "Enter" if letter == "\n" else letter, "code": code, "windowsVirtualKeyCode": number}
        text = "\r" if letter == "\n" else letter
        strokes = [{"type": "keyDown", "text": text}, {"type": "keyUp"}]
        for stroke in reversed(strokes) if up_first else strokes:
            self._wire.send("Input.dispatchKeyEvent", {**stroke, "timestamp": self._at, **named})
        self.pressed += 1

    def sits_down(self, seconds_ago: float = 0.0) -> None:
        self._at = time.time() - seconds_ago


def acts(scene, console: Console, where: str, waiting: list[str]) -> list[str]:
    """What the keys have done."""
    page, done = console.page, []
    if page.url != where:
        done.append(f"went to {page.url}")
    if page.get_by_role("dialog").count():
        done.append("opened a dialog")
    if page.locator(".words textarea").count():
        done.append("opened a box for words")
    if "stopped" in scene.local().get("/status").json:
        done.append("stopped everything")
    return done + [f"answered {each}" for each in waiting if scene.state(each) != "pending"]


def ends(scene, console: Console) -> Iterator[Callable[[str], None]]:
    """How a question goes while somebody types, in turn."""

    def denied(approval: str) -> None:
        with scene.person() as link:
            link.call("approvals.decide", {"approvalId": approval, "decision": "denied"})

    def approved(approval: str) -> None:
        with scene.person() as link:
            link.call("approvals.decide", {"approvalId": approval, "decision": "approved"})

    def ran_out(_: str) -> None:
        console.page.evaluate(RUN_OUT)

    while True:
        yield from (denied, approved, ran_out)


def a_sentence(scene, console: Console, typist: Typist, chance: random.Random, end: Callable[[str], None]) -> list[str]:
    """Somebody types why not, and what that was about goes; what the rest of the sentence did."""
    page = console.page
    scene.clear()
    asked = [scene.asks(f"{name} {chance.randrange(10**9)}") for name in ("typed", "waits-one/x", "waits/two/yy")]
    page.goto("about:blank")
    console.go().is_live()
    console.choose("typed")
    console.press("Deny with words")
    box = page.locator(".words textarea")
    expect(box).to_be_focused()
    typist.sits_down()
    for _ in range(chance.randrange(1, 30)):
        typist.key(chance.choice(LETTERS))
    # Others ask meanwhile, too.
    asked.append(scene.asks(f"came {chance.randrange(10**9)}"))
    end(asked[0])
    where = page.url
    while box.is_visible():
        typist.key(chance.choice(LETTERS))
    for _ in range(SENTENCE):
        typist.key(chance.choice(LETTERS))
    done = acts(scene, console, where, asked[1:])
    if not done:
        # A part of the screen may come later than the key.
        console.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        done = acts(scene, console, where, asked[1:])
    return done


def test_what_somebody_types_on_after_a_question_has_gone_does_nothing(scene, person):
    typist, chance = Typist(person), random.Random(30)
    for end in ends(scene, person):
        assert a_sentence(scene, person, typist, chance, end) == [], f"after {typist.pressed} keys, {end.__name__}"
        if typist.pressed >= KEYS:
            break


def test_where_keys_do_not_rest_the_rest_of_a_sentence_acts(scene, person):
    """The control: the same typist at the same page without this guard."""
    without(
        person.page.context,
        "keys.js",
        ("if (lost) rest(", "if (false) rest("),
        ("AFTER_FRONT_MS = 1_000", "AFTER_FRONT_MS = 0"),
    )
    typist, chance = Typist(person), random.Random(30)
    done = []
    for end in ends(scene, person):
        done += a_sentence(scene, person, typist, chance, end)
        if done:
            break
        assert typist.pressed < KEYS
    with scene.person() as link:
        link.call("admin.resume")


def test_keys_act_again_after_a_pause(scene, person):
    asked = scene.asks("paused")
    person.choose("paused")
    person.press("Deny with words")
    expect(person.page.locator(".words textarea")).to_be_focused()
    with scene.person() as link:
        link.call("approvals.decide", {"approvalId": asked, "decision": "denied"})
    person.outcome("denied")
    expect(person.page.locator("html")).to_have_attribute("data-keys", "resting")
    person.keyed()
    person.page.keyboard.press("g")
    person.page.keyboard.press("l")
    expect(person.page.locator("h1")).to_have_text("Live")


# -- STOP wants its key twice ---------------------------------------------------------------------------------------


def stopped(scene, console: Console) -> bool:
    console.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return console.page.locator(".banner.stopped").is_visible() or "stopped" in scene.local().get("/status").json


@pytest.mark.parametrize("between", [*"jdg ?\n", "Shift", "Escape", "click"])
def test_s_twice_with_something_between_stops_nothing(scene, person, between):
    person.keyed()
    person.page.keyboard.press("s")
    expect(person.page.locator("button.stop")).to_contain_text("Press again")
    if between == "click":
        person.page.locator("h1").click()
    else:
        person.page.keyboard.press({"\n": "Enter", " ": "Space"}.get(between, between))
    expect(person.page.locator("button.stop")).to_contain_text("STOP EVERYTHING")
    if between == "?":
        person.page.keyboard.press("Escape")
        expect(person.page.get_by_role("dialog")).to_have_count(0)
    person.page.keyboard.press("s")
    assert not stopped(scene, person)


def test_an_s_that_is_held_down_and_one_that_trembles_stop_nothing(scene, person):
    person.keyed()
    for _ in range(50):
        person.page.keyboard.down("s")
    person.page.keyboard.up("s")
    assert not stopped(scene, person)
    person.page.locator("h1").click()
    person.keyed()
    # What is pressed below was pressed after the rest at the begin.
    person.page.wait_for_function("() => performance.now() > 5_000")
    typist = Typist(person)
    typist.sits_down(seconds_ago=2)
    # Systems that send a held key as many, up and down in one moment: the first pause is long, the others are short.
    for pause in (0, 500, *[30] * 20):
        typist.key("s", after_ms=pause, up_first=True)
    assert not stopped(scene, person)


def test_every_state_of_the_keys_knows_every_input_and_only_the_second_s_stops(person):
    steps = person.page.evaluate("async () => (await import('/app/keys.js')).STEPS")
    states = set(steps)
    inputs = {"lost", "paused", "over", "typed", "other", "key", "g", "s"}
    for state, row in steps.items():
        assert set(row) == inputs, state
        for given, (following, act) in row.items():
            assert following in states
            # Nothing but a pause ends a rest, and whatever goes away begins one.
            assert (following == "resting") == (given == "lost" or (state == "resting" and given != "paused"))
            assert (act == "drop") == (state == "resting" and given in {"other", "key", "g", "s"})
            assert (act == "stop") == (state == "armed" and given == "s")
            # Whoever leaves the two armed states without stopping is disarmed.
            if state in {"arming", "armed"} and following not in {"arming", "armed"} and act != "stop":
                assert act == "disarm", (state, given)
            if act == "press":
                assert (state, given) == ("ready", "key")


# -- a key is about what was on the screen --------------------------------------------------------------------------

# The second question comes, and before the screen shows it the page is busy for longer than buttons are deaf.
BUSY = """() => {
    const watcher = new MutationObserver(() => {
        const summary = document.querySelector(".answers") && document.querySelector(".summary")?.textContent;
        if (!summary?.includes("second")) return;
        watcher.disconnect();
        console.log("busy");
        for (const until = performance.now() + 1_500; performance.now() < until;);
    });
    watcher.observe(document.body, {childList: true, subtree: true});
    [...document.querySelectorAll(".inbox-row a")].find(row => row.textContent.includes("second")).click();
}"""


def pressed_while_busy(scene, console: Console) -> tuple[str, str]:
    """`d` goes down while the first question is on the screen; how both are afterwards."""
    first, second = scene.asks("first"), scene.asks("other/second")
    console.page.goto("about:blank")
    console.go().is_live()
    # Read once, so that it comes at once.
    console.choose("second")
    console.choose("first").keyed()
    with console.page.expect_console_message(lambda message: message.text == "busy"):
        console.page.evaluate(f"() => setTimeout({BUSY})")
    Typist(console).key("d", after_ms=0)
    expect(console.page.locator(".summary")).to_contain_text("second")
    console.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return scene.state(first), scene.state(second)


def test_a_key_does_nothing_to_a_question_that_came_after_it_went_down(scene, person):
    assert pressed_while_busy(scene, person) == ("pending", "pending")
    # The control: looked at, it is answered.
    person.ready().keyed()
    person.page.keyboard.press("d")
    person.outcome("denied")


def test_where_buttons_go_by_the_time_of_the_handler_the_wrong_question_is_denied(scene, person):
    """The control."""
    without(
        person.page.context,
        "widgets.js",
        ("return pressedAt() >= this.#until;", "return performance.now() >= this.#until;"),
        ("painted((now) => {", "((fn) => fn(performance.now()))((now) => {"),
    )
    without(
        person.page.context,
        "keys.js",
        ("keyboard.press(event.key, at >= shownSince)", "keyboard.press(event.key, true)"),
    )
    first, second = pressed_while_busy(scene, person)
    assert first == "pending"
    if second == "pending":
        person.outcome("denied")
