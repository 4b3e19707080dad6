"""The calls that agents make most, against a plain model: answers, tables, ledger and the order of refusals.

The stories are random and repeatable. That they would find a fault is shown with faults that are planted here.
"""

import asyncio
import json
from collections import Counter

import pytest
from hot_story import LONG_WAIT, POLICY, Story, Wire, play

from bascule import __version__
from bascule.broker.tickets import Tickets
from bascule.broker.waits import Waits
from bascule.daemon.compose import Daemon
from bascule.daemon.config import from_values
from bascule.daemon.logs import DaemonLog
from bascule.daemon.quota import CallQuota
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.foundation.clock import SystemClock
from bascule.foundation.errors import Conflict, Forbidden, TooLarge
from bascule.kernel.call import LOCAL, Call, Principal, subject_of
from bascule.kernel.gate import Gate
from bascule.kernel.journal import AfterCommit, Transaction
from bascule.kernel.policy.engine import Policy
from bascule.kernel.rows import Effect
from bascule.programs.mcp_stdio.words import DEFAULT_TRUST
from bascule.stores.memory import MemoryStore
from bascule.surfaces.http.server import HttpDoor
from bascule.surfaces.link import LinkConnections
from bascule.wire import jsonrpc
from gabp import codec
from gabp.content_length import frame
from patience import PATIENCE

ROUNDS = 60


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_random_calls_are_answered_and_kept_as_the_model_says(first):
    play_all(range(first, first + 15))


def play_all(seeds):
    for seed in seeds:
        play(seed, ROUNDS)


# -- planted faults --


def owner_before_quota(monkeypatch):
    admit = Gate._admit

    def wrong(self, call, method, *rest, **options):
        if method.ownership is not None:
            method.ownership(call.principal, call.params)
        return admit(self, call, method, *rest, **options)

    monkeypatch.setattr(Gate, "_admit", wrong)


def policy_before_owner(monkeypatch):
    admit = Gate._admit

    def wrong(self, call, method, *rest, **options):
        verdict = admit(self, call, method._replace(ownership=None), *rest, **options)
        if method.ownership is not None:
            try:
                method.ownership(call.principal, call.params)
            except Forbidden as error:
                self._record_refusal(call, method.row, error, subject_of(call.params))
                raise
        return verdict

    monkeypatch.setattr(Gate, "_admit", wrong)


def limits_first(monkeypatch):
    call = Gate.call

    def wrong(self, made):
        if len(getattr(made.params, "payload", None) or "") > 6:
            raise TooLarge("too long")
        return call(self, made)

    monkeypatch.setattr(Gate, "call", wrong)


def room_before_retry(monkeypatch):
    retry_of = Tickets._retry_of

    def wrong(self, ticket_id, sender, digest):
        if self._state.open_by_sender.get(sender, 0) >= self._state.limits.max_open_tickets:
            raise Conflict("no room")
        return retry_of(self, ticket_id, sender, digest)

    monkeypatch.setattr(Tickets, "_retry_of", wrong)


def nothing_is_undone(monkeypatch):
    monkeypatch.setattr(Transaction, "undo", lambda _self: None)


def indexes_are_not_undone(monkeypatch):
    def wrong(self):
        for table, key, old, _ in reversed(self.puts):
            if old is None:
                table.rows.pop(key, None)
            else:
                table.rows[key] = old
        self.puts.clear()

    monkeypatch.setattr(Transaction, "undo", wrong)


def one_table_is_not_undone(monkeypatch):
    def wrong(self):
        for table, key, old, _ in reversed(self.puts):
            if table.name != "messages":
                table.apply(key, old)
        self.puts.clear()

    monkeypatch.setattr(Transaction, "undo", wrong)


def undone_in_the_wrong_order(monkeypatch):
    def wrong(self):
        for table, key, old, _ in self.puts:
            table.rows.pop(key, None) if old is None else table.apply(key, old)
        self.puts.clear()

    monkeypatch.setattr(Transaction, "undo", wrong)


def answered_before_it_is_durable(monkeypatch):
    def wrong(self, _call, tx, _rule, answer):
        self.journal.commit(tx, _call.principal, _call.method, "ok", _rule)
        return answer

    monkeypatch.setattr(Gate, "_commit", wrong)


def refusal_is_not_recorded(monkeypatch):
    monkeypatch.setattr(Gate, "_record_refusal", lambda *_: None)


