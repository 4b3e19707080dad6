"""Random calls over real link connections, compared with `hot_model` after each round."""

import contextlib
import json
import random
import socket

import pytest
from hot_model import (
    AGENTS,
    BURST,
    DENIED,
    MAX_BYTES,
    MAX_KEPT,
    MAX_OPEN,
    MAX_PER_SENDER,
    MAX_REPLIES,
    PER_SECOND,
    Model,
    Refused,
)

from bascule import __version__
from bascule.broker.limits import BrokerLimits
from bascule.daemon.quota import CallQuota
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.kernel.call import Principal
from bascule.kernel.ledger import read_record
from bascule.kernel.policy.decision import Decision
from bascule.kernel.policy.engine import Policy
from bascule.kernel.policy.rules import Rule
from bascule.surfaces.fair_share import FairShare
from bascule.surfaces.link import LinkConnection, LinkConnections
from bascule.testing.house import House
from bascule.testing.stores import HeldStore
from bascule.wire import jsonrpc
from gabp import codec
from gabp.content_length import FrameReader, frame

IDS = [f"t{number}" for number in range(10)]
LONG_WAIT = 30_000
SHORT_WAIT = 2_000
LIMITS = BrokerLimits(
    max_payload_bytes=MAX_BYTES,
    max_open_tickets=MAX_OPEN,
    max_replies=MAX_REPLIES,
    max_kept_messages=MAX_KEPT,
    max_inbox_messages_per_sender=MAX_PER_SENDER,
    default_timeout_ms=10**9,
    lease_ms=10**9,
    ticket_ttl_ms=10**9,
)
POLICY = Policy(
    [
        Rule(name="all", decision=Decision.ALLOW, reason="for these tests"),
        Rule(
            name="mute", decision=Decision.DENY, reason="it is mute", principals=("agent:Mute",), methods=tuple(DENIED)
        ),
    ],
    "story",
    "digest",
)


class Wire:
    """As much of a transport as a connection uses; what is written is kept."""

    def __init__(self):
        self.reader = FrameReader(max_body_bytes=1 << 24)
        self.bodies = []
        self.closed = False
        self._pair = socket.socketpair()

    def write(self, data):
        self.bodies += self.reader.feed(data)

    def is_closing(self):
        return self.closed

    def get_write_buffer_size(self):
        return 0

    def get_extra_info(self, _name):
        return self._pair[0]

    def close(self):
        self.closed = True
        for each in self._pair:
            each.close()


