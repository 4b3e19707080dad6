"""A real browser at the console: Debian's Chromium driven by Playwright, with the virtual authenticator of DevTools.

Everything that goes wrong in a page fails its test, unless the test has named it: an error of a script, a line of the
browser's own console, a request that was refused or went nowhere, one to another address, a dialog.
"""

import contextlib
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chromium import FLAGS, find_chromium
from cryptography.hazmat.primitives import serialization
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from bascule.surfaces.console.static import WEB
from patience import PATIENCE
from soft_key import SoftKey, b64

PATIENCE_MS = PATIENCE * 1_000
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
# What a page ends by itself, a stream or a claim, when it goes on to something else.
_OWN_END = "net::ERR_ABORTED"
# `headless` is for Playwright to say.
_FLAGS = [flag for flag in FLAGS if flag != "--headless"]
# A name of the attacker's, which leads to us.
_REBOUND = "--host-resolver-rules=MAP evil.test 127.0.0.1"

expect.set_options(timeout=PATIENCE_MS)


@contextlib.contextmanager
def chromium(*flags: str) -> Iterator[Browser]:
    """One browser. While it lives, asyncio counts as running in this thread: Playwright's own loop."""
    program = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_FLAGS, _REBOUND, *flags])
        try:
            yield browser
        finally:
            browser.close()


