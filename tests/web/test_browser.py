"""A hostile page in a real Chromium: every route, by every name of this machine, in every shape a page can send.

The page's own name is rebound: its origin is `http://evil.test:PORT`, and that name leads to the daemon. What the
daemon answered is counted at the daemon, what it did is seen in its state, what the page could read the page says.
Controls put the bug in on purpose, for a test of refusals that reaches nobody would pass as well.
"""

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from chromium import Chromium, Page
from living import Living, eventually, short_dir
from wires import LinkWire, Wire

from bascule.bridge_list import BRIDGES
from bascule.daemon.compose import routes_of
from bascule.desktop import rows as desktop_rows
from bascule.game import rows as game_rows
from bascule.kernel.route import Route
from bascule.kernel.rows import WhoKind
from bascule.native import rows as native_rows
from bascule.workspace import rows as workspace_rows
from patience import PATIENCE

ROUTES = routes_of()

# A whole matrix takes ten seconds, and a minute where eight others work; each step has a bound of its own.

EVIL = "evil.test"
HOSTS = (EVIL, "127.0.0.1", "localhost", "0.0.0.0", "[::1]")
# A page that is at its own name, and one that is not.
SOME_HOSTS = HOSTS[:2]
LONG = os.environ.get("BASCULE_LONG") == "1"
# Shapes that open a page or a frame for each request: tens of milliseconds each.
SLOW = ("form", "websocket", "iframe")
# Shapes that can only ever be a GET.
GETS = ("img", "eventsource", "websocket", "iframe")
SHAPES = ("json", "nocors", "form", "beacon", *GETS)
# Chromium slows a page down whose WebSockets fail, from about this many on.
SOCKETS = 10
# Shapes whose answer a page can read where it is of the page's own origin.
READERS = {"json", "nocors", "form", "eventsource", "iframe"}
REFUSED = {"401", "403", "421"}
REFUSALS = ("this Host is not served here", "requests from web pages are refused")
# Words in agents, messages and tickets here: a page that reads one of them has read what is not its own.
SECRETS = ("Jerry", "canary-payload", "conversation-7")
# Addresses of nothing, which a page may try as well.
NOWHERE = (("GET", "/"), ("GET", "/docs"), ("GET", "/favicon.ico"), ("GET", "/no/such/path"), ("POST", "/no/such/path"))

