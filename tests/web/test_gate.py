"""In front of every route, on the real port: a web page, a wrong address or a wrong token gets nothing.

The routes come from the table the daemon serves, so a new one is covered the moment it is added.
"""

import json
import re

import pytest
from living import Living, eventually, short_dir
from wires import Caller, Wire, request

from bascule.bridge_list import methods_of
from bascule.daemon.compose import routes_of
from bascule.kernel.route import Route
from bascule.kernel.rows import WhoKind

ROUTES = routes_of()
ROWS = methods_of()

# Bodies that would change something if they got through; a route without one here gets `{}`.
BODIES = {
    "agents.register": {"agentId": "Intruder"},
    "messages.send": {"payload": "hello"},
    "messages.broadcast": {"payload": "hello"},
    "replies.post": {"ticketId": "t-1", "payload": "hello"},
    "inbox.ack": {"ticketIds": ["t-1"]},
    # Refused by their own params: everything would be stopped for the other tests, and the person alone resumes.
    "admin.stop": {"reason": 5},
    "admin.resume": {"unknown": 1},
}
NAMES = {
    "agentId": "Jerry",
    "ticketId": "t-1",
    "conversationId": "c-1",
    "spaceId": "spc_1",
    "runId": "run_1",
    "processId": "prc_1",
    "gameId": "burrow",
    "tool": "burrow/look",
    "path": "src/a.txt",
    "approvalId": "apr_1",
    "executionId": "exe_1",
    "what": "Jerry",
    "passkeyId": "pky_1",
    "node": "laptop",
    "session": "ses_1",
    "client": "Weather",
}


def path_of(route: Route) -> str:
    path = re.sub(r"\{(\w+)(?:\.\.\.)?\}", lambda found: NAMES[found[1]], route.path)
    return path + "?waitMs=0" if route.method in ("inbox.take", "inbox.watch", "replies.wait") else path


def name_of(route: Route) -> str:
    return f"{route.verb} {route.path}"


# Routes that no agent may use.
FOR_THE_USER = {row.name for row in ROWS if row.who.kind is WhoKind.LOCAL}
# Routes that no token opens: they say so, to whom they know.
FOR_THE_PERSON = {row.name for row in ROWS if row.who.kind is WhoKind.PERSON}


@pytest.fixture(scope="module")
def jerry(daemon) -> Caller:
    """The token with which every route answers: one side of ticket t-1 and of conversation c-1."""
    agent = Caller(daemon).register("Jerry")
    agent.send("Jerry", ticketId="t-1", conversationId="c-1")
    return agent


def fill(text: str, daemon: Living, token: str) -> str:
    return text.replace("PORT", str(daemon.port)).replace("TOKEN", token)


HOST = ("Host", "127.0.0.1:PORT")
BEARER = ("Authorization", "Bearer TOKEN")
# A wrong token is told 401, and once there were many of them 429.
WRONG = {401, 429}

