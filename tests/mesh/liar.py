"""A machine of the mesh that lies. It has a good card, writes to the server under any name, knows what every machine
has in its store, and has stolen the keys that open letters; those that sign are all that it lacks."""

from random import Random
from typing import Any, TypeAlias

import msgspec
from cryptography.exceptions import InvalidTag
from fake_post import Letter
from machines import Machines

from bascule.mesh.cards import Keys
from bascule.mesh.envelope import BadEnvelope, Pair
from bascule.mesh.identity import Identity
from bascule.mesh.protocol import (
    BODY,
    VERSION,
    Acked,
    Anchor,
    Body,
    Cancel,
    Hello,
    Item,
    Offer,
    Over,
    Receipt,
    Reply,
    Taken,
)
from gabp import codec

NAME = "evil"
# To whom, as who would say it, and what.
Lie: TypeAlias = tuple[str, str, Item]


class Liar:
    def __init__(self, machines: Machines, chances: Random) -> None:
        self._machines = machines
        self._chances = chances
        self._bus = machines.bus
        self._keys = Keys.new()
        card = machines.other_cards[NAME] = machines.new_card(NAME, self._keys, "me")
        own = Identity(NAME, card.owner, self._keys)
        self._pairs = {name: own.pair_with(machine.card) for name, machine in machines.machines.items()}
        # Sealed as between these two, and signed by the wrong one.
        self._forged = {
            (src, dest): Identity(src, "me", self._keys_with_box_of(src)).pair_with(machines[dest].card)
            for src in machines.machines
            for dest in machines.machines
            if src != dest
        }
        # Of `Bus.letters`.
        self._read = 0
        self._count = 0

    def _keys_with_box_of(self, name: str) -> Keys:
        sign, _, bus = self._keys.seeds
        return Keys(sign, self._machines[name].keys.seeds[1], bus)

    def greet(self) -> None:
        """With a half of a session key for everybody, who answers with theirs."""
        for name, pair in self._pairs.items():
            hello = Hello(life=NAME, began=Anchor(), started=1, answer=True)
            self._bus.send(Letter(name, NAME, pair.seal(self._body(hello, pair))))

    def lie(self) -> None:
        self._read_its_own()
        self._chances.choice(
            [
                self._speak,
                self._speak_in_session,
                self._forge,
                self._use_another_name,
                self._use_another_name_in_session,
                self._pass_on,
                self._pass_on_unopened,
                self._replay,
                self._alter,
            ]
        )()

    # -- what it says --

    def _lies(self) -> list[Lie]:
        """About one ticket that is none of its business."""
        tickets = [
            (name, ticket_id, ticket)
            for name, machine in self._machines.machines.items()
            for ticket_id, ticket in machine.mesh.state.home.rows.items()
            if ticket.nodes
        ]
        if not tickets:
            return []
        home, ticket_id, ticket = self._chances.choice(tickets)
        there = ticket.nodes[-1]
        known = self._machines[home].mesh._mail.known(ticket_id)
        number = known.replies + 1 if known is not None else 1
        self._count += 1
        id_ = f"i-{NAME}-{self._count}"
        use_by = ticket.use_by
        about: dict[str, Any] = {"id": id_, "ticket": ticket_id}
        lies: list[Lie] = [
            (home, there, Reply(**about, number=number, sender=f"A-{there}", payload=msgspec.Raw(b'"a lie"'))),
            (home, there, Acked(**about)),
            (there, home, Cancel(**about, rank=ticket.rank + 9, use_by=use_by)),
            (there, home, Over(**about, rank=ticket.rank + 9, use_by=use_by)),
            (there, home, self._offer(id_, ticket_id, there, use_by)),
        ]
        return lies

    def _receipts(self) -> list[Lie]:
        """For what was said to others."""
        return [
            (name, item.node, Receipt(taken=[Taken(id=item_id, ticket=item.ticket, status="cancelled", rank=99)]))
            for name, machine in self._machines.machines.items()
            for item_id, item in machine.mesh.state.out.rows.items()
            if item.node != NAME
        ]

    def _offer(self, id_: str, ticket: str, there: str, use_by: int) -> Offer:
        return Offer(
            id=id_,
            ticket=ticket,
            sender=f"A-{there}",
            target=f"A-{there}",
            payload=msgspec.Raw(b'"a lie"'),
            metadata={"method": "agents.list"},
            left_ms=60_000,
            use_by=use_by,
        )

    def _a_lie(self) -> Lie | None:
        lies = self._chances.choice([self._lies, self._receipts])()
        return self._chances.choice(lies) if lies else None

    def _body(self, item: Item, pair: Pair | None = None) -> bytes:
        halves = {"half": pair.own_half, "held": pair.peer_half, "started": 1} if pair is not None else {}
        parts: dict[str, Any] = {"v": VERSION, "anchor": Anchor(1, "0" * 64), "items": [item], **halves}
        return codec.encode(Body(**parts))

    # -- under its own name: such a letter counts, as what this machine says --

    def _speak(self) -> None:
        if (lie := self._a_lie()) is not None:
            to, _, item = lie
            pair = self._pairs[to]
            self._bus.send(Letter(to, NAME, pair.seal(self._body(item, pair))))

    def _speak_in_session(self) -> None:
        lie = self._a_lie()
        if lie is not None and self._pairs[lie[0]]._session is not None:
            to, _, item = lie
            self._bus.send(Letter(to, NAME, self._pairs[to].seal_in_session(self._body(item))))

    # -- under the name of others --

    def _forge(self) -> None:
        if (lie := self._a_lie()) is not None:
            to, src, item = lie
            self._slip_in(Letter(to, src, self._forged[src, to].seal(self._body(item))))

    def _use_another_name(self) -> None:
        if (lie := self._a_lie()) is not None:
            to, src, item = lie
            self._slip_in(Letter(to, src, self._pairs[to].seal(self._body(item))))

    def _use_another_name_in_session(self) -> None:
        lie = self._a_lie()
        if lie is not None and self._pairs[lie[0]]._session is not None:
            to, src, item = lie
            self._slip_in(Letter(to, src, self._pairs[to].seal_in_session(self._body(item))))

    # -- with what others made --

    def _others(self) -> list[Letter]:
        return [each for each in self._bus.letters[-60:] if NAME not in (each.src, each.dest)]

    def _pass_on(self) -> None:
        """Opened, and sealed again for somebody else: the signature is a good one."""
        letters = self._others()
        self._chances.shuffle(letters)
        for letter in letters:
            third = next(name for name in self._machines.machines if name not in (letter.src, letter.dest))
            nonce = letter.data[:12]
            try:
                opened = self._forged[letter.src, letter.dest]._cipher.decrypt(nonce, letter.data[12:], None)
            except InvalidTag:
                # Of a session: stolen keys do not open it.
                continue
            sealed = nonce + self._forged[letter.src, third]._cipher.encrypt(nonce, opened, None)
            self._slip_in(Letter(third, letter.src, sealed))
            return

    def _pass_on_unopened(self) -> None:
        if letters := self._others():
            letter = self._chances.choice(letters)
            third = next(name for name in self._machines.machines if name not in (letter.src, letter.dest))
            dest, src = self._chances.choice(
                [(third, letter.src), (letter.dest, third), (letter.dest, NAME), (letter.src, letter.dest)]
            )
            self._slip_in(Letter(dest, src, letter.data))

    def _replay(self) -> None:
        if letters := self._others():
            for letter in self._chances.sample(letters, min(3, len(letters))):
                self._slip_in(letter)

    def _alter(self) -> None:
        if letters := self._others():
            for letter in self._chances.sample(letters, min(3, len(letters))):
                data = bytearray(letter.data)
                data[self._chances.randrange(len(data))] ^= 1
                self._slip_in(Letter(letter.dest, letter.src, bytes(data)))

    def _slip_in(self, letter: Letter) -> None:
        self._bus.slip_in(letter, mailed=self._chances.random() < 0.3)

    def _read_its_own(self) -> None:
        """Letters to it bring halves of session keys."""
        letters = self._bus.letters
        for letter in letters[self._read :]:
            if letter.dest == NAME:
                pair = self._pairs[letter.src]
                try:
                    opened = pair.open(letter.data)
                except BadEnvelope:
                    continue
                if opened.signed:
                    body = BODY.decode(opened.body)
                    pair.learn(body.started, body.half, body.held)
        self._read = len(letters)