ASSERTION = dict.fromkeys(("credentialId", "authenticatorData", "clientDataJSON", "signature"), "AAAA")
# A body with "=" in a string can be sent by a form; see attack.js.
BODIES: dict[str, dict[str, Any]] = {
    # Refused by their own params: everything would be stopped for the requests behind, and the person alone resumes.
    "admin.stop": {"reason": 5},
    "admin.resume": {"unknown": 1},
    "agents.register": {"agentId": "Intruder-NUMBER", "metadata": {"note": "a=b"}},
    "messages.send": {"payload": "from a=page"},
    "messages.broadcast": {"payload": "from a=page"},
    "replies.post": {"ticketId": "t-NUMBER", "payload": "from a=page"},
    "replies.gather": {"ticketIds": ["t-NUMBER"], "waitMs": 0},
    "inbox.ack": {"ticketIds": ["t-NUMBER"]},
    "runs.resume": {"approval": {"operationId": "a=b", "decision": "denied"}},
    "approvals.decide": {"decision": "denied", "reason": "from a=page"},
    "policy.explain": {"method": "messages.send", "params": {"payload": "from a=page"}},
    "policy.accept": {"digest": "a=b"},
    "console.pair": {"secretHash": "0" * 64},
    "console.claim": {"pairingId": "p-NUMBER", "secret": "a=secret-of-a-page"},
    "person.challenge": {"purpose": "sign-in"},
    "person.prove": {"challengeId": "c-NUMBER", "passphrase": "from a=page"},
    "passkeys.begin": {"code": "a=b", "name": "from a=page"},
    "passkeys.finish": {
        "challengeId": "c-NUMBER",
        "credentialId": "AAAA",
        "publicKey": "AAAA",
        "algorithm": -7,
        "authenticatorData": "AAAA",
        "clientDataJSON": "AAAA",
    },
    "passkeys.confirm": {"challengeId": "c-NUMBER", "assertion": ASSERTION},
    "desktop.observe": {"requestId": "r-NUMBER"},
    "desktop.hotkey": {"keys": ["a=b"]},
    "desktop.typeText": {"text": "from a=page"},
    "desktop.abort": {"executionId": "e-NUMBER"},
    "mcp.post": {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a=page", "version": "1"},
        },
    },
    "native.mode": {"client": "claude", "mode": "observe"},
    "mesh.new": {"mesh": "home"},
    "mesh.init": {"mesh": "home", "servers": ["nats://127.0.0.1"]},
    "mesh.accept": {"words": "salad wizard velvet grape pilot"},
}
# Of what does not exist here.
BRIDGE_ROUTES = tuple(
    route
    for rows in (workspace_rows.METHODS, game_rows.METHODS, desktop_rows.METHODS, native_rows.METHODS)
    for row in rows
    for route in row.routes
)
NAMES = {
    "agentId": "Jerry",
    "ticketId": "t-NUMBER",
    "conversationId": "conversation-7",
    "spaceId": "spc_1",
    "runId": "run_1",
    "processId": "prc_1",
    "gameId": "burrow",
    "tool": "burrow/look",
    "path": "a.txt",
    "approvalId": "apr_1",
    "executionId": "exe_1",
    "what": "Jerry",
    "passkeyId": "pky_1",
    "node": "laptop",
    "session": "ses_1",
    "client": "Weather",
}
QUERIES = {
    "inbox.take": "?waitMs=0",
    "inbox.watch": "?waitMs=0",
    "replies.wait": "?waitMs=0",
    "evidence.file": "?name=observe.png",
}
# Whatever a named agent sends, it may not call these: the gate of the kernel asks after the params are read.
NO_AGENTS = {
    row.name
    for bridge in BRIDGES
    for row in bridge.rows
    if row.who.kind in (WhoKind.LOCAL, WhoKind.PERSON, WhoKind.BROWSER)
}

# The gate lets everybody in as `local`; Host, Origin, Sec-Fetch-Site and token are not looked at.
NO_GATE = """
from bascule.surfaces.http.admission import Admission
assert callable(Admission.admit)
Admission.admit = lambda self, headers: "local"
"""
# Everybody is the agent itself, and any body is taken for JSON, as by a server that does not ask for its type.
NO_GATE_NO_TYPES = """
from bascule.surfaces.http.app import App
from bascule.surfaces.http.admission import Admission
assert callable(Admission.admit)
Admission.admit = lambda self, headers: "agent:Jerry"
def with_more(headers):
    kept = [pair for pair in headers if pair[0] != b"content-type"]
    return [*kept, (b"content-type", b"application/json"), (b"authorization", b"Bearer any")]
answer = App.answer
def lenient(self, request, body):
    request.headers = with_more(request.headers)
    return answer(self, request, body)
App.answer = lenient
"""

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "attack.js"), encoding="utf-8") as _file:
    ATTACK = f'<!doctype html><link rel="icon" href="data:,"><body><script>{_file.read()}</script>'


def case_of(route: Route) -> dict[str, Any]:
    path = re.sub(r"\{(\w+)(?:\.\.\.)?\}", lambda found: NAMES[found[1]], route.path) + QUERIES.get(route.method, "")
    body = json.dumps(BODIES[route.method]) if route.method in BODIES else ""
    return {"verb": route.verb, "path": path, "body": body}


CASES = [*map(case_of, ROUTES), *({"verb": verb, "path": path, "body": ""} for verb, path in NOWHERE)]


class Seen(NamedTuple):
    """What one shape of request to one host came to."""

    shape: str
    host: str
    answers: Counter[str]
    changed: set[str]
    # What the page could read, by case.
    read: dict[str, str]

    @property
    def admitted(self) -> int:
        return sum(count for status, count in self.answers.items() if status.startswith("2"))


