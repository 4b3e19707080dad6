"""The ceremonies of a real browser with its virtual authenticator: what Chromium makes is what we take."""

import json
from typing import Any

import pytest
from chromium import Chromium
from living import Living
from pages import Page
from wires import LinkWire

from inside import CHEAP_PASSPHRASE

PASSPHRASE = "correct horse battery staple"
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "usb",
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
# What a page has to do around `navigator.credentials`, in few words.
SCRIPT = """
const bytes = text => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), each => each.charCodeAt(0));
const text = data => btoa(String.fromCharCode(...new Uint8Array(data)))
    .replace(/\\+/g, "-").replace(/\\//g, "_").replace(/=/g, "");
async function create(options) {
    const made = await navigator.credentials.create({publicKey: {
        ...options,
        challenge: bytes(options.challenge),
        user: {...options.user, id: bytes(options.user.id)},
        excludeCredentials: options.excludeCredentials.map(each => ({...each, id: bytes(each.id)})),
    }});
    const response = made.response;
    return {
        credentialId: text(made.rawId), publicKey: text(response.getPublicKey()),
        algorithm: response.getPublicKeyAlgorithm(), authenticatorData: text(response.getAuthenticatorData()),
        clientDataJSON: text(response.clientDataJSON), transports: response.getTransports(),
    };
}
async function get(asked) {
    const made = await navigator.credentials.get({publicKey: {
        challenge: bytes(asked.challenge), rpId: asked.rpId, userVerification: "required",
        allowCredentials: asked.allowCredentials.map(each => ({type: "public-key", ...each, id: bytes(each.id)})),
    }});
    const response = made.response;
    return {
        credentialId: text(made.rawId), authenticatorData: text(response.authenticatorData),
        clientDataJSON: text(response.clientDataJSON), signature: text(response.signature),
    };
}
"""


class Tab:
    """A tab that really is at an address."""

    def __init__(self, browser: Chromium, origin: str) -> None:
        self._browser = browser
        target = browser.command("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = browser.command("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session: str = attached["sessionId"]
        self._loads = 0
        browser._pages[self._session] = self
        self.command("Page.enable")
        self.command("WebAuthn.enable")
        self.go(origin)

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        self._loads += method == "Page.loadEventFired"

    def go(self, origin: str) -> None:
        before = self._loads
        self.command("Page.navigate", {"url": origin})
        self._browser.wait(lambda: self._loads > before, origin)
        assert self.run("location.origin") == origin

    def command(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.command(method, params, self._session)

    def add_authenticator(self, **options: Any) -> str:
        made = self.command("WebAuthn.addVirtualAuthenticator", {"options": {**AUTHENTICATOR, **options}})
        return made["authenticatorId"]

    def run(self, expression: str) -> Any:
        """What it comes to; the name of the error when it fails."""
        tried = f"try {{ return await ({expression}) }} catch (error) {{ return error.name }}"
        asked = {
            "expression": f"(async () => {{{SCRIPT}; {tried}}})()",
            "awaitPromise": True,
            "returnByValue": True,
            "userGesture": True,
        }
        return self.command("Runtime.evaluate", asked)["result"].get("value")

    def create(self, options: dict[str, Any]) -> Any:
        return self.run(f"create({json.dumps(options)})")

    def get(self, asked: dict[str, Any]) -> Any:
        return self.run(f"get({json.dumps(asked)})")


@pytest.fixture
def daemon(state):
    with Living(state, console_port=0, constants=CHEAP_PASSPHRASE) as daemon:
        with LinkWire(daemon.link_socket).hello() as link:
            link.call("person.set", {"passphrase": PASSPHRASE})
        yield daemon


@pytest.fixture
def browser():
    with Chromium() as browser:
        yield browser


def ok(answer):
    assert answer.status == 200, (answer.status, answer.body)
    return answer.json


def begun(daemon, page):
    with LinkWire(daemon.link_socket).hello() as link:
        link.call("person.unlock", {"passphrase": PASSPHRASE})
        code = link.call("passkeys.invite")["code"]
    return ok(page.post("/v1/passkeys/begin", {"code": code, "name": "virtual"}))


def enrolled(daemon, browser):
    """A tab at our address whose authenticator has a key of the person's."""
    # Before the tab is there: its own page asks to pair, too, and two within a minute are refused.
    page = Page(daemon).pair()
    tab = Tab(browser, page.origin)
    tab.add_authenticator()
    start = begun(daemon, page)
    made = tab.create(start["options"])
    assert isinstance(made, dict), made
    following = ok(page.post("/v1/passkeys/finish", {"challengeId": start["challengeId"], **made}))
    body = {"challengeId": following["challengeId"], "assertion": tab.get(following)}
    ok(page.post("/v1/passkeys/confirm", body))
    return tab


def prove(page, tab, **asked):
    challenge = ok(page.post("/v1/person/challenge", asked))
    return page.post("/v1/person/prove", {"challengeId": challenge["challengeId"], "assertion": tab.get(challenge)})


def test_a_key_of_chromium_is_enrolled_signs_in_and_proves_a_call(daemon, browser):
    page, tab = Page(daemon), enrolled(daemon, browser)
    page.token = ok(prove(page, tab, purpose="sign-in"))["token"]
    calls = [{"method": "passkeys.invite", "params": {}}]
    proof = ok(prove(page, tab, purpose="calls", calls=calls))["proofId"]
    ok(page.post("/v1/passkeys/invite", more={"Bascule-Proof": proof}))
    with LinkWire(daemon.link_socket).hello() as link:
        result = link.call("ledger.verify")
    assert (result["faults"], result["signatures"]) == ([], 3)


def test_a_page_at_another_port_gets_a_signature_that_opens_nothing(daemon, browser, state):
    """Browsers let every port of localhost use our keys; the address in what is signed is what stops it."""
    page, tab = Page(daemon), enrolled(daemon, browser)
    with Living(f"{state}2", console_port=0) as other:
        tab.go(Page(other).origin)
        refused = prove(page, tab, purpose="sign-in")
    assert (refused.status, refused.error["details"]["check"]) == (403, "origin")
    # The control: the same tab, back at our address.
    tab.go(page.origin)
    ok(prove(page, tab, purpose="sign-in"))


def test_a_key_without_user_verification_is_refused_by_the_browser_already(daemon, browser):
    page = Page(daemon).pair()
    tab = Tab(browser, page.origin)
    tab.add_authenticator(hasUserVerification=False, isUserVerified=False)
    options = begun(daemon, page)["options"] | {"timeout": 2_000}
    assert tab.create(options) == "NotAllowedError"