class Story:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.store = HeldStore(hold=False)
        self.house = House(store=self.store, limits=LIMITS, policy=POLICY)
        self.model = Model()
        self.last = 0
        self.answers = {}
        self.expected = self.model.answers
        self.connections = self.house.broker.agents._connections = LinkConnections()
        self.links = {name: self._join(name) for name in AGENTS}
        self.house.gate._quota = CallQuota(self.house.clock, per_second=PER_SECOND, burst=BURST)
        self.records_before = len(self.store._ledger)

    def _join(self, name):
        self.house.register(name)
        return self.house.run(lambda: self._connect(name))

    def _connect(self, name):
        house = self.house
        connection = LinkConnection(
            house.gate,
            lambda token: Principal(f"agent:{token}"),
            self.connections,
            house.clock,
            log=lambda *_, **__: None,
            requests=jsonrpc.Requests({each.name: each.params for each in house.gate.methods.values()}),
            turns=FairShare(calls_per_turn=10**9, on_fault=pytest.fail),
            mcp_sessions=None,
        )
        wire = Wire()
        connection.connection_made(wire)
        hello = {"protocol": PROTOCOL_VERSION, "version": __version__, "token": name}
        connection.data_received(frame(jsonrpc.request(0, "hello", codec.encode(hello))))
        wire.bodies.clear()
        return connection, wire

    def close(self):
        with contextlib.ExitStack() as last:
            last.callback(self.house._loop.close)
            last.callback(self.house.close)
            self.store.hold = False
            last.callback(self.house.run, self.store.finish_all)
            for connection, wire in self.links.values():
                last.callback(wire.close)
                last.callback(self.house.run, lambda connection=connection: connection.connection_lost(None))

    # -- one round --

    def round(self):
        how = self.random.choice(["at once"] * 4 + ["finish", "fail", "fail"])
        if self.random.random() < 0.3:
            self.house.advance(1)
            self.model.pass_time(1)
        if self.random.random() < 0.03:
            self._revoke(self._agent())
        elif how == "at once":
            self._act(self._any_call())
            self.model.wake()
            self.house.advance(0)
        else:
            self._held(fails=how == "fail")
        self.compare()

    def _held(self, *, fails):
        """Several changes while the disk takes its time; then all of them are written, or none."""
        kept = self.model.kept()
        self.store.hold = True
        waiting = []
        for _ in range(self.random.randint(1, 4)):
            busy = bool(self.store.waiting)
            request, refused = self._act(self._change())
            answer = self.expected.get(request)
            # A refusal by the gate rests on nothing; one of a handler waits for what was under way before it.
            waits = bool(self.store.waiting) if refused is None else busy and not refused.at_once
            if waits:
                waiting.append(request)
            if answer is not None and request in waiting:
                assert request not in self.answers
                self.read()
                assert request not in self.answers, "answered before it was durable"
        if fails and self.store.waiting:
            self.house.run(self.store.fail)
            self.model.undo(kept, waiting)
            for request in waiting:
                self.expected[request] = "storage_full"
        else:
            while self.store.waiting:
                self.house.run(self.store.finish)
        self.store.hold = False
        self.model.wake()
        self.house.advance(0)

    def _revoke(self, agent):
        connection, wire = self.links[agent]
        self.read()
        self.house.call("person", "agents.revoke", {"agentId": agent})
        # Whatever came after it is nobody's.
        _, method, params = self._any_call()
        self.house.run(lambda: connection.data_received(frame(jsonrpc.request("late", method, codec.encode(params)))))
        assert wire.closed
        assert wire.bodies == []
        self.house.run(lambda: connection.connection_lost(None))
        self.links[agent] = self._join(agent)
        self.model.revoke(agent)

    def _act(self, act):
        agent, method, params = act
        self.last += 1
        request = self.last
        refused = None
        try:
            answer = self.model.call(request, agent, method, params)
            if answer is not None:
                self.expected[request] = answer
        except Refused as error:
            refused = error
            self.expected[request] = error.code
        body = jsonrpc.request(request, method, codec.encode(params))
        self.house.run(lambda: self.links[agent][0].data_received(frame(body)))
        return request, refused

    # -- what is called --

    def _agent(self):
        return self.random.choice([*AGENTS, "Ann", "Bob"])

    def _change(self):
        pick, agent = self.random.choice, self._agent()
        word = pick(["a", "b", "a", "b", "much too long"])
        method = pick(["messages.send", "messages.send", "replies.post", "inbox.ack", "tickets.cancel"])
        ticket = self.model.tickets.get(pick(IDS))
        if method == "messages.send":
            params = {
                "agentId": pick([*AGENTS, *AGENTS, "Nobody"]),
                "ticketId": pick(IDS),
                "payload": word,
                "expectReply": self.random.random() < 0.8,
            }
            if self.random.random() < 0.5:
                params["waitMs"] = pick([SHORT_WAIT, LONG_WAIT])
            return agent, method, params
        if ticket is not None and self.random.random() < 0.7:
            # Mostly who may.
            agent = ticket.target if method != "tickets.cancel" else ticket.sender.removeprefix("agent:")
        ticket_id = ticket.ticket_id if ticket is not None else pick(IDS)
        if method == "inbox.ack":
            whose = agent if self.random.random() < 0.8 else pick(AGENTS)
            ids = [ticket_id, *(each for each in self.random.sample(IDS, 2) if each != ticket_id)]
            return agent, method, {"agentId": whose, "ticketIds": ids[: self.random.randint(1, 3)]}
        params = {"ticketId": ticket_id}
        return agent, method, params | ({"payload": word} if method == "replies.post" else {})

    def _any_call(self):
        if self.random.random() < 0.55:
            return self._change()
        pick, agent = self.random.choice, self._agent()
        method = pick(["inbox.take", "inbox.take", "replies.wait", "agents.heartbeat"])
        whose = agent if self.random.random() < 0.85 else pick(AGENTS)
        wait = {"waitMs": pick([SHORT_WAIT, LONG_WAIT]) if self.random.random() < 0.3 else 0}
        if method == "inbox.take":
            return agent, method, {"agentId": whose, "max": self.random.randint(1, 2), **wait}
        if method == "replies.wait":
            return agent, method, {"ticketId": pick(IDS), **wait}
        return agent, method, {"agentId": whose}

    # -- comparing --

    def read(self):
        for _, wire in self.links.values():
            for body in wire.bodies:
                message = json.loads(body)
                error = message.get("error")
                self.answers[message["id"]] = error["data"]["code"] if error else shown(message["result"])
            wire.bodies.clear()

    def compare(self):
        self.read()
        assert self.answers == self.expected
        model, state = self.model, self.house.broker.state
        tickets = {
            each.ticket_id: (each.sender, each.target, each.status.value, each.acked_at is not None, each.replies)
            for each in state.tickets.rows.values()
        }
        assert tickets == {
            each.ticket_id: (each.sender, each.target, each.status, each.acked, len(each.replies))
            for each in model.tickets.values()
        }
        assert list(tickets) == list(model.tickets)
        words = {key: json.loads(bytes(each.payload)) for key, each in state.messages.rows.items()}
        assert words == {
            f"{each.ticket_id}/{number}": word
            for each in model.tickets.values()
            for number, word in enumerate([each.word, *(word for _, word in each.replies)])
        }
        for name in AGENTS:
            inbox = state.inbox(name)
            assert set(inbox.ids) == set(model.inbox(name))
            assert set(inbox.leases) == {each for each in model.inbox(name) if each in model.leased}
            assert not inbox.sealed
        records = list(self.store._ledger)[self.records_before :]
        read = [read_record(each) for each in records]
        assert [(each.principal, each.method, each.outcome, each.subject) for each in read] == model.ledger
        assert self.house.journal.chain.head == records[-1].hash if records else True
        assert len(self.house.broker.waits._on_ticket) == len({each[3] for each in model.waits})


def shown(result):
    """Of an answer what the model knows."""
    if result is None:
        return {"nothing": True}
    if "messages" in result:
        return {"messages": [(each["ticketId"], each["payload"]) for each in result["messages"]]}
    if "acked" in result:
        return {"acked": result["acked"], "unknown": result.get("unknown", [])}
    if "expiresAt" in result:
        return {"status": result["status"], "unread": result.get("unread", 0)}
    if "first" in result:
        return {"status": result["status"], "first": result["first"]}
    if "reply" in result:
        return {"ticketId": result["ticketId"], "reply": shown(result["reply"])}
    if "waitEndpoint" in result:
        return {"ticketId": result["ticketId"], "status": result["status"]}
    if "targetAgent" in result:
        return {"status": result["status"]}
    return {"status": result["status"]} | ({"payload": result["payload"]} if "payload" in result else {})


def play(seed, rounds):
    story = Story(seed)
    try:
        for _ in range(rounds):
            story.round()
    finally:
        story.close()