class Attack:
    """One daemon and a page that attacks it."""

    def __init__(self, daemon: Living, browser: Chromium) -> None:
        self.daemon = daemon
        self._browser = browser
        self._page = self._open_page()
        self._link = LinkWire(daemon.link_socket).hello()
        self._number = 0
        self._asked = 0
        self._link.call("agents.register", {"agentId": "Jerry"})

    def close(self) -> None:
        self._link.close()
        self._page.close()

    def _open_page(self) -> Page:
        return self._browser.page(f"http://{EVIL}:{self.daemon.port}/attack", ATTACK)

    def run(self, shape: str, host: str) -> Seen:
        """Everything once, in one shape, at one host, with a fresh ticket that it may be about."""
        self._number += 1
        message = {"payload": "canary-payload", "conversationId": "conversation-7"}
        self._link.call("messages.send", {"agentId": "Jerry", "ticketId": f"t-{self._number}", **message})
        cases = [{name: self._numbered(text) for name, text in case.items()} for case in CASES]
        if shape == "popup":
            cases = [{"verb": "GET", "path": "/agents"}]
        elif shape in GETS:
            cases = [{"verb": "GET", "path": path} for path in dict.fromkeys(case["path"] for case in cases)]
        answers, state = self._answers(), self._state()
        pages = [(self._page, cases)]
        if shape == "websocket":
            pages = [(self._open_page(), cases[at : at + SOCKETS]) for at in range(0, len(cases), SOCKETS)]
        for page, part in pages:
            page.evaluate(f"begin({json.dumps(shape)}, {json.dumps(host)}, {json.dumps(part)})")
        came = eventually(lambda: self._since(answers, len(cases)), f"{shape} at {host} reaches the daemon", PATIENCE)
        read: dict[str, str | None] = {}
        for page, part in pages:
            if came.keys() - REFUSED:
                page.evaluate("release()")
            names = (f"{case['verb']} {case['path']}" for case in part)
            read |= zip(names, page.evaluate("running"), strict=True)
            if page is not self._page:
                page.close()
        changed = {name for name, value in self._state().items() if value != state[name]}
        # Once more: after a 421 Chromium tries again, so that as many answers as requests are not yet all.
        came = self._answers() - answers
        return Seen(shape, host, came, changed, {name: text for name, text in read.items() if text})

    def name_of(self, route: Route) -> str:
        """Under which `read` has it, in the newest run."""
        return f"{route.verb} {self._numbered(case_of(route)['path'])}"

    def _numbered(self, text: str) -> str:
        return text.replace("NUMBER", str(self._number))

    def _since(self, before: Counter[str], expected: int) -> Counter[str] | None:
        """What the daemon has answered to others than us, once it is as much as the page sent."""
        new = self._answers() - before
        return new if new.total() >= expected else None

    def _answers(self) -> Counter[str]:
        with Wire(self.daemon.http_socket) as wire:
            text = wire.ask("GET", "/metrics", []).body.decode()
        found = re.findall(r'^bascule_http_responses_total\{status="(\d+)"\} (\d+)$', text, re.MULTILINE)
        answers = Counter({status: int(count) for status, count in found})
        # Our own questions before this one; this one is not counted yet.
        answers["200"] -= self._asked
        self._asked += 1
        return answers

    def _state(self) -> dict[str, Any]:
        status = self._link.call("daemon.status")
        return {
            "ledger": (status["ledgerRecords"], status["ledgerHead"]),
            "agents": self._link.call("agents.list"),
            "tickets": self._link.call("tickets.list"),
            "counts": (status["agents"], status["agentsOnline"], status["tickets"], status["ticketsOpen"]),
        }


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    # The daemon listens on 127.0.0.1 alone: mapped, what is sent to [::1] reaches it as if it listened there too.
    # A process for each origin in a frame is slow, and a help to us that is not under test.
    with Chromium(
        f"--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP ::1 127.0.0.1", "--disable-site-isolation-trials"
    ) as browser:
        yield browser


@pytest.fixture
def attack(chromium: Chromium) -> Iterator[Callable[..., Attack]]:
    with contextlib.ExitStack() as stack:

        def start(**config: Any) -> Attack:
            folder = stack.enter_context(short_dir())
            daemon = stack.enter_context(Living(f"{folder}/s", mcp="on", calls_per_second=0, **config))
            return stack.enter_context(contextlib.closing(Attack(daemon, chromium)))

        yield start


