"""The whole story in a real browser: from `bascule up` to a call that is carried out because somebody touched a key."""

import re
import threading
from collections.abc import Callable

import pytest
from browsing import Console, Key, opened
from living_grove import PASSPHRASE, policy_digest
from playwright.sync_api import expect
from scenes import ASKING, Scene
from terminal import Session, on_a_terminal
from wires import LinkWire

from patience import PATIENCE

TYPED = PASSPHRASE["passphrase"]


class Terminal:
    """A command on a terminal of its own, while the browser goes on."""

    def __init__(self, *arguments: str, typed: list[tuple[str, str]]) -> None:
        self._session: Session | None = None
        self._shown = ""
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(arguments, typed), daemon=True)
        self._thread.start()

    def _run(self, arguments: tuple[str, ...], typed: list[tuple[str, str]]) -> None:
        try:
            self._session = on_a_terminal(*arguments, typed=typed, reader=self._read)
        finally:
            with self._more:
                self._more.notify_all()

    def _read(self, shown: str) -> None:
        with self._more:
            self._shown = shown
            self._more.notify_all()

    def wait_for(self, pattern: str) -> str:
        found: Callable[[], re.Match[str] | None] = lambda: re.search(pattern, self._shown)  # noqa: E731 - asked twice
        with self._more:
            assert self._more.wait_for(found, PATIENCE), self._shown
            match = found()
        assert match
        return match[1]

    def ended(self) -> Session:
        self._thread.join(PATIENCE)
        assert self._session is not None, self._shown
        return self._session


@pytest.fixture
def house(state):
    """A daemon at its first start: no person, no key, no browser that it knows."""
    with (scene := Scene(state.rpartition("/")[0])).daemon:
        yield scene


def test_from_up_to_an_approval_by_touch(house, browser):
    place = ("--state-dir", house.grove.state)
    first = on_a_terminal("person", "set", *place, typed=[("passphrase", TYPED), ("again", TYPED)])
    assert first.code == 0, first.shown
    # The questions of the policy are the person's to accept, once.
    with LinkWire(house.daemon.link_socket).hello() as link:
        link.call("person.unlock", PASSPHRASE)
        link.call("policy.accept", {"digest": policy_digest(ASKING)})

    with house.browser(browser) as (context, faults):
        # Signing in ends the session that was only paired, and its stream with it.
        faults.name("ERR_INCOMPLETE_CHUNKED_ENCODING.*/v1/events/all")
        console = Console(context, house.origin)
        Key(console.page)
        console.go()
        # Paired: both show the same digits, and Enter in the terminal says so.
        digits = console.digits()
        paired = on_a_terminal("console", "--no-open", *place, typed=[("Same? [Enter, or n] ", "")])
        assert f"{digits[:3]} {digits[3:]}" in paired.shown
        expect(console.page.locator("nav .grade")).to_have_text("paired")
        console.is_live()

        # A key: the passphrase in the terminal, its code in the page, two touches.
        adding = Terminal("person", "passkey", "add", *place, typed=[("Passphrase: ", TYPED)])
        code = adding.wait_for(r"\n\s+([A-Z0-9]{4}-[A-Z0-9]{4})\s")
        console.go("person")
        console.page.get_by_label("Code").fill(code)
        console.page.get_by_label("Name", exact=True).fill("virtual key")
        console.page.get_by_role("button", name="Add", exact=True).click()
        expect(console.page.get_by_role("region", name="Passkeys").locator("td").first).to_have_text("virtual key")
        assert adding.ended().code == 0

        # Signed in with it.
        console.page.get_by_role("button", name="Sign in with a passkey").click()
        console.is_signed_in()

        # An agent asks, and waits.
        house.jerry = house.local().register("Jerry")
        console.go()
        expect(console.page.get_by_text("Nothing waits for you.")).to_be_visible()
        with house.asking("oak") as call:
            expect(console.page).to_have_title("(1) Approvals · Bascule")
            console.choose("oak")
            expect(console.page.locator(".question-head")).to_contain_text("agent:Jerry")
            expect(console.page.locator(".question-body")).to_contain_text("path: oak")
            assert house.grove.felled() == []
            console.approve()
            console.outcome("approved")
            answer = call.answer()
        assert (answer.status, answer.json) == (200, "felled")
        expect(console.page).to_have_title("Approvals · Bascule")
        # Enrolled, signed in, approved: each with a signature that whoever has the ledger can check.
        assert house.verified()["signatures"] == 3

        # The next one is denied, in words: as the person's own they need a touch, and the agent reads them.
        with house.asking("elm") as call:
            console.choose("elm").press("Deny with words")
            console.page.get_by_label("Why not?").fill("not this one, take the dead one")
            console.press("Send these words")
            console.outcome("not this one, take the dead one")
            answer = call.answer()
        assert answer.status == 403
        assert "not this one, take the dead one" in answer.body.decode()
    assert house.grove.felled() == ["oak"]
    assert house.verified()["signatures"] == 4


