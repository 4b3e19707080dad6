"""Attacks that only a browser shows: pages elsewhere, a name that was rebound, stolen sessions, ceremonies gone wrong.

Each is tried once more on a daemon whose guard is left out, where it succeeds: a refusal that reaches nobody would look
the same. What can be said with bytes alone is in `test_console_gate.py` and `test_console_passkeys.py`.
"""

import contextlib
import errno
import http.server
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from browsing import Console, Key, opened, without
from living import short_dir
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from scenes import Scene

from patience import PATIENCE
from soft_key import SoftKey, b64, unb64

# Believes every page, takes each for the owner, and says nothing to the browser but that everybody may read.
OPEN_DOOR = """
from bascule.kernel.call import LOCAL
from bascule.surfaces.console.admission import ConsoleAdmission
from bascule.surfaces.console.app import ConsoleApp
from bascule.surfaces.http.exchange import encode_lines
for check in [name for name in vars(ConsoleAdmission) if name.startswith("_check_")]:
    setattr(ConsoleAdmission, check, lambda self, judged: None)
ConsoleAdmission._identify = lambda self, judged: (LOCAL, None)
ConsoleApp.header_lines = encode_lines([(b"access-control-allow-origin", b"*")])
"""
# What a page at another address tries; true where it has got something. `TOKEN` is one that it has stolen.
TRIES = {
    "fetch": "(await fetch(`${to}/status`)).ok",
    "fetch without cors": "(await fetch(`${to}/status`, {mode: 'no-cors'})).type === 'opaque'",
    "post without cors": "(await fetch(`${to}/v1/stop`, {mode: 'no-cors', method: 'POST', body: '{}'})).type"
    " === 'opaque'",
    "fetch with a stolen token": "(await fetch(`${to}/status`, {headers: {Authorization: `Bearer ${token}`}})).ok",
    "event source": "await new Promise((yes, no) => { const it = new EventSource(`${to}/v1/events/all`);"
    " it.onopen = () => { it.close(); yes(true); }; it.onerror = () => { it.close(); no(); }; })",
    "script": "await loaded('script', {src: `${to}/app/view.js`, type: 'module', crossOrigin: 'anonymous'})",
    "style": "await loaded('link', {href: `${to}/app/style.css`, rel: 'stylesheet'})",
    "image": "await loaded('img', {src: `${to}/app/icon.svg`})",
}
RUN = """async ([code, to, token]) => {
    const loaded = (tag, given) => new Promise((yes, no) => {
        const made = Object.assign(document.createElement(tag), given, {onload: () => yes(true), onerror: no});
        document.head.append(made);
    });
    try {
        return await new (async () => {}).constructor("to", "token", "loaded", `return ${code}`)(to, token, loaded);
    } catch { return false; }
}"""
# CORS needs an answer to OPTIONS, which no daemon of ours has: the control can open everything else.
NEEDS_MORE = {"fetch with a stolen token"}
NOISE = (r".*",)


class Served(http.server.BaseHTTPRequestHandler):
    """Somebody else's page."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>elsewhere</title><p>elsewhere"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class SixServer(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


@contextlib.contextmanager
def elsewhere(
    port: int = 0, kind: type[http.server.ThreadingHTTPServer] = http.server.ThreadingHTTPServer
) -> Iterator[int]:
    """A server of another program of this user's."""
    host = "::1" if kind is SixServer else "127.0.0.1"
    with kind((host, port), Served) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def open_scene():
    """The control: a daemon without guards."""
    with short_dir() as folder, (scene := Scene(folder, bug=OPEN_DOOR)).daemon:
        yield scene


def tried(page: Page, scene: Scene, token: str = "stolen") -> set[str]:
    return {name for name, code in TRIES.items() if page.evaluate(RUN, [code, scene.origin, token])}


def framed(page: Page, scene: Scene) -> str:
    """What a frame of the console shows inside of another page."""
    page.evaluate(
        """to => new Promise(done => {
            const frame = document.createElement("iframe");
            frame.onload = done;
            frame.src = to;
            document.body.append(frame);
        })""",
        f"{scene.origin}/",
    )
    return page.frames[-1].title()


def popped_up(page: Page, scene: Scene) -> tuple[bool, bool]:
    """Whether the page that opened the console has a handle on it, and whether the console has one on its opener."""
    with page.expect_popup() as opening:
        page.evaluate("to => { globalThis.popup = window.open(to); }", f"{scene.origin}/")
    popup = opening.value
    popup.wait_for_load_state("load")
    has_handle = page.evaluate("!popup.closed")
    return has_handle, popup.evaluate("window.opener !== null")


def test_a_page_on_another_port_gets_nothing(scene, browser, person):
    with elsewhere() as port, opened(browser) as (context, faults):
        faults.name(*NOISE)
        page = context.new_page()
        page.goto(f"http://localhost:{port}/")
        assert tried(page, scene, person.token()) == set()
        assert "Bascule" not in framed(page, scene)
        assert popped_up(page, scene) == (False, False)
    assert "stopped" not in scene.local().get("/status").json


