"""Hostile text through the real daemon, in every field that an agent can write and a page shows.

Each field says its name, so that a page that leaves one out, or a daemon that refuses one, is noticed.
"""

import re

import pytest
from browsing import Console
from hostile_house import WRITTEN, HostileHouse, a_hostile_house
from hostile_text import WATCH
from playwright.sync_api import Error
from test_console_hostile_text import SCROLL, effects, trusted

# Letters that turn the direction of reading or move the cursor are named, never passed on.
RAW = re.compile("[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b-\x1f\x7f]")
# Everything that can be opened is: folded parts, boxes and facts of elements, schemas and state of a game. Asked for
# again until what it brings is there: buttons are deaf at first.
OPEN = """words => {
    document.querySelectorAll("main details:not([open])").forEach(each => { each.open = true; });
    document.querySelectorAll("main button.node[aria-pressed=false]").forEach(each => each.click());
    document.querySelectorAll("main .check input:not(:checked)").forEach(each => each.click());
    const buttons = [...document.querySelectorAll("main button")];
    buttons.filter(each => /^(Schemas|Read)$/.test(each.textContent)).forEach(each => each.click());
    return words.every(each => document.body.textContent.includes(each));
}"""
MISSING = "words => words.filter(each => !document.body.textContent.includes(each))"


@pytest.fixture(scope="module")
def house():
    with a_hostile_house() as house:
        yield house


@pytest.fixture(scope="module")
def person(house, browser):
    """One tab that visits them all."""
    with house.browser(browser) as (context, faults):
        context.add_init_script(WATCH)
        console = house.signed_in(context)
        console.faults = faults
        yield console


# Where to look, and the fields that must be seen there.
PLACES = {
    "live": "type process event-name session where pane notice",
    "tickets": "",
    "tickets/<ticket>": "payload-key payload about reply",
    "tickets/<cancelled>": "cancel",
    "tickets/~conversation/talk": "payload reply",
    "runs": "",
    "runs/<run>": "path content edit stderr command absent",
    "evidence": "method app code",
    "evidence/<execution>": "role title value step what trace-key trace ms method effect code error window partial"
    " | native-role frame state",
    "evidence/<wrong>": "",
    "games": "game game-about attention",
    "games/hostile": "tool description channel event attention sample output | state",
    "ledger": "",
    "policy": "rule reason policy",
    "health": "space",
    "approvals": "question tree asked-command asked-path tool",
    "approvals/<question>": "question choice other",
    "approvals/<asked>": "tree",
    "approvals/<command>": "asked-command rule reason suggestion",
    "approvals/<path>": "asked-path asked-content",
}


def address(house: HostileHouse, place: str) -> str:
    def found(name: re.Match[str]) -> str:
        if known := getattr(house, name[1], ""):
            return str(known)
        waiting = house.local().get("/v1/approvals").json
        return next(each["approvalId"] for each in waiting if f"here-asked-{name[1]}" in each["summary"])

    return re.sub("<(.+?)>", found, place)


def shown(person: Console) -> str:
    """All text of the page, also what is out of sight, and what inputs and titles hold."""
    text: str = person.page.evaluate(
        """() => {
            const held = [...document.querySelectorAll("[title], [aria-label], input")];
            const texts = held.flatMap(each => [each.title, each.ariaLabel, each.value]);
            return [document.title, document.body.textContent, ...texts].join("\\n");
        }"""
    )
    return text


def see(person: Console, look: str, fields: str) -> None:
    words = [f"here-{field}" for field in fields.split()]
    try:
        person.page.wait_for_function(look, arg=words, polling=100)
    except Error:
        pytest.fail(f"not shown: {person.page.evaluate(MISSING, words)}")


@pytest.mark.parametrize("place", PLACES)
def test_a_field_of_an_agent_is_text_and_nothing_else(house, person, place):
    person.go(address(house, place))
    at_once, _, folded = PLACES[place].partition("|")
    see(person, f"words => !({MISSING})(words).length", at_once)
    see(person, OPEN, folded)
    person.page.evaluate(SCROLL)
    text = shown(person)
    assert effects(person.page) == []
    assert RAW.findall(text) == []
    person.page.evaluate(SCROLL)
    assert effects(person.page) == []
    assert person.faults.unnamed() == []


@pytest.mark.usefixtures("house")
def test_what_was_written_acts_where_text_is_trusted(browser):
    """The control: the same texts in a page that makes markup of them, under the same watch."""
    assert len(WRITTEN) > 60
    acted, _, _ = trusted(browser, list(WRITTEN.values()))
    assert acted > len(WRITTEN) * 0.9
    assert all(RAW.search(text) for text in WRITTEN.values())


def test_names_that_lead_somewhere_have_no_room_for_markup(house):
    """Handles, groups and conversations stand in addresses: the daemon refuses other letters."""
    local = house.local()
    for body in ({"agentId": "<svg onload=hit()>"}, {"agentId": "Fine", "groups": ["<svg onload=hit()>"]}):
        assert local.post("/agents/register", body).status == 400
    sent = house.writer.post("/agents/Jerry/send", {"payload": "x", "conversationId": "javascript:hit()"})
    assert sent.status == 400
