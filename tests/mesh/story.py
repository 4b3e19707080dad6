"""A random day of several machines: agents ask, answer, cancel and run out of time; letters are lost, doubled and
reordered; machines die, and NATS loses everything; one machine lies, on some days one is revoked, and on some a week
goes by. Some messages are for a group of any machine, of which two may answer. Invariants are checked after each step,
and when all is quiet."""

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
from bascule.mesh.copies import copy_id
from bascule.mesh.home import USE_FOR_MS
from bascule.stores.memory import MemoryStore
from bascule.testing.pending import Pending

NAMES = ("laptop", "desk", "vm")
GROUP = "reviewers"
# Longer than a message is of use.
WEEK_SECONDS = USE_FOR_MS / 1000 + 3_600
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
    # More of it on some days: messages for groups, and machines that are cut off while they have one.
    groups: int = 1
    # How likely in each step, once a day.
    revokes: float = 0.0
    week: float = 0.0
    # Tickets by (machine, id): the last status that was seen at home.
    sent: dict[tuple[str, str], str] = field(default_factory=dict)
    # What agents did: replies that their daemon accepted, by the machine and id of the copy.
    replied: Counter[tuple[str, str]] = field(default_factory=Counter)
    snapshots: dict[str, MemoryStore] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)
    # By machine: its member of the group that waits for a message.
    waiting: dict[str, Pending] = field(default_factory=dict)
    # Those that are in the mesh.
    names: list[str] = field(default_factory=lambda: list(NAMES))

    def begin(self) -> None:
        self._register()
        self.liar.greet()
        self.machines.advance(1)
        self.machines.settle()

    def _register(self) -> None:
        for name in self.names:
            house = self.machines[name].house
            there = {each["agentId"] for each in house.call("local", "agents.list")}
            for handle, groups in ((f"A-{name}", []), (f"R-{name}", [GROUP])):
                if handle not in there:
                    house.register(handle, groups=groups)

    # -- what may happen --

    def step(self) -> None:
        act = self.chances.choices(
            [
                self.ask,
                self.ask_group,
                self.deliver,
                self.work,
                self.work_in_group,
                self.cancel,
                self.time_passes,
                self.machine_dies,
                self.post_is_away,
                self.nats_forgets,
                self.rolls_back,
                self.liar.lie,
                self.one_is_revoked,
                self.week_goes_by,
            ],
            weights=[
                *(6, 3 * self.groups, 20, 6, 4 * self.groups, 1.5, 4, 0.4, 0.4 * self.groups, 0.1),
                *(1.2 if self.with_rollback else 0, 4, self.revokes, self.week),
            ],
        )[0]
        act()
        self.check_each_step()

    def _any(self) -> Machine:
        return self.machines[self.chances.choice(self.names)]

    def ask(self) -> None:
        home = self._any()
        there = self.chances.choice([name for name in self.names if name != home.name])
        self._send(home, f"A-{there}@{there}")

    def ask_group(self) -> None:
        self._send(self._any(), f"{GROUP}@any")

    def _send(self, home: Machine, target: str) -> None:
        timeout = self.chances.choice([3_000, 20_000, 600_000])
        try:
            ticket = home.send(f"A-{home.name}", target, {"home": home.name}, timeoutMs=timeout)
        except BasculeError:
            return
        if ticket in home.mesh.state.home.rows:
            self.sent[home.name, ticket] = "pending"
            self.invariants.sent(home.name, ticket)
        # Else a member is free here, and nobody elsewhere is asked.

    def deliver(self) -> None:
        for _ in range(self.chances.randrange(1, 6)):
            self.machines.deliver_one()

    def work(self) -> None:
        machine = self._any()
        agent = f"A-{machine.name}"
        self._answer(machine, agent, machine.take(agent, count=2))

    def work_in_group(self) -> None:
        """A member waits for a message of its group, or has one."""
        machine = self._any()
        agent, poll = f"R-{machine.name}", self.waiting.pop(machine.name, None)
        if poll is None:
            params = {"agentId": agent, "waitMs": 60_000}
            self.waiting[machine.name] = machine.house.begin(f"agent:{agent}", "inbox.take", params)
        elif not poll.done:
            self.waiting[machine.name] = poll
        elif (taken := poll.result()) is not None:
            # Others are for the group of this machine alone.
            self._answer(machine, agent, [each for each in taken["messages"] if "@" in each["from"]])

    def _answer(self, machine: Machine, agent: str, messages: list[dict[str, Any]]) -> None:
        for message in messages:
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
        copy = machine.mesh.state.copies.rows.get(id_)
        if copy is None:
            raise Broken(f"M4: the reply {payload} was accepted, and {machine.name} does not know what it answers")
        return Accepted(machine.name, id_, home, copy.home, payload)

    def cancel(self) -> None:
        open_ = [key for key, status in self.sent.items() if status in ("pending", "delivered")]
        if open_:
            name, ticket = self.chances.choice(open_)
            try:
                self.machines[name].call(f"agent:A-{name}", "tickets.cancel", {"ticketId": ticket})
            except BasculeError:
                return

    def time_passes(self) -> None:
        # Also so long that another machine gets what is for a group, when nothing is heard of the first.
        self.machines.advance(self.chances.choice([0.05, 0.5, 1.5, 5.0] * 4 + [65.0] * (2 * self.groups - 1)))

    def machine_dies(self) -> None:
        machine = self._any()
        self.waiting.pop(machine.name, None)
        machine.crash()

    def one_is_revoked(self) -> None:
        self.revokes = 0.0
        name = self._any().name
        self.names.remove(name)
        self.machines.revoke(name)
        self.invariants.revoked(name)

    def week_goes_by(self) -> None:
        self.week = 0.0
        # A backup older than that knows agents that nobody else does.
        self.snapshots.clear()
        self.machines.advance(WEEK_SECONDS)
        # Who was not heard of for a week is not known any more.
        self.waiting.clear()
        self._register()

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
            self.waiting.pop(machine.name, None)
            machine.restore(self.snapshots.pop(machine.name))
            self.rolled_back.add(machine.name)
            self.invariants.restored(machine.name)
        else:
            self.snapshots[machine.name] = machine.snapshot()

    # -- what must hold --

    def check_each_step(self) -> None:
        self.invariants.check()
        for (name, ticket), before in list(self.sent.items()):
            if name not in self.names:
                continue
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
        for number in range(80):
            self.machines.settle(rounds=20_000)
            self.check_each_step()
            if not any(self.machines[name].mesh.state.out.rows for name in self.names):
                return
            # Where a group is on one machine alone, that is asked after pauses of up to an hour.
            self.machines.advance(60 if number < 40 else 3_600)
            for name in self.names:
                self._wait_at_rest(self.machines[name])
        left = {name: list(self.machines[name].mesh.state.out.rows.values())[:3] for name in self.names}
        raise Broken(f"M1: items are never confirmed: {left}")

    def _wait_at_rest(self, machine: Machine) -> None:
        """Somebody of each group is free, and has it when a message comes."""
        agent, poll = f"R-{machine.name}", self.waiting.get(machine.name)
        if poll is not None and poll.done and (taken := poll.result()) is not None:
            ids = [each["ticketId"] for each in taken["messages"]]
            machine.call(f"agent:{agent}", "inbox.ack", {"agentId": agent, "ticketIds": ids})
        if poll is None or poll.done:
            params = {"agentId": agent, "waitMs": 60_000}
            self.waiting[machine.name] = machine.house.begin(f"agent:{agent}", "inbox.take", params)

    def _copies(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """By home and ticket: at which machines, under which ids."""
        copies: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for name in self.names:
            for id_, copy in self.machines[name].mesh.state.copies.rows.items():
                # One that is over may still be read, and its home does not care any more.
                if copy.use_by > self.machines.clock.wall_ms():
                    copies.setdefault((copy.node, copy.home), []).append((name, id_))
        return copies

    def check_at_rest(self) -> None:
        copies = self._copies()
        for (home, ticket), at in copies.items():
            for there, id_ in at if home not in self.names else ():
                mirrored = self.machines[there].mesh._mail.known(id_)
                if mirrored is not None and mirrored.status in ("pending", "delivered", "timeout"):
                    raise Broken(f"M3: {ticket} of {home}, which was revoked, is {mirrored.status} at {there}")
        for name, ticket in self.sent:
            known = self.machines[name].mesh._mail.known(ticket) if name in self.names else None
            if known is None:
                continue
            at = copies.get((name, ticket), [])
            if not at and known.status in ("pending", "delivered"):
                raise Broken(f"M1: {ticket} of {name} is {known.status}, and nobody has it")
            for there, id_ in at:
                self._check_mirror(name, ticket, there, id_)
            self._check_replies(name, ticket)

    def _check_mirror(self, name: str, ticket: str, there: str, id_: str) -> None:
        known = self.machines[name].mesh._mail.known(ticket)
        mirrored = self.machines[there].mesh._mail.known(id_)
        assert known is not None
        # A machine that was rolled back hands its messages over once more; one whose home was has followed what
        # that home has forgotten.
        again = there in self.rolled_back and known.status == "delivered"
        again = again or name in self.rolled_back
        # Of a group of any machine one may have taken what it said it had nobody for, and home has not heard of it; and
        # what was read at one may wait at the other.
        asked = self.machines[name].mesh.state.home.rows[ticket]
        again = again or (asked.any and (there not in asked.arrived or known.status == "delivered"))
        if mirrored is not None and mirrored.status != known.status and not again:
            raise Broken(f"M3: {ticket} is {known.status} at home and {mirrored.status} at its copy at {there}")

    def _check_replies(self, name: str, ticket: str) -> None:
        """Of one machine, or of a group of any machine from several, each in its own order."""
        shown: dict[str, Any] = self.machines[name].show(ticket)
        payloads = [reply["payload"] for reply in shown.get("replies", [])]
        id_ = copy_id(self.machines[name].card.sign, ticket)
        counts = Counter(payload.partition("/")[0] for payload in payloads)
        for there in NAMES:
            made = self.replied[there, id_]
            if counts[there] > made:
                raise Broken(f"M2: {ticket} has {counts[there]} replies of {there}, its agents made {made}")
            # Of one that was revoked some may have come to nothing.
            lost = counts[there] != made and there in self.names
            # Or have come too late, and its agent was told.
            lost = lost and not self.invariants.was_refused(there, id_)
            if lost and shown["status"] != "cancelled" and not self.rolled_back:
                raise Broken(f"M4: {ticket} has {counts[there]} replies of {there}, its agents made {made}")
            mine = [payload for payload in payloads if payload.startswith(f"{there}/")]
            expected = [f"{there}/{id_}/{number + 1}" for number in range(len(mine))]
            if mine != expected and not self.rolled_back:
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
        # Of a machine that is away for good nobody says what it lost.
        story.revokes = 0.0 if with_rollback else chances.choice([0.0, 0.0, 0.4])
        story.groups = chances.choice([1, 1, 3])
        story.week = chances.choice([0.0, 0.0, 0.0, 0.4])
        story.begin()
        machines.bus.drop = chances.choice([0.0, 0.1, 0.5])
        machines.bus.double = chances.choice([0.0, 0.3])
        for _ in range(steps):
            story.step()
        story.come_to_rest()
        story.check_at_rest()
        return story


__all__ = ["Broken", "Story", "TicketEvent", "TicketStatus", "play"]
