"""What must hold after each step of a story, M1 to M6, read from what is on the disks: what is in memory alone may be
gone with its machine at any moment. M3 is in `story`."""

from collections import Counter
from typing import Any, NamedTuple

import msgspec
from liar import NAME as LIAR
from machines import Machine, Machines

from bascule.kernel.call import Call, Principal, node_of
from bascule.kernel.event_ring import Fact
from bascule.kernel.journal_ports import Batch, LedgerRow
from bascule.kernel.rows import OTHER_NODE
from bascule.mesh import rows
from bascule.mesh.copies import copy_id
from bascule.mesh.traffic import MeshTraffic
from bascule.stores.memory import MemoryStore

MESH_ROWS = frozenset(row.name for row in rows.METHODS if row.who == OTHER_NODE)
_OPEN = frozenset({"pending", "delivered"})


class Broken(AssertionError):
    """An invariant does not hold; the message names it."""


class NotedStore(MemoryStore):
    """Remembers what was written since somebody looked."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Batch] = []

    def write(self, batch: Batch) -> bool:
        self.noted.append(batch)
        return super().write(batch)

    def rows(self, table: str) -> dict[str, Any]:
        return self._tables.get(table, {})

    @property
    def ledger(self) -> list[LedgerRow]:
        return list(self._ledger)


class _Record(msgspec.Struct):
    principal: str
    method: str
    outcome: str
    subject: str | None = None
    details: dict[str, Any] = {}


_RECORD = msgspec.json.Decoder(_Record)


class Accepted(NamedTuple):
    """A reply that an agent's daemon has taken for a ticket of another machine."""

    there: str
    copy: str
    home: str
    ticket: str
    # Of its own: no two replies of a day say the same.
    payload: str


