"""Ten thousand guesses at each door: none is right, all but a few are told 429 at once, and nobody else notices."""

import ast
import glob
import json
import os
import re
import time
from collections import Counter

import pytest
from living import Living, eventually, short_dir
from wires import Caller, LinkWire, Wire, request

import bascule
from bascule.kernel.identity.tokens import MAX_TOKEN_CHARS, WRONG_TOKEN_BURST, WRONG_TOKENS_PER_SECOND
from bascule.surfaces.http.connection import MAX_AHEAD
from gabp.content_length import frame

LONG = os.environ.get("BASCULE_LONG") == "1"
GUESSES = 1_000_000 if LONG else 10_000
BATCH = 250
# What the allocator may keep of a moment's work; ten thousand guesses remembered would be more.
MAX_GROWTH_BYTES = 8 * 1024 * 1024


@pytest.fixture
def attacked():
    with short_dir() as folder, Living(f"{folder}/s") as living:
        yield living


def guess(number: int, right: str) -> str:
    """Wrong in every way: random, the right one with a letter changed, cut, prolonged, empty but for spaces."""
    match number % 6:
        case 0:
            return f"{number:043d}"
        case 1:
            at = number % len(right)
            return right[:at] + ("A" if right[at] != "A" else "B") + right[at + 1 :]
        case 2:
            return right[: -1 - number % (len(right) - 1)]
        case 3:
            return right + right[: 1 + number % 40]
        case 4:
            return right.swapcase()
        case _:
            return "x" * (MAX_TOKEN_CHARS + number % 100)