def refusal_ignores_what_is_under_way(monkeypatch):
    monkeypatch.setattr(AfterCommit, "undone", lambda self, _error: None if self.done() else self.landed())


def waiter_is_not_answered(monkeypatch):
    monkeypatch.setattr(Waits, "settled", lambda _self, _ticket: None)


def quota_is_not_taken(monkeypatch):
    monkeypatch.setattr(CallQuota, "take", lambda *_: None)


def denied_is_allowed(monkeypatch):
    allowed = POLICY.decide(Principal("agent:Ann"), "messages.send", Effect.MESSAGE, dict)
    monkeypatch.setattr(Gate, "_decide", lambda *_: allowed)


def waits_do_not_end(monkeypatch):
    monkeypatch.setattr(Waits, "_nothing_yet", lambda *_: None)


def revoked_agent_goes_on(monkeypatch):
    monkeypatch.setattr(LinkConnections, "drop", lambda *_: None)


FAULTS = [
    *(owner_before_quota, policy_before_owner, limits_first, room_before_retry),
    *(nothing_is_undone, indexes_are_not_undone, one_table_is_not_undone, undone_in_the_wrong_order),
    *(answered_before_it_is_durable, refusal_is_not_recorded, refusal_ignores_what_is_under_way),
    *(waiter_is_not_answered, quota_is_not_taken, denied_is_allowed, waits_do_not_end, revoked_agent_goes_on),
]


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        play_all(range(40))


# -- the share of calls that take the short way --


def test_nearly_every_call_of_an_ask_takes_the_short_way(monkeypatch):
    """Decoded in one pass, judged from the cache, executed without a task."""
    counts = Counter()
    long_ways = [(jsonrpc, "parse"), (Policy, "_decide_anew"), (Gate, "_start")]
    for owner, name in [(Gate, "call"), *long_ways]:
        monkeypatch.setattr(owner, name, counted(counts, name, getattr(owner, name)))
    story = Story(0)
    story.house.gate._quota._per_second = 0
    try:
        counts.clear()
        for number in range(50):
            ask(story, f"ask{number}")
    finally:
        story.close()
    assert counts["call"] >= 50 * 6
    assert sum(counts[name] for _, name in long_ways) < counts["call"] / 10


def counted(counts, name, real):
    def call(*args, **options):
        counts[name] += 1
        return real(*args, **options)

    return call


def ask(story, ticket):
    def call(agent, method, params):
        story.last += 1
        body = jsonrpc.request(story.last, method, codec.encode(params))
        story.house.run(lambda: story.links[agent][0].data_received(frame(body)))

    call("Bob", "inbox.take", {"agentId": "Bob", "waitMs": LONG_WAIT})
    call("Ann", "messages.send", {"agentId": "Bob", "payload": "a", "ticketId": ticket, "waitMs": LONG_WAIT})
    call("Bob", "inbox.ack", {"agentId": "Bob", "ticketIds": [ticket]})
    call("Bob", "replies.post", {"ticketId": ticket, "payload": "b"})
    call("Ann", "replies.wait", {"ticketId": ticket})
    call("Bob", "agents.heartbeat", {"agentId": "Bob"})


# -- the same at each door of a daemon --