def complaints(seen: Seen) -> list[str]:
    """What a page should not have got; nothing if all is well."""
    found = [f"{count} answers of {status}" for status, count in seen.answers.items() if status not in REFUSED]
    found += [f"{what} changed" for what in seen.changed]
    for case, text in seen.read.items():
        # A page at the rebound name may read that it is refused, and nothing else.
        refusal = seen.host == EVIL and any(message in text for message in REFUSALS)
        if not refusal or any(secret in text for secret in SECRETS):
            found.append(f"{case} read: {text[:100]}")
    return found


@pytest.mark.parametrize("auth", ["off", "on"])
def test_no_page_changes_or_reads_anything_by_any_name_in_any_shape(attack, auth):
    page = attack(auth=auth)
    # With auth off nothing but the gate is in the way, so that is where all hosts are tried.
    for host in HOSTS if auth == "off" or LONG else SOME_HOSTS:
        for shape in SHAPES:
            if shape in SLOW and not LONG and (auth == "on" or host not in SOME_HOSTS):
                continue
            assert complaints(page.run(shape, host)) == [], (shape, host)


def test_a_page_that_sends_the_person_there_shows_them_a_refusal(attack):
    page = attack(auth="off")
    for host in HOSTS:
        assert complaints(page.run("popup", host)) == [], host


def test_without_the_gate_the_same_page_changes_and_reads(attack):
    page = attack(auth="off", bug=NO_GATE)
    for host in HOSTS if LONG else SOME_HOSTS:
        for shape in SHAPES:
            if shape in SLOW and host != EVIL and not LONG:
                continue
            seen = page.run(shape, host)
            assert complaints(seen), (shape, host)
            if shape == "json" and host != EVIL:
                # Here the browser asks first, and we allow no page anything.
                assert set(seen.answers) == {"404", "405"}
                continue
            assert seen.admitted, (shape, host)
            assert ("ledger" in seen.changed) == (shape not in GETS), (shape, host)
            assert bool(seen.read) == (host == EVIL and shape in READERS), (shape, host)
            if shape in READERS - {"eventsource"} and host == EVIL:
                assert [secret for secret in SECRETS if secret in str(seen.read)]


def test_without_the_gate_and_with_any_type_of_body_no_route_is_safe(attack):
    """Each request of the matrix would have worked: what stops it above is not that it was badly made."""
    page = attack(auth="off", bug=NO_GATE_NO_TYPES)
    message = page.run("json", EVIL).read
    work = {route.method for route in BRIDGE_ROUTES}
    unserved = {route.method for route in ROUTES if not message[page.name_of(route)].startswith("2")}
    # The agent is not the sender, who alone withdraws; two want a session of MCP, and two are sent so that they fail.
    misfits = {"tickets.cancel", "mcp.get", "mcp.delete", "admin.stop", "admin.resume"}
    closed = [route for route in ROUTES if route.method in NO_AGENTS - misfits]
    assert unserved - work == misfits | {route.method for route in closed} - work
    # No agent is served there. Each was read first, and hears who may call it, not that it was badly made.
    for route in closed:
        answer = message[page.name_of(route)]
        assert answer.startswith("403"), (route, answer)
        assert f"may call {route.method}" in answer or f"may not call {route.method}" in answer, (route, answer)
    for name in ("admin.stop", "admin.resume"):
        (route,) = [each for each in ROUTES if each.method == name]
        assert message[page.name_of(route)].startswith("400"), "it was read: with other params it would have worked"
    # There is no such space and no such game, and no desktop is enabled: only the methods themselves can say so.
    for route in BRIDGE_ROUTES:
        answer = message[page.name_of(route)]
        assert not any(refusal in answer for refusal in REFUSALS), (route, answer)
        assert answer[:3] in ("200", "400", "403", "404", "409"), (route, answer)
    for shape in SHAPES[1:]:
        seen = page.run(shape, "127.0.0.1")
        # A GET takes messages out of the inbox for a while, and says that the agent is alive.
        assert seen.changed >= ({"agents"} if shape in GETS else {"ledger", "agents", "tickets"}), shape