REFUSALS = {
    "a rebound name": ([("Host", "evil.test:PORT"), BEARER], {421}),
    "the right address without its port": ([("Host", "127.0.0.1"), BEARER], {421}),
    "the address of all interfaces": ([("Host", "0.0.0.0:PORT"), BEARER], {421}),
    "another port": ([("Host", "127.0.0.1:1"), BEARER], {421}),
    "our name as the start of another": ([("Host", "127.0.0.1:PORT.evil.test"), BEARER], {421}),
    "a user part before our name": ([("Host", "evil@127.0.0.1:PORT"), BEARER], {421}),
    "no Host": ([BEARER], {421}),
    "an empty Host": ([("Host", ""), BEARER], {421}),
    "two Hosts, the right one first": ([HOST, ("Host", "evil.test:PORT"), BEARER], {421}),
    "the right Host twice": ([HOST, HOST, BEARER], {421}),
    "an Origin": ([HOST, BEARER, ("Origin", "http://evil.test")], {403}),
    "an opaque Origin": ([HOST, BEARER, ("Origin", "null")], {403}),
    "an empty Origin": ([HOST, BEARER, ("Origin", "")], {403}),
    "our own address as Origin": ([HOST, BEARER, ("Origin", "http://127.0.0.1:PORT")], {403}),
    "a page of another site": ([HOST, BEARER, ("Sec-Fetch-Site", "cross-site")], {403}),
    "a page of the same site": ([HOST, BEARER, ("Sec-Fetch-Site", "same-site")], {403}),
    "a page of our own": ([HOST, BEARER, ("Sec-Fetch-Site", "same-origin")], {403}),
    "no token": ([HOST], {401}),
    "an empty Authorization": ([HOST, ("Authorization", "")], {401}),
    "a scheme without a token": ([HOST, ("Authorization", "Bearer")], {401}),
    "a token without a scheme": ([HOST, ("Authorization", "TOKEN")], {401}),
    "another scheme": ([HOST, ("Authorization", "Basic TOKEN")], {401}),
    "a wrong token": ([HOST, ("Authorization", "Bearer wrong")], WRONG),
    "the right token and more": ([HOST, ("Authorization", "Bearer TOKEN more")], WRONG),
    "the start of the right token": ([HOST, ("Authorization", "Bearer TOKE")], WRONG),
    "two Authorizations": ([HOST, ("Authorization", "Bearer wrong"), BEARER], {400}),
    "the token in a cookie": ([HOST, ("Cookie", "token=TOKEN")], {401}),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_every_route_refuses_before_the_body_and_changes_nothing(daemon, jerry, refusal):
    headers, expected = REFUSALS[refusal]
    filled = [(name, fill(value, daemon, jerry.token)) for name, value in headers]
    before = held(daemon)
    seen = {}
    for route in ROUTES:
        with Wire(daemon.tcp) as wire:
            announced = [] if route.verb == "GET" else [("Content-Type", "application/json"), ("Content-Length", "99")]
            # The announced body never comes: whoever answers now has not waited for it.
            wire.send(request(route.verb, path_of(route), [*filled, *announced]))
            answer = wire.answer()
        seen[name_of(route)] = answer.status
        assert answer.error
    assert {name: status for name, status in seen.items() if status not in expected} == {}
    assert held(daemon) == before


def held(daemon: Living) -> dict[str, object]:
    """What would differ if anything had happened, asked at the door that needs no token."""
    with Wire(daemon.http_socket) as wire:
        status = wire.ask("GET", "/status", []).json
    return {name: status[name] for name in ("ledgerRecords", "ledgerHead", "agents", "tickets")}


@pytest.mark.parametrize("route", ROUTES, ids=name_of)
def test_with_the_right_headers_every_route_answers(daemon, jerry, route):
    body = None if route.verb == "GET" else json.dumps(BODIES.get(route.method, {})).encode()
    caller = Caller(daemon) if route.method in FOR_THE_USER else jerry
    with Wire(daemon.tcp) as wire:
        wire.send(request(route.verb, path_of(route), [*caller.headers, ("Content-Type", "application/json")], body))
        status, headers = wire.head()
    assert status not in (401, 421, 426)
    assert status != 403 or route.method in FOR_THE_PERSON
    assert status < 500
    assert headers["bascule-version"]
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_each_name_of_loopback_is_served(daemon, host):
    with Wire(daemon.tcp) as wire:
        headers = [("Host", f"{host}:{daemon.port}"), ("Authorization", f"Bearer {daemon.token}")]
        assert wire.ask("GET", "/healthz", headers).status == 200


def test_an_address_typed_by_a_person_is_no_page(daemon):
    with Wire(daemon.tcp) as wire:
        assert wire.ask("GET", "/healthz", [*Caller(daemon).headers, ("Sec-Fetch-Site", "none")]).status == 200


@pytest.mark.parametrize("path", ["/events", "/healthz", "/agents/Jerry/inbox/stream"])
@pytest.mark.parametrize("origin", [[], [("Origin", "http://evil.test")]], ids=["a program", "a page"])
def test_no_upgrade_to_a_websocket_is_ever_made(daemon, jerry, path, origin):
    upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]
    with Wire(daemon.tcp) as wire:
        wire.send(request("GET", path, [*jerry.headers, *upgrade, *origin]))
        status, headers = wire.head()
    assert "upgrade" not in headers
    assert status == (403 if origin else 200)


def test_at_the_unix_socket_host_and_origin_mean_nothing(daemon):
    with Wire(daemon.http_socket) as wire:
        page = [("Host", "evil.test"), ("Origin", "http://evil.test"), ("Sec-Fetch-Site", "cross-site")]
        assert wire.ask("GET", "/status", page).json["principal"] == "local"
        assert wire.ask("GET", "/status", []).json["principal"] == "local"


