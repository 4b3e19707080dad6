"""The calls that agents make most, against a plain model: answers, tables, ledger and the order of refusals.

The stories are random and repeatable. That they would find a fault is shown with faults that are planted here.
"""

import asyncio
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
    """A daemon with an agent that asks over HTTP, over the link, and with the tools of MCP."""

    def __init__(self, directory, log):
        config = from_values({"port": 0, "durability": "memory"})
        self.daemon = Daemon(config, directory, SystemClock(), log, MemoryStore(reopens=False), config_dir=directory)
        self.tokens = {name: self._register(name) for name in ("Ann", "Bob")}
        self.last = 0
        self.http_wire, self.mcp_wire = RawWire(), AwaitedWire()
        self.http = HttpDoor(self.daemon.web_app("unix"), None)._connection()
        self.http.connection_made(self.http_wire)
        self.mcp = self.daemon.link_connection()
        self.mcp.connection_made(self.mcp_wire)
        self._say("hello", {"protocol": PROTOCOL_VERSION, "version": __version__, "token": self.tokens["Ann"]})
        self._say("mcp.open", {"toolsets": ["agents"], "trust": DEFAULT_TRUST})
        self.mcp_wire.bodies.clear()
        self.mcp_wire.came.clear()

    def _register(self, name):
        params = codec.Raw(codec.encode({"agentId": name}))
        return self.daemon.gate.call(Call(LOCAL, "agents.register", params, door="link")).agent_token

    def _say(self, method, params):
        self.last += 1
        self.mcp.data_received(frame(jsonrpc.request(self.last, method, codec.encode(params))))

    def send_by_http(self):
        self.daemon.turns._renew()
        body = b'{"payload":"a"}'
        head = f"POST /agents/Bob/send HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.tokens['Ann']}\r\n"
        rest = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        self.http.data_received((head + rest).encode() + body)
        assert self.http_wire.written.pop().startswith(b"HTTP/1.1 200")

    async def send_by_tool(self):
        self.daemon.turns._renew()
        message = {"agentId": "Bob", "payload": "a", "awaitResponse": False}
        asked = {"id": self.last, "method": "tools/call", "params": {"name": "send_message", "arguments": message}}
        self._say("mcp.request", {"call": f"call{self.last}", "leftMs": LONG_WAIT, "message": asked})
        async with asyncio.timeout(PATIENCE):
            await self.mcp_wire.came.wait()
        self.mcp_wire.came.clear()
        assert b"ticketId" in self.mcp_wire.bodies.pop()

    def close(self):
        self.http.connection_lost(None)
        self.mcp.connection_lost(None)
        self.http_wire.close()
        self.mcp_wire.close()


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
def test_nearly_every_message_sent_at_a_door_takes_the_short_way(door, tmp_path, monkeypatch):
    counts = Counter()
    long_ways = [(jsonrpc, "parse"), (Policy, "_decide_anew"), (Gate, "_start")]
    log = DaemonLog(SystemClock(), path=None, form="off")

    async def inside():
        doors = Doors(str(tmp_path), log)
        for owner, name in [(Gate, "call"), (Gate, "_change"), *long_ways]:
            monkeypatch.setattr(owner, name, counted(counts, name, getattr(owner, name)))
        for _ in range(50):
            if door == "http":
                doors.send_by_http()
            else:
                await doors.send_by_tool()
        monkeypatch.undo()
        doors.close()
        await doors.daemon.close()

    try:
        asyncio.run(inside())
    finally:
        log.close()
    assert counts["_change"] == 50
    assert counts["call"] >= 50
    assert sum(counts[name] for _, name in long_ways) < counts["call"] / 10
