"""Every action of the console by keyboard alone: no pointer is used in this file."""

import re

import pytest
from browsing import Console
from playwright.sync_api import expect

PAGES = {
    "l": "Live",
    "t": "Tickets",
    "r": "Runs",
    "e": "Evidence",
    "m": "Games",
    "d": "Ledger",
    "p": "Policy",
    "h": "Health",
    "o": "Person",
    "a": "Approvals",
}
# Where the focus is, in a word or two.
FOCUSED = """() => {
  const {tagName, id, textContent} = document.activeElement;
  return `${tagName.toLowerCase()}#${id} ${textContent.trim().slice(0, 40)}`;
}"""


def press(console: Console, keys: str) -> None:
    for key in keys.split():
        console.page.keyboard.press(key)


def focused(console: Console) -> str:
    return str(console.page.evaluate(FOCUSED))


def is_somewhere(console: Console) -> bool:
    """The focus is never lost: what follows starts where one was, not at the top of the page."""
    return not focused(console).startswith("body#")


@pytest.fixture
def keyed(person):
    """At the inbox, with nothing chosen."""
    return person.go("live").go("approvals").keyed()


def test_g_and_a_letter_goes_to_each_page(keyed):
    for letter, title in PAGES.items():
        press(keyed, f"g {letter}")
        expect(keyed.page.locator("h1")).to_have_text(title)
        expect(keyed.page).to_have_title(re.compile(rf"{title} · Bascule$"))
        assert is_somewhere(keyed), letter


def test_j_and_k_walk_and_a_d_r_u_answer(scene, keyed):
    walked = [scene.asks(path) for path in ("walk-one/a", "walk-two/bb", "other-three")]
    # Whoever came while one looked waits below "2 new"; a page that is opened anew has all in order.
    expect(keyed.page).to_have_title("(3) Approvals · Bascule")
    press(keyed, "g l")
    expect(keyed.page.locator("h1")).to_have_text(PAGES["l"])
    press(keyed, "g a")
    expect(keyed.row("other-three")).to_have_count(1)
    press(keyed, "j")
    keyed.ready()
    assert is_somewhere(keyed)
    first = keyed.page.url
    press(keyed, "j")
    expect(keyed.page).not_to_have_url(first)
    press(keyed, "k")
    expect(keyed.page).to_have_url(first)
    keyed.ready()
    # No yes by a stray Enter: what is focused is the row, and Enter there opens it again.
    assert "Approve" not in focused(keyed)
    press(keyed, "Enter")
    keyed.ready()
    assert [scene.state(each) for each in walked] == ["pending"] * 3
    press(keyed, "u")
    expect(keyed.page).to_have_url(re.compile("#/approvals$"))

    # Without a chosen row the first question is shown, so its buttons say nothing of the key: the address does.
    expect(keyed.row("other-three")).to_have_count(1)
    press(keyed, "j")
    expect(keyed.page).to_have_url(re.compile("#/approvals/.+"))
    keyed.ready()
    press(keyed, "d")
    keyed.outcome("denied")
    assert is_somewhere(keyed)
    press(keyed, "j")
    keyed.ready()
    press(keyed, "r")
    expect(keyed.page.get_by_label("Why not?")).to_be_focused()
    keyed.page.keyboard.type("jdau not this one")
    press(keyed, "Control+Enter")
    keyed.outcome("jdau not this one")
    press(keyed, "j")
    keyed.ready()
    expect(keyed.page.locator(".answers .primary")).not_to_have_attribute("aria-disabled", "true")
    press(keyed, "a")
    keyed.outcome("approved")
    assert sorted(scene.state(each) for each in walked) == ["approved", "denied", "denied"]
    assert is_somewhere(keyed)


def test_n_shows_newcomers(scene, keyed):
    scene.asks("was-here")
    expect(keyed.row("was-here")).to_have_count(1)
    scene.asks("came-later/x")
    expect(keyed.page.locator(".newcomers")).to_have_text(re.compile("1 new"))
    expect(keyed.row("came-later")).to_have_count(0)
    press(keyed, "n")
    expect(keyed.row("came-later")).to_have_count(1)
    for _ in range(2):
        press(keyed, "j")
        keyed.ready()
        press(keyed, "d")
        keyed.outcome("denied")


def test_tab_reaches_every_answer_and_approve_is_never_first(scene, keyed):
    scene.asks("tabbed")
    expect(keyed.row("tabbed")).to_have_count(1)
    keyed.row("tabbed").focus()
    press(keyed, "Enter")
    keyed.ready()
    assert "Approve" not in focused(keyed)
    reached = []
    for _ in range(40):
        press(keyed, "Tab")
        reached.append(focused(keyed))
        if "Not now" in reached[-1]:
            break
    answers = [
        next((at for at, each in enumerate(reached) if word in each), -1) for word in ("Approve", "Deny", "words")
    ]
    assert -1 not in answers, reached
    assert answers == sorted(answers)
    assert answers[0] > 0, "something stands between the question and its yes"
    press(keyed, "Shift+Tab Shift+Tab")
    press(keyed, "Enter")
    keyed.outcome("denied")


def test_a_dialog_keeps_the_focus_and_gives_it_back(keyed):
    keyed.page.get_by_role("link", name="Live").focus()
    before = focused(keyed)
    press(keyed, "?")
    dialog = keyed.page.get_by_role("dialog")
    expect(dialog).to_contain_text("STOP EVERYTHING")
    for _ in range(5):
        press(keyed, "Tab")
        assert keyed.page.evaluate(
            "() => !!document.activeElement.closest('dialog') || document.activeElement === document.body"
        )
    # Keys are the dialog's: nothing behind it hears them.
    press(keyed, "g t")
    expect(keyed.page.locator("h1")).to_have_text("Approvals")
    press(keyed, "Escape")
    expect(dialog).to_have_count(0)
    assert focused(keyed) == before


def test_a_slash_searches_and_escape_leaves(keyed):
    press(keyed, "g d")
    expect(keyed.page.locator("a.record").first).to_be_visible()
    press(keyed, "/")
    # The list is drawn again with each answer; the last one is for the last letter.
    with keyed.page.expect_response(re.compile("ledger/search.*who%3Aperson(&|$)")):
        keyed.page.keyboard.type("who:person")
    expect(keyed.page).to_have_url(re.compile("q=who"))
    press(keyed, "Escape")
    expect(keyed.page.locator("a.record").first).to_be_visible()
    press(keyed, "j Enter")
    expect(keyed.page.locator("main h2").first).to_contain_text("Record #")
    press(keyed, "u")
    expect(keyed.page).to_have_url(re.compile("#/ledger$"))


def test_the_skip_link_leads_past_the_navigation(keyed):
    keyed.page.locator(".brand").focus()
    press(keyed, "Shift+Tab")
    assert "Skip" in focused(keyed)
    press(keyed, "Enter")
    assert focused(keyed).startswith("main#page")


def test_s_twice_stops_and_only_a_proof_resumes(keyed):
    press(keyed, "s")
    # From then on a second press counts.
    expect(keyed.page.locator("button.stop")).to_contain_text("Press again")
    press(keyed, "s")
    banner = keyed.page.locator(".banner.stopped")
    expect(banner).to_be_visible()
    assert is_somewhere(keyed)
    banner.get_by_role("button", name="Resume").focus()
    press(keyed, "Enter")
    expect(banner).to_have_count(0)
    assert is_somewhere(keyed)