def resident(daemon: Living) -> int:
    with open(f"/proc/{daemon.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_answers(counted: "Counter[int | str]", why: int | str, seconds: float) -> None:
    """Only so many are told that the token is wrong: the burst, and one a second after it."""
    most = WRONG_TOKEN_BURST + WRONG_TOKENS_PER_SECOND * seconds + 1
    assert WRONG_TOKEN_BURST <= counted[why] <= most, counted


def check_log(daemon: Living, door: str, counted: int, honest: int, secrets: list[str]) -> None:
    """Stopped, so that everything is written: a line for each that was told why or served, and no token in it."""
    assert daemon.stop() == 0
    written = daemon.log() + daemon.terminal()
    lines = [json.loads(line) for line in daemon.log().splitlines()]
    assert len([line for line in lines if line["event"] == "wrong_token" and line["door"] == door]) == counted
    assert len(lines) < counted + honest + 200
    assert [secret for secret in secrets if secret in written] == []


def test_ten_thousand_guesses_over_http_open_nothing_and_slow_down_nobody(attacked):
    local = Caller(attacked)
    agent = local.register("Jerry")
    counted: Counter[int | str] = Counter()
    first: list[int] = []
    served: Counter[int] = Counter()
    began = time.monotonic()
    guessers = [Wire(attacked.tcp) for _ in range(4)]
    owner = Wire(attacked.tcp)
    before = 0
    for batch in range(GUESSES // BATCH):
        wire = guessers[batch % len(guessers)]
        guesses = [guess(batch * BATCH + each, agent.token) for each in range(BATCH)]
        heads = [[("Host", attacked.host), ("Authorization", f"Bearer {each}")] for each in guesses]
        answers = []
        # As many at a time as may be sent ahead.
        for start in range(0, BATCH, MAX_AHEAD):
            some = heads[start : start + MAX_AHEAD]
            wire.send(b"".join(request("GET", "/status", head) for head in some))
            if not start:
                # From the same address, while the guesses are being answered.
                served.update(owner.ask("GET", "/status", each.headers).status for each in (local, agent))
            answers += [wire.answer() for _ in some]
        counted.update(answer.status for answer in answers)
        if not first:
            first = [answer.status for answer in answers]
            before = resident(attacked)
        refused = [answer for answer in answers if answer.status == 429]
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert {answer.error["code"] for answer in refused} <= {"overloaded"}
    took = time.monotonic() - began
    assert resident(attacked) - before < MAX_GROWTH_BYTES
    assert set(counted) == {401, 429}
    # At once: those behind the burst do not wait for a second look.
    assert first[:WRONG_TOKEN_BURST] == [401] * WRONG_TOKEN_BURST
    assert first.index(429) <= WRONG_TOKEN_BURST + WRONG_TOKENS_PER_SECOND * took
    check_answers(counted, 401, took)
    assert served == {200: 2 * (GUESSES // BATCH)}
    # And after a moment of quiet an honest mistake is explained again.
    wrong = [("Host", attacked.host), ("Authorization", "Bearer mistyped")]
    eventually(lambda: owner.ask("GET", "/status", wrong).status == 401, "the door explains again")
    for each in (*guessers, owner):
        each.close()
    check_log(attacked, "tcp", counted[401] + 1, served.total(), [local.token, agent.token])


def test_ten_thousand_guesses_over_link_open_nothing_and_slow_down_nobody(attacked):
    local = Caller(attacked)
    agent = local.register("Jerry")
    counted: Counter[int | str] = Counter()
    began = time.monotonic()
    before = 0
    # Who is in already may go on guessing on one connection; it stays who it was.
    with LinkWire(attacked.link_socket).hello() as guesser, LinkWire(attacked.link_socket) as owner:
        for batch in range(GUESSES // BATCH):
            ids = range(batch * BATCH, (batch + 1) * BATCH)
            guesser.send_bytes(b"".join(frame(hello(id_, guess(id_, agent.token))) for id_ in ids))
            owner.hello(agent.token)
            owner.hello(local.token)
            counted.update(guesser.answer(id_)["error"]["data"]["code"] for id_ in ids)
            before = before or resident(attacked)
        assert guesser.call("daemon.status")["principal"] == "local"
    took = time.monotonic() - began
    assert resident(attacked) - before < MAX_GROWTH_BYTES
    assert set(counted) == {"unauthenticated", "overloaded"}
    check_answers(counted, "unauthenticated", took)
    check_log(attacked, "link", counted["unauthenticated"], 2 * (GUESSES // BATCH), [local.token, agent.token])


def test_over_link_a_wrong_token_ends_a_connection_that_is_nobodys(attacked):
    local = Caller(attacked)
    codes = set()
    for number in range(200):
        with LinkWire(attacked.link_socket) as wire:
            codes.add(
                wire.refusal("hello", {"protocol": 1, "version": "x", "token": guess(number, local.token)})["code"]
            )
            assert wire.read() is None
    assert codes == {"unauthenticated", "overloaded"}
    LinkWire(attacked.link_socket).hello(local.token).close()
    eventually(lambda: local.gauge("bascule_link_connections") == 0, "all are gone")


def hello(id_: int, token: str) -> bytes:
    params = {"protocol": 1, "version": "x", "token": token}
    return json.dumps({"jsonrpc": "2.0", "id": id_, "method": "hello", "params": params}).encode()


# -- comparing ------------------------------------------------------------------------------------

SECRET = re.compile(r"(^|_)(token|secret|passphrase|bearer|authorization|credential)s?(_hash)?$")
# Those hold tokens of their own; nobody's guess comes to them.
CLIENTS = ("programs/helpers/", "programs/mcp_stdio/", "local_client/", "client/", "cli/")


def name_of(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.Call(func=function):
            return name_of(function)
        case _:
            return ""


def leaky(source: str) -> list[str]:
    """Comparisons whose time tells how far a secret agreed."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=rest):
                by_value = any(isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in ops)
                sides = [left, *rest]
            case ast.Call(func=ast.Attribute(value=value, attr="startswith" | "endswith" | "find" | "index" | "count")):
                by_value, sides = True, [value]
            case ast.MatchValue() | _:
                continue
        if by_value and any(SECRET.search(name_of(side)) for side in sides):
            found.append(ast.unparse(node))
    return found


def test_no_secret_is_compared_in_a_way_that_takes_longer_the_more_agrees():
    root = os.path.dirname(bascule.__file__)
    seen = {}
    for path in glob.glob("**/*.py", root_dir=root, recursive=True):
        if not path.startswith(CLIENTS):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                seen[path] = leaky(file.read())
    assert len(seen) > 50
    assert {path: found for path, found in seen.items() if found} == {}


@pytest.mark.parametrize(
    "line",
    [
        "ok = token == self._local_token",
        "ok = known != params['token']",
        "if token_hash in (self.local_token_hash, other): pass",
        "ok = token.startswith(guess)",
        "ok = read_token() == guess",
    ],
)
def test_the_check_for_leaky_comparisons_finds_each_kind(line):
    assert leaky(line)


def test_the_local_token_is_compared_by_its_digest_in_constant_time(monkeypatch):
    from bascule.kernel.identity import principals
    from bascule.kernel.identity.tokens import TokenBook, hash_token

    compared = []

    def seen(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(principals, "compare_digest", seen)
    stored = hash_token("right")
    for token in ("right", "r", "x" * 200):
        try:
            principals.identify("tcp", f"Bearer {token}", TokenBook(), stored, auth_on=True)
        except principals.WrongToken:
            continue
    # Whatever is sent, what is compared has one length.
    assert compared == [(64, 64)] * 3
