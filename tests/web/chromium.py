"""Debian's Chromium without a window, driven over its debugging pipe: no driver and no library beside it."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any, Self

from patience import PATIENCE

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    # Chromium may ask a person before a page reaches loopback. Other browsers do not, and people press "Allow":
    # what is under test is our gate, so this help is turned off.
    "--disable-features=LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,BlockInsecurePrivateNetworkRequests",
)


def on_path() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def find_chromium() -> str:
    path = on_path()
    if path is None:
        # Here, because the bench opens pages, too, and has no pytest.
        import pytest

        reason = "no chromium on PATH; `sh tools/setup.sh packages` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}; in CI nothing may be skipped")
        pytest.skip(reason)
    return path


class Chromium:
    """One browser with a profile of its own; `page` opens a tab."""

    def __init__(self, *flags: str) -> None:
        program = find_chromium()
        self._home = tempfile.mkdtemp(prefix="bsc-chromium-")
        self._buffer = b""
        self._next_id = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self._pages: dict[str, Page] = {}
        self._errors = os.path.join(self._home, "stderr")
        # The pipe's ends are descriptors 3 and 4 by Chromium's own rule, and Popen gives 0 and 1.
        command = ["sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >&2', "sh", program]
        own = ("--remote-debugging-pipe", f"--user-data-dir={self._home}", "about:blank")
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [*command, *FLAGS, *flags, *own],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, "HOME": self._home},
            )
        assert self._process.stdin
        assert self._process.stdout
        self._to, self._from = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process.poll() is None:
                self.command("Browser.close")
                self._process.wait(PATIENCE)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._to.close()
            self._from.close()
            shutil.rmtree(self._home, ignore_errors=True)

    def command(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        id_ = self.send(method, params, session)
        self.wait(lambda: id_ in self._answers, method)
        answer = self._answers.pop(id_)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def send(self, method: str, params: dict[str, Any] | None = None, session: str | None = None) -> int:
        """A command whose answer nobody waits for."""
        self._next_id += 1
        message = {"id": self._next_id, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
        self._to.write(json.dumps(message).encode() + b"\0")
        return self._next_id

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            self._read(deadline, what)

    def _read(self, deadline: float, what: str) -> None:
        ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"Chromium did not answer {what} within {PATIENCE} s"
        data = self._from.read(1 << 20)
        assert data, f"Chromium is gone: {self._answer()}"
        *messages, self._buffer = (self._buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                page.on_event(message["method"], message["params"])

    def _answer(self) -> str:
        with open(self._errors, encoding="utf-8", errors="replace") as file:
            return file.read()[-2_000:]

    def page(self, url: str, html: str) -> "Page":
        """A tab at `url`, whose first answer is `html`; every other request goes where its name leads."""
        target = self.command("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.command("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, target, session, html)
        page.go(url)
        return page


class Page:
    def __init__(self, browser: Chromium, target: str, session: str, html: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session
        self._html = html
        self._loaded = False

    def command(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._browser.command(method, params, self._session)

    def go(self, url: str) -> None:
        """The name answered with the attacker's server when this page was loaded, and has been rebound since."""
        self.command("Fetch.enable", {"patterns": [{"urlPattern": url, "resourceType": "Document"}]})
        self.command("Page.enable")
        answer = self.command("Page.navigate", {"url": url})
        assert "errorText" not in answer, answer
        self._browser.wait(lambda: self._loaded, "the page's load")
        self.command("Fetch.disable")

    def on_event(self, event: str, answer: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Fetch.requestPaused":
            self._serve(answer)

    def _serve(self, paused: dict[str, Any]) -> None:
        answer = {
            "requestId": paused["requestId"],
            "responseCode": 200,
            "responseHeaders": [{"name": "Content-Type", "value": "text/html; charset=utf-8"}],
            "body": base64.b64encode(self._html.encode()).decode(),
        }
        self._browser.send("Fetch.fulfillRequest", answer, self._session)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for. The page thinks that the person clicked."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = self.command("Runtime.evaluate", asked)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def close(self) -> None:
        self._browser.command("Target.closeTarget", {"targetId": self._target})
