"""Every page of a scripted day in three looks, judged by axe-core: WCAG 2.2 AA, 0 violations."""

import os

import pytest
from day import a_day
from walking import DARK, LOOKS, OWN_STYLE, PACKAGES, PLACES, audit, visit

from npm_tools import node_tools

# The third has the width of one of the others and the colours of the other.
SOME_LOOKS = LOOKS if os.environ.get("BASCULE_LONG") else [look for look in LOOKS if look is not DARK]


@pytest.fixture(scope="module")
def day():
    with a_day() as made:
        yield made


@pytest.fixture(scope="module")
def axe() -> str:
    return (node_tools(PACKAGES).root / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module", params=SOME_LOOKS, ids=lambda look: look.name)
def looking(request, day, browser):
    """A tab of this look, in which the person is signed in."""
    with day.browser(browser, **request.param.context) as (context, faults):
        faults.name(OWN_STYLE)
        yield day.signed_in(context)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_no_page_has_a_violation(day, looking, axe, place):
    visit(looking, place.on(day))
    assert audit(looking, axe) == []


def test_the_keys_have_no_violation(looking, axe):
    looking.page.keyboard.press("?")
    looking.page.get_by_role("dialog").wait_for()
    assert audit(looking, axe) == []
    looking.page.keyboard.press("Escape")


@pytest.mark.parametrize("look", SOME_LOOKS, ids=lambda look: look.name)
def test_signing_in_has_no_violation(day, browser, axe, look):
    with day.browser(browser, **look.context) as (context, faults):
        faults.name(OWN_STYLE)
        console = day.tab(context)
        console.page.get_by_role("button", name="Sign in with a passkey").wait_for()
        assert audit(console, axe) == []


def test_the_audit_finds_what_is_wrong(day, browser, axe):
    """The control: text without contrast and a button without a name are violations."""
    with day.browser(browser) as (context, faults):
        faults.name(OWN_STYLE)
        console = day.signed_in(context)
        # A page that does not draw itself again as things happen: what is put in stays.
        visit(console, next(place for place in PLACES if place.name == "person"))
        console.page.evaluate(
            """() => {
                const [words, button] = [document.createElement("p"), document.createElement("button")];
                words.textContent = "hardly seen";
                words.style.color = "#eeeeee";
                document.querySelector("main").prepend(words, button);
            }"""
        )
        assert {each.split(":")[0] for each in audit(console, axe)} == {"color-contrast", "button-name"}