class Faults:
    """What went wrong in the pages of one context, and which of it a test expects."""

    def __init__(self, context: BrowserContext) -> None:
        self.seen: list[str] = []
        self.requests: list[str] = []
        self._named: list[str] = []
        self._open = True
        context.on("weberror", lambda error: self._note(f"page error: {error.error}"))
        context.on("console", self._console)
        context.on("requestfailed", self._failed)
        context.on("response", self._answered)
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("page", lambda page: page.on("dialog", self._dialog))

    def name(self, *patterns: str) -> None:
        """These are part of what is tested."""
        self._named += patterns

    def close(self) -> None:
        self._open = False

    def unnamed(self) -> list[str]:
        return [fault for fault in self.seen if not any(re.search(pattern, fault) for pattern in self._named)]

    def _note(self, fault: str) -> None:
        if self._open:
            self.seen.append(fault)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._note(f"console {message.type}: {message.text} {message.location.get('url', '')}")

    def _failed(self, request: Any) -> None:
        if request.failure != _OWN_END:
            self._note(f"failed: {request.failure} {request.method} {request.url}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self._note(f"answered {response.status}: {response.request.method} {response.url}")

    def _dialog(self, dialog: Any) -> None:
        self._note(f"dialog: {dialog.message}")
        dialog.dismiss()


def without(context: BrowserContext, file: str, *changes: tuple[str, str]) -> None:
    """A script of the page with one of its guards left out: the control of a test."""
    text = Path(WEB, file).read_text("utf-8")
    for guard, instead in changes:
        assert text.count(guard) == 1, f"{file} has {text.count(guard)} times: {guard}"
        text = text.replace(guard, instead)
    script = {"body": text, "content_type": "text/javascript"}
    context.route(f"**/app/{file}", lambda route: route.fulfill(**script))


@contextlib.contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[tuple[BrowserContext, Faults]]:
    """A browser of somebody's own: nothing of other tests is in it."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    context.set_default_timeout(PATIENCE_MS)
    faults = Faults(context)
    try:
        yield context, faults
        assert not (unnamed := faults.unnamed()), "\n".join(unnamed)
    except BaseException as error:
        # What else went wrong often says why.
        error.add_note("\n".join(["in the browser:", *faults.seen, *(page.url for page in context.pages)]))
        raise
    finally:
        faults.close()
        context.close()


class Key:
    """The virtual authenticator of one tab."""

    def __init__(self, page: Page, **options: Any) -> None:
        self._wire = page.context.new_cdp_session(page)
        self._wire.send("WebAuthn.enable")
        made = self._wire.send("WebAuthn.addVirtualAuthenticator", {"options": {**AUTHENTICATOR, **options}})
        self._id: str = made["authenticatorId"]

    def _command(self, name: str, **params: Any) -> Any:
        return self._wire.send(f"WebAuthn.{name}", {"authenticatorId": self._id, **params})

    def take(self, key: SoftKey, *, counter: int) -> "Key":
        """The same credential as one that is enrolled."""
        private = key._private.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        credential = {
            "credentialId": b64encode(key.credential_id).decode(),
            "isResidentCredential": False,
            "rpId": "localhost",
            "privateKey": b64encode(private).decode(),
            "signCount": counter,
        }
        self._command("addCredential", credential=credential)
        return self

    def forget(self, key: SoftKey) -> None:
        self._command("removeCredential", credentialId=b64encode(key.credential_id).decode())

    def touches(self, *, by_itself: bool) -> None:
        """Whether a touch comes by itself, as soon as it is asked for."""
        self._command("setAutomaticPresenceSimulation", enabled=by_itself)

    def verifies(self, *, its_user: bool) -> None:
        self._command("setUserVerified", isUserVerified=its_user)


class Console:
    """One tab at the console's address, as a person uses it."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.origin = origin
        self.page = context.new_page()

    def go(self, path: str = "approvals") -> "Console":
        self.page.goto(f"{self.origin}/#/{path}")
        return self

    # -- who one is --

    def digits(self) -> str:
        shown = self.page.locator(".digits")
        expect(shown).to_have_text(re.compile(r"^\d{3} \d{3}$"))
        return shown.inner_text().replace(" ", "")

    def sign_in_by_key(self) -> "Console":
        self.page.get_by_role("button", name="Sign in with a passkey").click()
        return self.is_signed_in()

    def is_signed_in(self) -> "Console":
        expect(self.page.locator("nav .grade")).to_have_text("signed in")
        return self

    def is_live(self) -> "Console":
        expect(self.page.locator(".link-state")).to_have_text("live")
        return self

    def keyed(self) -> "Console":
        """Wait until keys act: they rest after the window came to the front, and after a text field went away."""
        expect(self.page.locator("html")).to_have_attribute("data-keys", "ready")
        return self

    def token(self) -> str:
        return str(self.page.evaluate("sessionStorage.getItem('bascule.token')"))

    # -- questions --

    @property
    def rows(self) -> Locator:
        return self.page.locator(".inbox-row a")

    def row(self, words: str) -> Locator:
        return self.rows.filter(has_text=words)

    def choose(self, words: str) -> "Console":
        """Open one question and wait until it is whole and its buttons hear. Newcomers are let in first."""
        row, newcomers = self.row(words).first, self.page.locator(".newcomers")
        while not row.is_visible():
            row.or_(newcomers).first.wait_for()
            if newcomers.is_visible():
                newcomers.click()
        row.click()
        return self.ready()

    def ready(self) -> "Console":
        expect(self.page.locator(".answers")).to_be_visible()
        expect(self.page.locator(".answers")).not_to_have_class(re.compile("deaf"))
        return self

    def read_through(self) -> "Console":
        """A long preview from its begin to its end, less than a screen at a time: a jump would not count."""
        self.page.locator(".question-body").evaluate(
            """async (box) => {
                box.scrollTop = 0;
                for (let before = -1; before < box.scrollTop; ) {
                    before = box.scrollTop;
                    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                    box.scrollTop += box.clientHeight * 0.8;
                }
            }"""
        )
        return self

    def press(self, name: str) -> None:
        self.page.locator(".answers").get_by_role("button", name=name, exact=True).click()

    def approve(self) -> None:
        expect(self.page.locator(".answers .primary")).not_to_have_attribute("aria-disabled", "true")
        self.page.locator(".answers .primary").click()

    def outcome(self, words: str) -> None:
        expect(self.page.locator(".answered")).to_contain_text(words)

    # -- a script in the page --

    def call(self, verb: str, path: str, body: Any = None, *, token: str | None = None, proof: str = "") -> Any:
        """What a script in this page gets for a call of its own: status and decoded body."""
        given = [verb, path, body, token if token is not None else self.token(), proof]
        return self.page.evaluate(
            """async ([verb, path, body, token, proof]) => {
                const headers = {"Content-Type": "application/json"};
                if (token) headers.Authorization = `Bearer ${token}`;
                if (proof) headers["Bascule-Proof"] = proof;
                const answer = await fetch(path, {method: verb, headers, body: body && JSON.stringify(body)});
                const text = await answer.text();
                return [answer.status, text ? JSON.parse(text) : null];
            }""",
            given,
        )


def enrolled(page: Any, key: SoftKey, code: str) -> None:
    """Enrol a key in software by the wire: the ceremony in the browser has a test of its own."""
    key.origin = page.origin
    begun = page.post("/v1/passkeys/begin", {"code": code, "name": "virtual"}).json
    made = key.create(begun["options"]["challenge"])
    following = page.post("/v1/passkeys/finish", {"challengeId": begun["challengeId"], **made}).json
    body = {"challengeId": following["challengeId"], "assertion": key.get(following["challenge"])}
    answer = page.post("/v1/passkeys/confirm", body)
    assert answer.status == 200, answer
    assert answer.json["name"] == "virtual"
    assert b64(key.credential_id) == key.id