def test_a_wrong_token_at_the_unix_socket_is_no_downgrade_to_local(daemon):
    with Wire(daemon.http_socket) as wire:
        assert wire.ask("GET", "/status", [("Authorization", "Bearer wrong")]).status in WRONG


def test_an_agents_token_makes_the_agent_at_every_door(daemon, jerry):
    assert jerry.get("/status").json["principal"] == "agent:Jerry"
    with Wire(daemon.http_socket) as wire:
        assert wire.ask("GET", "/status", jerry.headers).json["principal"] == "agent:Jerry"


def test_a_helper_of_another_protocol_version_is_told_to_match(daemon):
    with Wire(daemon.tcp) as wire:
        answer = wire.ask("GET", "/status", [*Caller(daemon).headers, ("Bascule-Protocol", "2")])
    assert answer.status == 426
    assert answer.error["code"] == "version_mismatch"
    assert "bascule down && bascule up -d" in answer.error["message"]


def test_a_thousand_wrong_tokens_open_nothing_and_throttle_only_themselves():
    with short_dir() as folder, Living(f"{folder}/s") as daemon:
        right = Caller(daemon)
        agent = right.register("Jerry")
        guesses = [f"guess-{number}-{'x' * 32}" for number in range(1_000)]
        wrong, refused, hints = [], [], []
        with Wire(daemon.tcp) as guesser, Wire(daemon.tcp) as owner:
            for number, guess in enumerate(guesses):
                answer = guesser.ask("GET", "/status", [("Host", daemon.host), ("Authorization", f"Bearer {guess}")])
                wrong.append(answer.status)
                if answer.status == 429:
                    hints.append(int(answer.headers["retry-after"]))
                if number % 50 == 0:
                    refused += [owner.ask("GET", "/status", each.headers).status for each in (right, agent)]
        assert set(wrong) == WRONG
        assert wrong.index(429) <= 20
        assert min(hints) >= 1
        assert set(refused) == {200}
        # Stopped, so that everything is written.
        assert daemon.stop() == 0
        written = daemon.log() + daemon.terminal()
        assert "wrong_token" in written
        assert [secret for secret in (right.token, agent.token, *guesses) if secret in written] == []


def test_a_flood_of_wrong_tokens_does_not_flood_the_log():
    # identity.tokens says why guessing is throttled: "log and CPU stay free for the others".
    with short_dir() as folder, Living(f"{folder}/s") as daemon:
        with Wire(daemon.tcp) as wire:
            for _ in range(300):
                wire.ask("GET", "/status", [("Host", daemon.host), ("Authorization", "Bearer wrong")])
        daemon.stop()
        assert daemon.log().count('"wrong_token"') < 50


@pytest.fixture(scope="module")
def open_daemon():
    with short_dir() as folder, Living(f"{folder}/s", auth="off") as living:
        yield living


def test_with_auth_off_a_request_without_a_token_is_local(open_daemon):
    with Wire(open_daemon.tcp) as wire:
        assert wire.ask("GET", "/status", [("Host", open_daemon.host)]).json["principal"] == "local"


@pytest.mark.parametrize("refusal", [name for name, (_, statuses) in REFUSALS.items() if statuses & {403, 421}])
def test_with_auth_off_host_and_origin_are_still_checked_on_every_route(open_daemon, refusal):
    headers, expected = REFUSALS[refusal]
    filled = [(name, fill(value, open_daemon, "")) for name, value in headers if name != "Authorization"]
    seen = {}
    for route in ROUTES:
        with Wire(open_daemon.tcp) as wire:
            wire.send(request(route.verb, path_of(route), filled))
            seen[name_of(route)] = wire.answer().status
    assert {name: status for name, status in seen.items() if status not in expected} == {}


def test_with_auth_off_a_token_that_is_presented_is_still_judged(open_daemon):
    with Wire(open_daemon.tcp) as wire:
        headers = [("Host", open_daemon.host), ("Authorization", "Bearer wrong")]
        assert wire.ask("GET", "/status", headers).status == 401


def test_refused_requests_are_counted(daemon):
    def refused() -> int:
        text = Caller(daemon).get("/metrics").body.decode()
        found = re.search(r'^bascule_http_responses_total\{status="421"\} (\d+)$', text, re.MULTILINE)
        return int(found[1]) if found else 0

    before = refused()
    with Wire(daemon.tcp) as wire:
        assert wire.ask("GET", "/healthz", [("Host", "evil.test")]).status == 421
    assert eventually(lambda: refused() == before + 1, "one more 421")
