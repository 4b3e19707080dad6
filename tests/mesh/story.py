"""A random day of several machines: agents ask, answer, cancel and run out of time; letters are lost, doubled and
reordered; machines die, and NATS loses everything; one machine lies. Invariants are checked after each step, and when
all is quiet."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from invariants import Accepted, Broken, Invariants, NotedStore
from liar import NAME as LIAR
from liar import Liar
from machines import Machine, Machines

from bascule.broker.protocol import TRANSITIONS, TicketEvent, TicketStatus
from bascule.foundation.errors import BasculeError
from bascule.stores.memory import MemoryStore

NAMES = ("laptop", "desk", "vm")
_NEXT: dict[str, set[str]] = {}
for (_from, _event), _to in TRANSITIONS.items():
    _NEXT.setdefault(_from.value, set()).add(_to.value)


@dataclass
class Story:
    machines: Machines
    chances: Random
    liar: Liar
    invariants: Invariants
    with_rollback: bool = False
    # Tickets by (machine, id): the last status that was seen at home.
    sent: dict[tuple[str, str], str] = field(default_factory=dict)
    # What agents did: replies that their daemon accepted, by the machine and id of the copy.
    replied: Counter[tuple[str, str]] = field(default_factory=Counter)
    snapshots: dict[str, MemoryStore] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)

    def begin(self) -> None:
        for name, machine in self.machines.machines.items():
            machine.house.register(f"A-{name}")
        self.liar.greet()
        self.machines.advance(1)
        self.machines.settle()

    # -- what may happen --

    def step(self) -> None:
        act = self.chances.choices(
            [
                self.ask,
                self.deliver,
                self.work,
                self.cancel,
                self.time_passes,
                self.machine_dies,
                self.post_is_away,
                self.nats_forgets,
                self.rolls_back,
                self.liar.lie,
            ],
            weights=[6, 20, 6, 1.5, 4, 0.4, 0.4, 0.1, 0.6 if self.with_rollback else 0, 4],
        )[0]
        act()
        self.check_each_step()

    def _any(self) -> Machine:
        return self.machines[self.chances.choice(NAMES)]

    def ask(self) -> None:
        home = self._any()
        there = self.chances.choice([name for name in NAMES if name != home.name])
        timeout = self.chances.choice([3_000, 20_000, 600_000])
        try:
            ticket = home.send(f"A-{home.name}", f"A-{there}@{there}", {"home": home.name}, timeoutMs=timeout)
        except BasculeError:
            return
        self.sent[home.name, ticket] = "pending"
        self.invariants.sent(home.name, ticket, there)

    def deliver(self) -> None:
        for _ in range(self.chances.randrange(1, 6)):
            self.machines.deliver_one()

    def work(self) -> None:
        machine = self._any()
        agent = f"A-{machine.name}"
        for message in machine.take(agent, count=2):
            id_ = message["ticketId"]
            if self.chances.random() < 0.2:
                machine.call(f"agent:{agent}", "inbox.ack", {"agentId": agent, "ticketIds": [id_]})
            for _ in range(self.chances.choice([0, 1, 1, 1, 2])):
                payload = f"{machine.name}/{id_}/{self.replied[machine.name, id_] + 1}"
                try:
                    machine.reply(agent, id_, payload)
                except BasculeError:
                    break
                self.replied[machine.name, id_] += 1
                self.invariants.replied(self._accepted(machine, message, payload))

    def _accepted(self, machine: Machine, message: dict[str, Any], payload: str) -> Accepted:
        id_, home = message["ticketId"], message["from"].partition("@")[2]
        ticket = machine.mesh.state.copies.rows[id_].home
        return Accepted(machine.name, id_, home, ticket, payload)

    def cancel(self) -> None:
        open_ = [key for key, status in self.sent.items() if status in ("pending", "delivered")]
        if open_:
            name, ticket = self.chances.choice(open_)
            try:
                self.machines[name].call(f"agent:A-{name}", "tickets.cancel", {"ticketId": ticket})
            except BasculeError:
                return

    def time_passes(self) -> None:
        self.machines.advance(self.chances.choice([0.05, 0.5, 1.5, 5.0]))

    def machine_dies(self) -> None:
        self._any().crash()

    def post_is_away(self) -> None:
        machine = self._any()
        if machine.post.state.open:
            machine.house.run(machine.post.disconnect)
        else:
            machine.house.run(machine.post.connect)

    def nats_forgets(self) -> None:
        self.machines.bus.wipe()
        self.machines.bus.moving.clear()
        for machine in self.machines.machines.values():
            machine.house.run(machine.post.disconnect)
            machine.house.run(machine.post.connect)

    def rolls_back(self) -> None:
        machine = self._any()
        if machine.name in self.snapshots:
            machine.restore(self.snapshots.pop(machine.name))
            self.rolled_back.add(machine.name)
            self.invariants.restored(machine.name)
        else:
            self.snapshots[machine.name] = machine.snapshot()

    # -- what must hold --

    def check_each_step(self) -> None:
        self.invariants.check()
        for (name, ticket), before in list(self.sent.items()):
            known = self.machines[name].mesh._mail.known(ticket)
            # What is not on disk yet is read by nobody, and may be gone with the machine.
            if known is None or not self.machines[name].house.journal.idle:
                continue
            # M3: home moves along its table, perhaps several steps at once.
            if not _leads(before, known.status) and name not in self.rolled_back:
                raise Broken(f"M3: {ticket} went from {before} to {known.status}")
            self.sent[name, ticket] = known.status

    def come_to_rest(self) -> None:
        """No more faults, and no more lies: everything that can arrive does."""
        bus = self.machines.bus
        # What was said to the liar would wait for ever: it confirms nothing.
        self.machines.revoke(LIAR)
        bus.drop = bus.double = 0.0
        for machine in self.machines.machines.values():
            if not machine.post.state.open:
                machine.house.run(machine.post.connect)
        for _ in range(80):
            self.machines.settle(rounds=20_000)
            self.check_each_step()
            if not any(machine.mesh.state.out.rows for machine in self.machines.machines.values()):
                return
            self.machines.advance(60)
        left = {name: list(m.mesh.state.out.rows.values())[:3] for name, m in self.machines.machines.items()}
        raise Broken(f"M1: items are never confirmed: {left}")

    def check_at_rest(self) -> None:
        copies: dict[tuple[str, str], tuple[str, str]] = {}
        for name, machine in self.machines.machines.items():
            for id_, copy in machine.mesh.state.copies.rows.items():
                copies[copy.node, copy.home] = (name, id_)
        for name, ticket in self.sent:
            known = self.machines[name].mesh._mail.known(ticket)
            if known is None:
                continue
            at = copies.get((name, ticket))
            if at is None:
                if known.status in ("pending", "delivered"):
                    raise Broken(f"M1: {ticket} of {name} is {known.status}, and nobody has it")
                continue
            there, id_ = at
            mirrored = self.machines[there].mesh._mail.known(id_)
            # A machine that was rolled back hands its messages over once more; one whose home was has followed what
            # that home has forgotten.
            again = there in self.rolled_back and known.status == "delivered"
            again = again or name in self.rolled_back
            if mirrored is not None and mirrored.status != known.status and not again:
                raise Broken(f"M3: {ticket} is {known.status} at home and {mirrored.status} at its copy")
            replies = self.replied[there, id_]
            if known.replies > replies:
                raise Broken(f"M2: {ticket} has {known.replies} replies, its agent made {replies}")
            if known.status != "cancelled" and known.replies != replies and not self.rolled_back:
                raise Broken(f"M4: {ticket} has {known.replies} replies, its agent made {replies}")
            self._check_order(name, ticket, there, id_)

    def _check_order(self, name: str, ticket: str, there: str, id_: str) -> None:
        shown: dict[str, Any] = self.machines[name].show(ticket)
        payloads = [reply["payload"] for reply in shown.get("replies", [])]
        expected = [f"{there}/{id_}/{number + 1}" for number in range(len(payloads))]
        if payloads != expected and not self.rolled_back:
            raise Broken(f"M2: replies of {ticket} are {payloads}")


def _leads(before: str, after: str) -> bool:
    reached, new = {before}, {before}
    while new:
        new = {to for status in new for to in _NEXT.get(status, ())} - reached
        reached |= new
    return after in reached


def play(seed: int, *, steps: int = 150, with_rollback: bool = False) -> Story:
    """One day, to its quiet end; raises `Broken` when an invariant does not hold."""
    chances = Random(seed)
    with Machines(*NAMES, seed=seed, new_store=NotedStore) as machines:
        liar = Liar(machines, chances)
        story = Story(machines, chances, liar, Invariants(machines), with_rollback=with_rollback)
        story.begin()
        machines.bus.drop = chances.choice([0.0, 0.1, 0.5])
        machines.bus.double = chances.choice([0.0, 0.3])
        for _ in range(steps):
            story.step()
        story.come_to_rest()
        story.check_at_rest()
        return story


__all__ = ["Broken", "Story", "TicketEvent", "TicketStatus", "play"]