def test_denied_at_once_the_agent_is_refused(scene, person):
    approval = scene.asks("deny-me")
    person.choose("deny-me").press("Deny")
    person.outcome("denied")
    assert scene.state(approval) == "denied"
    assert "deny-me" not in scene.grove.felled()


def test_a_rule_for_some_minutes_lets_the_same_call_through(scene, person):
    scene.asks("timed")
    person.choose("timed")
    person.page.get_by_role("radio").nth(1).check()
    person.page.get_by_label("minutes").first.fill("25")
    expect(person.page.locator(".answers .primary")).to_contain_text("allow for 25 min")
    person.approve()
    expect(person.page.locator(".toast")).to_contain_text("Allowed until")
    person.outcome("approved")
    for _ in range(3):
        assert scene.jerry.post("/trees", {"path": "timed"}).json == "felled"
    assert scene.jerry.post("/trees", {"path": "other"}).status == 202


def test_a_run_is_approved_as_a_whole(scene, person):
    space = scene.jerry.post("/v1/spaces", {"path": scene.project()})
    assert space.status == 200, space
    writes = [
        {"type": "createFile", "path": f"keys/{name}.txt", "content": f"{name}\n", "id": name}
        for name in ("one", "two", "three")
    ]
    started = scene.jerry.post(
        f"/v1/spaces/{space.json['spaceId']}/runs", {"protocolVersion": "1.0", "operations": writes}
    )
    assert started.status == 200, started
    person.choose("keys/one.txt")
    expect(person.page.locator(".block-diff")).to_contain_text("one")
    person.page.get_by_role("radio", name="everything that this run asks").check()
    person.approve()
    person.outcome("approved")
    done = scene.jerry.get(f"/v1/runs/{started.json['runId']}/wait?waitMs=25000")
    assert done.json["status"] == "completed", done.json


def test_ten_alike_are_answered_with_one_touch(scene, person):
    before = scene.verified()["signatures"]
    asked = [scene.asks(f"alike-{number}") for number in range(10)]
    row = person.row("alike-")
    # The first of them may be shown before the rest is known; the list is put in order when it is opened anew.
    expect(person.page).to_have_title("(10) Approvals · Bascule")
    person.go("live")
    expect(person.page.get_by_role("heading", name="Live")).to_be_visible()
    person.go("approvals")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("×10")
    person.choose("alike-")
    # A jump to the end is no reading.
    shut = person.page.locator(".answers .primary[aria-disabled=true]")
    person.page.locator(".end-of-preview").last.scroll_into_view_if_needed()
    expect(shut).to_have_count(1)
    person.read_through()
    expect(shut).to_have_count(0)
    person.approve()
    person.outcome("approved")
    assert {scene.state(each) for each in asked} == {"approved"}
    assert scene.verified()["signatures"] == before + 1


def test_the_passphrase_answers_where_there_is_no_key(scene, browser):
    approval = scene.asks("typed")
    with opened(browser) as (context, _):
        console = Console(context, scene.origin).go()
        # A key that is nobody's: the browser asks it, and it says no.
        Key(console.page)
        console.page.get_by_label("Passphrase").fill(TYPED)
        console.page.get_by_role("button", name="Sign in", exact=True).click()
        console.is_signed_in().choose("typed").approve()
        dialog = console.page.get_by_role("dialog")
        expect(dialog.get_by_role("alert")).to_contain_text("No key answered")
        dialog.get_by_label("Passphrase").fill(TYPED)
        dialog.get_by_role("button", name="Approve", exact=True).click()
        console.outcome("approved")
    assert scene.state(approval) == "approved"


def test_up_in_its_own_process_has_the_console_where_it_says(start_daemon, browser, tmp_path):
    """`bascule up` itself, not a daemon of the tests' own making."""
    daemon = start_daemon(tmp_path, "--console-port", "0")
    origin = daemon._doors()["console"]
    with opened(browser) as (context, _):
        Console(context, origin.rstrip("/")).go().digits()