class Invariants:
    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        # Tickets that home has accepted, and that are open there; by machine and id: the id of their copies.
        self._open: dict[tuple[str, str], str] = {}
        # M2: by machine and copy, how often it entered the store; by machine and ticket, replies by their number.
        self._entered: Counter[tuple[str, str]] = Counter()
        self._counted: dict[tuple[str, str], dict[int, str]] = {}
        self._homes: set[tuple[str, str]] = set()
        # M4: replies that are not at home yet, with the row of the outbox where they were last seen.
        self._on_their_way: dict[Accepted, str] = {}
        self._replies: dict[str, Accepted] = {}
        self._refused: set[tuple[str, str]] = set()
        # By machine: the least that the ledger of one had which was restored from a backup.
        self.rolled_back: dict[str, int] = {}
        # What was heard: raised where nobody can catch it.
        self._faults: list[Broken] = []
        machines.on_life = self._listen
        for name, machine in machines.machines.items():
            self._listen(name, machine.mesh)

    # -- what the story tells --

    def sent(self, home: str, ticket: str) -> None:
        self._homes.add((home, ticket))
        self._open[home, ticket] = copy_id(self._machines[home].card.sign, ticket)

    def replied(self, reply: Accepted) -> None:
        self._replies[reply.payload] = reply
        if reply.home != LIAR:
            self._on_their_way[reply] = ""

    def revoked(self, name: str) -> None:
        """Nothing is promised any more of what it sent, and of what was said there."""
        for key in [key for key in self._open if key[0] == name]:
            del self._open[key]
        for reply in [reply for reply in self._on_their_way if reply.there == name]:
            del self._on_their_way[reply]

    def restored(self, name: str) -> None:
        """Everything since its backup is gone there: what is counted of it is counted anew."""
        store = _store(self._machines[name])
        head = store.ledger_head()
        self.rolled_back[name] = min(self.rolled_back.get(name, 2**53), head.seq if head is not None else 0)
        for key in [key for key in self._entered if key[0] == name]:
            del self._entered[key]
        for key in [key for key in self._counted if key[0] == name]:
            del self._counted[key]
        for row in store.ledger:
            self._count_offer(name, _RECORD.decode(row.body))
        for key, message in store.rows("messages").items():
            self._count_reply(name, key, message)
        kept = {str(msgspec.json.decode(each.payload)) for each in store.rows("messages").values()}
        for payload, reply in self._replies.items():
            if reply.there == name and payload not in kept:
                # Its daemon has forgotten that it took it.
                self._on_their_way.pop(reply, None)
            elif reply.home == name:
                self._on_their_way.setdefault(reply, "")

    def was_refused(self, there: str, copy: str) -> bool:
        """Who replied there was told that a reply came to nothing."""
        return (there, copy) in self._refused

    # -- as it happens: M5 and M6 --

    def _listen(self, name: str, mesh: MeshTraffic) -> None:
        gate, engine = mesh._kernel.gate, mesh.engine
        assert engine is not None
        arrivals: Any = engine._arrivals
        call, item, publish = gate.call, arrivals._item, arrivals.receipts._publish

        def listening(each: Call) -> Any:
            if (each.door == "mesh" or node_of(each.principal) is not None) and each.method not in MESH_ROWS:
                self._faults.append(Broken(f"M6: {each.principal} has called {each.method} at {name}"))
            return call(each)

        def acting(node: Any, each: Any, envelope: rows.Envelope) -> None:
            try:
                self._check_letter(name, node.card.node, envelope.digest, type(each).__name__)
            except Broken as fault:
                self._faults.append(fault)
            item(node, each, envelope)

        def publishing(fact: Fact) -> None:
            if fact.event == "reply.refused" and fact.id is not None:
                self._refused.add((name, fact.id))
            publish(fact)

        gate.call = listening  # type: ignore[method-assign] # whoever calls is heard
        arrivals._item, arrivals.receipts._publish = acting, publishing

    def _check_letter(self, name: str, node: str, digest: str, what: str) -> None:
        made = self._machines.bus.made.get(digest)
        if made != (node, name):
            raise Broken(f"M5: {name} acts on a {what} as if {node} had written it; it is a letter of {made}")

    # -- after each step --

    def check(self) -> None:
        if self._faults:
            raise self._faults[0]
        for name, machine in self._machines.machines.items():
            store = _store(machine)
            noted, store.noted = store.noted, []
            for batch in noted:
                self._check_batch(name, batch)
        self._check_open()
        self._check_on_their_way()

    def _check_batch(self, name: str, batch: Batch) -> None:
        for row in batch.ledger:
            if b'"mesh.' in row.body:
                record = _RECORD.decode(row.body)
                self._check_record(name, record)
                self._count_offer(name, record)
        for table, key, value in batch.changes:
            if table == "messages" and value is not None:
                self._count_reply(name, key, value)

    def _check_record(self, name: str, record: _Record) -> None:
        """M5: whoever a record names as the one who said something did write the letter that it names."""
        node, digest = node_of(Principal(record.principal)), record.details.get("envelope")
        if node is not None and digest is not None:
            self._check_letter(name, node, digest, record.method)
        if node is not None and record.method not in MESH_ROWS:
            raise Broken(f"M6: {name} has a record of {record.method} by {record.principal}")

    def _count_offer(self, name: str, record: _Record) -> None:
        if record.method == "mesh.offer" and record.outcome == "ok" and record.subject is not None:
            self._entered[name, record.subject] += 1
            if self._entered[name, record.subject] > 1:
                raise Broken(f"M2: {record.subject} entered the store of {name} more than once")

    def _count_reply(self, name: str, key: str, message: Any) -> None:
        ticket, _, number = key.rpartition("/")
        if (name, ticket) not in self._homes or number == "0":
            return
        payload = str(msgspec.json.decode(message.payload))
        counted = self._counted.setdefault((name, ticket), {})
        if payload in (each for at, each in counted.items() if at != int(number)):
            raise Broken(f"M2: the reply {payload} counts twice for {ticket}")
        reply = self._replies.get(payload)
        if reply is None or (reply.home, reply.ticket) != (name, ticket):
            raise Broken(f"M5: nobody has made the reply {payload} to {ticket}")
        # Of a group of any machine two may answer, each in its own order.
        before = sum(each.startswith(f"{reply.there}/") for at, each in counted.items() if at < int(number))
        if not self.rolled_back and not payload.endswith(f"/{before + 1}"):
            raise Broken(f"M2: the reply {payload} is number {before + 1} of {reply.there} to {ticket}")
        counted[int(number)] = payload

    def _check_open(self) -> None:
        """M1: what is open is on its way, or at a copy."""
        for (home, ticket), id_ in list(self._open.items()):
            store = _store(self._machines[home])
            row = store.rows("tickets").get(ticket)
            if row is None or row.status not in _OPEN:
                # It ended for whoever looks; it may be open again where a backup is put back.
                if not self.rolled_back and row is not None:
                    del self._open[home, ticket]
                continue
            at_home = store.rows("mesh_home").get(ticket)
            if at_home is not None and at_home.offered in store.rows("mesh_out"):
                continue
            nodes = [node for node in at_home.nodes if node != LIAR] if at_home is not None else []
            if not any(self._is_at(node, id_, at_home) for node in nodes):
                raise Broken(f"M1: {ticket} of {home} is {row.status}, and neither on its way nor at {nodes}")

    def _is_at(self, node: str, id_: str, at_home: Any) -> bool:
        if id_ in _store(self._machines[node]).rows("mesh_copies"):
            return True
        arrival = at_home.arrived.get(node)
        # If its machine was rolled back to before it came, it goes again with the next word of that.
        return arrival is not None and arrival.seq > self.rolled_back.get(node, arrival.seq)

    def _check_on_their_way(self) -> None:
        """M4: what a copy accepted is on its way, at home, or was told refused."""
        for reply, seen in list(self._on_their_way.items()):
            store = _store(self._machines[reply.there])
            out = store.rows("mesh_out")
            if seen in out:
                continue
            quoted = msgspec.json.encode(reply.payload)
            found = next((key for key, row in out.items() if row.kind == "reply" and quoted in row.data), None)
            if found is not None:
                self._on_their_way[reply] = found
                continue
            if reply.payload in self._counted.get((reply.home, reply.ticket), {}).values():
                del self._on_their_way[reply]
                continue
            if (reply.there, reply.copy) in self._refused:
                del self._on_their_way[reply]
                continue
            if self.rolled_back:
                # Its number may have been taken by a reply that one of the two has forgotten.
                del self._on_their_way[reply]
                continue
            raise Broken(f"M4: the reply {reply.payload} to {reply.ticket} is neither on its way nor at {reply.home}")


def _store(machine: Machine) -> NotedStore:
    store = machine.house.store
    assert isinstance(store, NotedStore)
    return store