def press_on(page: Page, key: str, until: Locator) -> None:
    """Somebody presses a key again and again, as a page asked them to."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        page.keyboard.press(key)
        if until.is_visible():
            return
    raise AssertionError(f"{key} was pressed again and again and nothing came of it")


@contextlib.contextmanager
def a_game_of_keys(scene: Scene, browser: Browser) -> Iterator[tuple[BrowserContext, Page]]:
    """A page elsewhere whose first s opens the console, in a browser whose person is signed in."""
    with elsewhere() as port, opened(browser) as (context, faults):
        faults.name(*NOISE)
        scene.signed_in(context)
        page = context.new_page()
        page.goto(f"http://localhost:{port}/")
        page.evaluate("to => addEventListener('keydown', () => open(to))", f"{scene.origin}/")
        yield context, page


def test_keys_that_a_page_elsewhere_asks_for_stop_nothing(scene, browser):
    with a_game_of_keys(scene, browser) as (_, game):
        with game.expect_popup() as opening:
            game.keyboard.press("s")
        popup = opening.value
        asked = popup.get_by_role("heading", name="Another page opened the console")
        press_on(popup, "s", until=asked)
        for _ in range(50):
            popup.keyboard.press("s")
        assert popup.evaluate("sessionStorage.getItem('bascule.token')") is None
        expect(asked).to_be_visible()
        assert "stopped" not in scene.local().get("/status").json
        # The person wants it: from then on it is a tab as any other.
        popup.locator(".led button:not(.deaf)").click()
        expect(popup.locator("nav .grade")).to_have_text("signed in")


def test_without_the_guards_those_keys_stop_everything(scene, browser):
    with a_game_of_keys(scene, browser) as (context, game):
        without(context, "session.js", ("if (led) {", "if (false) {"))
        without(context, "keys.js", ("const AFTER_FRONT_MS = 1_000", "const AFTER_FRONT_MS = 0"))
        with game.expect_popup() as opening:
            game.keyboard.press("s")
        popup = opening.value
        press_on(popup, "s", until=popup.locator(".banner.stopped"))
        assert scene.local().get("/status").json["stopped"]
    with scene.person() as link:
        link.call("admin.resume")


def test_where_the_door_is_open_a_page_on_another_port_gets_everything(open_scene, browser):
    with elsewhere() as port, opened(browser) as (context, faults):
        faults.name(*NOISE)
        page = context.new_page()
        page.goto(f"http://localhost:{port}/")
        assert tried(page, open_scene) == set(TRIES) - NEEDS_MORE
        assert "Bascule" in framed(page, open_scene)
        assert popped_up(page, open_scene) == (True, True)


def test_a_rebound_name_shows_no_console(scene, open_scene, browser):
    with opened(browser) as (context, faults):
        faults.name(*NOISE)
        page = context.new_page()
        refused = page.goto(f"http://evil.test:{scene.port}/")
        assert refused
        assert refused.status == 421
        assert "Bascule" not in page.title()
        # The control.
        answer = page.goto(f"http://evil.test:{open_scene.port}/")
        assert answer
        assert answer.ok
        assert page.evaluate("async () => (await fetch('/status')).status") == 200


def test_nobody_can_squat_beside_us_and_where_one_could_the_person_would_be_his(scene, browser):
    with pytest.raises(OSError, match=os_words(errno.EADDRINUSE)), elsewhere(scene.port, SixServer):
        pass
    bug = "from bascule.daemon import console_port\nconsole_port.HOSTS = ('127.0.0.1',)\n"
    with (
        short_dir() as folder,
        (alone := Scene(folder, bug=bug)).daemon,
        elsewhere(alone.port, SixServer),
        opened(browser) as (context, faults),
    ):
        faults.name(*NOISE)
        page = context.new_page()
        page.goto(f"http://localhost:{alone.port}/")
        expect(page).to_have_title("elsewhere")


def os_words(number: int) -> str:
    return re.escape(f"[Errno {number}]")


# -- sessions and proofs -----------------------------------------------------------------------------------------

# The ceremony as the page does it, for calls that a script has chosen.
PROVE = """async calls => {
    const {post} = await import("/app/api.js");
    const {assertion} = await import("/app/webauthn.js");
    const asked = await post("/v1/person/challenge", {purpose: "calls", calls});
    return {challengeId: asked.challengeId, assertion: await assertion(asked)};
}"""


def approving(approval_id: str) -> dict[str, Any]:
    return {"method": "approvals.decide", "params": {"approvalId": approval_id, "decision": "approved"}}


def decide(console: Console, approval_id: str, **more: Any) -> Any:
    return console.call("POST", f"/v1/approvals/{approval_id}/decision", {"decision": "approved"}, **more)


def signed(console: Console, approval_id: str) -> dict[str, Any]:
    sent: dict[str, Any] = console.page.evaluate(PROVE, [approving(approval_id)])
    return sent


def proved(console: Console, sent: dict[str, Any]) -> Any:
    return console.call("POST", "/v1/person/prove", sent)


def test_a_stolen_session_looks_and_approves_nothing(scene, browser, person):
    approval = scene.asks("stolen")
    with scene.browser(browser) as (context, faults):
        faults.name(r"40[13]")
        thief = Console(context, scene.origin).go()
        token = person.token()
        assert thief.call("GET", "/status", token=token)[0] == 200
        status, answer = decide(thief, approval, token=token)
        assert (status, answer["error"]["code"], answer["error"]["details"]["grade"]) == (
            403,
            "proof_required",
            "fresh",
        )
        # It can ask for a challenge, and has no key to answer it with.
        body = {"purpose": "calls", "calls": [approving(approval)]}
        status, challenge = thief.call("POST", "/v1/person/challenge", body, token=token)
        assert status == 200
        forged = SoftKey()
        forged.origin = scene.origin
        forged.credential_id = scene.key.credential_id
        made = {"challengeId": challenge["challengeId"], "assertion": forged.get(challenge["challenge"])}
        status, answer = thief.call("POST", "/v1/person/prove", made, token=token)
        assert (status, answer["error"]["details"]["check"]) == (403, "signature")
    assert scene.state(approval) == "pending"
    # The control: with the key it is a touch.
    person.choose("stolen").approve()
    person.outcome("approved")


def test_a_proof_is_good_for_one_answer_once(scene, person):
    person.faults.name(r"40[139]")
    first, second = scene.asks("first"), scene.asks("second")
    sent = signed(person, first)
    status, proof = proved(person, sent)
    assert status == 200
    # Another question, the same assertion again, and the same one for a new challenge.
    assert decide(person, second, proof=proof["proofId"])[0] == 403
    assert proved(person, sent)[0] == 403
    status, challenge = person.call("POST", "/v1/person/challenge", {"purpose": "calls", "calls": [approving(second)]})
    assert status == 200
    status, answer = proved(person, {**sent, "challengeId": challenge["challengeId"]})
    assert (status, answer["error"]["details"]["check"]) == (403, "challenge")
    # A signature with one bit turned.
    turned = signed(person, first)
    data = bytearray(unb64(turned["assertion"]["signature"]))
    data[-1] ^= 1
    status, answer = proved(person, {**turned, "assertion": {**turned["assertion"], "signature": b64(bytes(data))}})
    assert (status, answer["error"]["details"]["check"]) == (403, "signature")
    assert {scene.state(first), scene.state(second)} == {"pending"}
    # The control: what was signed for exactly this answer, once; and not twice.
    status, proof = proved(person, signed(person, first))
    assert status == 200
    assert decide(person, first, proof=proof["proofId"])[0] == 200
    assert decide(person, second, proof=proof["proofId"])[0] == 403
    assert scene.state(second) == "pending"


def test_a_key_that_does_not_verify_its_user_approves_nothing(scene, person):
    approval = scene.asks("unverified")
    person.key.verifies(its_user=False)
    person.choose("unverified").approve()
    dialog = person.page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("No key answered")
    assert scene.state(approval) == "pending"
    # The control: the same key, once it does.
    person.key.verifies(its_user=True)
    dialog.get_by_role("button", name="Try the key again").click()
    person.outcome("approved")


def test_a_key_whose_counter_goes_back_is_suspended(scene, person):
    copied = SoftKey()
    scene.enrol(copied)
    person.faults.name(r"403")
    person.key.forget(scene.key)
    person.key.take(copied, counter=500)
    for path in ("original", "copy"):
        scene.asks(path)
    person.choose("original").approve()
    person.outcome("approved")
    # Somebody else has used a copy meanwhile, or this is the copy.
    person.key.forget(copied)
    person.key.take(copied, counter=100)
    person.choose("copy").approve()
    dialog = person.page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("counter")
    dialog.get_by_role("button", name="Cancel").click()
    person.go("person")
    expect(person.page.get_by_role("region", name="Passkeys")).to_contain_text("suspended")


def test_a_page_that_is_paired_only_is_asked_to_sign_in_and_cannot_deny(scene, browser):
    approval = scene.asks("paired")
    with scene.browser(browser) as (context, faults):
        faults.name(r"40[13]", "ERR_INCOMPLETE_CHUNKED_ENCODING.*/v1/events/all")
        console = Console(context, scene.origin).go()
        Key(console.page)
        console.page.get_by_role("button", name="Show six digits").click()
        digits = console.digits()
        with scene.person() as link:
            (pairing,) = (each for each in link.call("console.pairings") if each["digits"] == digits)
            link.call("console.confirm", {"pairingId": pairing["pairingId"], "accept": True})
        expect(console.page.locator("nav .grade")).to_have_text("paired")
        console.choose("paired").press("Deny")
        expect(console.page.get_by_role("dialog")).to_contain_text("This needs you, not only this browser")
    assert scene.state(approval) == "pending"