class Doors:
    """A daemon with two agents that ask and answer over HTTP, or with the tools of MCP."""

    def __init__(self, directory, log):
        config = from_values({"port": 0, "durability": "memory"})
        self.daemon = Daemon(config, directory, SystemClock(), log, MemoryStore(reopens=False), config_dir=directory)
        self.tokens = {name: self._register(name) for name in ("Ann", "Bob")}
        self.last = 0
        self.http_wire = RawWire()
        self.http = HttpDoor(self.daemon.web_app("unix"), None).make_connection()
        self.http.connection_made(self.http_wire)
        self.mcp = {name: self._open_mcp(name) for name in self.tokens}

    def _register(self, name):
        params = codec.Raw(codec.encode({"agentId": name}))
        return self.daemon.gate.call(Call(LOCAL, "agents.register", params, door="link")).agent_token

    def _open_mcp(self, name):
        link, wire = self.daemon.link_connection(), AwaitedWire()
        link.connection_made(wire)
        self._say(link, "hello", {"protocol": PROTOCOL_VERSION, "version": __version__, "token": self.tokens[name]})
        self._say(link, "mcp.open", {"toolsets": ["agents"], "trust": DEFAULT_TRUST})
        wire.bodies.clear()
        wire.came.clear()
        return link, wire

    def _say(self, link, method, params):
        self.last += 1
        link.data_received(frame(jsonrpc.request(self.last, method, codec.encode(params))))

    async def ask_by_http(self):
        ticket = self._request("Ann", "POST /agents/Bob/send", {"payload": "a"})["ticketId"]
        self._request("Bob", "GET /agents/Bob/inbox")
        self._request("Bob", "POST /agents/Bob/inbox/ack", {"ticketIds": [ticket]})
        self._request("Bob", "POST /replies", {"ticketId": ticket, "payload": "b"})
        assert self._request("Ann", f"GET /replies/{ticket}")["payload"] == "b"
        self._request("Bob", "POST /agents/Bob/heartbeat")

    def _request(self, name, line, content=None):
        self.daemon.turns._renew()
        body = b"" if content is None else codec.encode(content)
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.tokens[name]}\r\n"
        rest = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n" if line[0] == "P" else "\r\n"
        self.http.data_received((head + rest).encode() + body)
        head, _, body = self.http_wire.written.pop().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 20")
        return json.loads(body or b"null")

    async def ask_by_tool(self):
        ticket = (await self._use("Ann", "send_message", agentId="Bob", payload="a", awaitResponse=False))["ticketId"]
        assert (await self._use("Bob", "wait_for_message", waitMs=0))["ticketId"] == ticket
        await self._use("Bob", "post_reply", ticketId=ticket, payload="b")
        assert (await self._use("Ann", "await_reply", ticketId=ticket))["payload"] == "b"

    async def _use(self, name, tool, **arguments):
        self.daemon.turns._renew()
        link, wire = self.mcp[name]
        asked = {"id": self.last, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        call = f"call{self.last}"
        self._say(link, "mcp.request", {"call": call, "leftMs": LONG_WAIT, "message": asked})
        async with asyncio.timeout(PATIENCE):
            await wire.came.wait()
        wire.came.clear()
        answer = json.loads(wire.bodies.pop())["result"]["message"]["result"]
        assert not answer.get("isError"), answer
        link.data_received(frame(jsonrpc.notification("mcp.done", codec.encode({"call": call}))))
        return answer["structuredContent"]

    def close(self):
        self.http.connection_lost(None)
        self.http_wire.close()
        for link, wire in self.mcp.values():
            link.connection_lost(None)
            wire.close()


class RawWire(Wire):
    def __init__(self):
        super().__init__()
        self.written = []

    def write(self, data):
        self.written.append(data)


class AwaitedWire(Wire):
    def __init__(self):
        super().__init__()
        self.came = asyncio.Event()

    def write(self, data):
        super().write(data)
        self.came.set()


@pytest.mark.parametrize("door", ["http", "tool"])
def test_nearly_every_call_of_an_ask_at_a_door_takes_the_short_way(door, tmp_path, monkeypatch):
    counts = Counter()
    long_ways = [(Policy, "_decide_anew"), (Gate, "_start")]
    log = DaemonLog(SystemClock(), path=None, form="off")
    parse = jsonrpc.parse

    def parsed(body):
        # `mcp.done` is a notification, which has no shorter way.
        message = parse(body)
        counts["parse"] += isinstance(message, jsonrpc.Request)
        return message

    async def inside():
        doors = Doors(str(tmp_path), log)
        for owner, name in [(Gate, "call"), (Gate, "_change"), *long_ways]:
            monkeypatch.setattr(owner, name, counted(counts, name, getattr(owner, name)))
        monkeypatch.setattr(jsonrpc, "parse", parsed)
        for _ in range(50):
            await (doors.ask_by_http() if door == "http" else doors.ask_by_tool())
        monkeypatch.undo()
        doors.close()
        await doors.daemon.close()

    try:
        asyncio.run(inside())
    finally:
        log.close()
    # Send, ack and reply change something; take, wait and, over HTTP, the heartbeat do not.
    assert counts["_change"] == 50 * 3
    assert counts["call"] >= 50 * (6 if door == "http" else 5)
    assert sum(counts[name] for name in ("parse", "_decide_anew", "_start")) < counts["call"] / 10
