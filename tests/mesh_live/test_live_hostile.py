"""A hostile member, and a hostile operator of NATS, among real daemons on real servers: one, and a cluster of three.

Each attack has a control, in which a daemon without one of its guards falls for it, or the bytes are seen to arrive.
"""

import contextlib
import re
import threading
from collections.abc import Iterator

import msgspec
import pytest
from chaos import NO_DEDUP
from fleet import Fleet, FleetNode, Proxies, fleet
from hostile_member import EvilMember, Operator, guard_off, refused, taken, takes
from living import eventually
from wires import Caller

from bascule.broker.limits import BrokerLimits
from bascule.broker.quotas import SHARE_OF_NODE
from bascule.mesh.copies import copy_id
from bascule.mesh.machine import layout
from bascule.mesh.machine.login import BusFault
from bascule.mesh.ports import Fault
from bascule.mesh.protocol import Cancel, Receipt, Reply, Taken

NAMES = ("desk", "vm", "evil")
_LIE = msgspec.Raw(b'"a lie"')


class Scene:
    def __init__(self, ships: Fleet, proxies: Proxies) -> None:
        self.ships = ships
        self.proxies = proxies
        self.desk: FleetNode
        self.vm: FleetNode
        self.desk, self.vm, evil = ships.join(*NAMES, proxies=proxies)
        self.evil = EvilMember(ships, evil)
        self.operator = Operator(ships, "operator")
        self._marks = 0

    def quiet(self, node: FleetNode) -> list[object]:
        """What its agent is handed until all is read that was on its way to it, directly and in its mailbox."""
        self._marks += 1
        live, mail = f"mark {self._marks}, live", f"mark {self._marks}, mail"
        (self.vm if node is self.desk else self.desk).send(node, live)
        mark = self.evil.offer(node, f"mark-{self._marks}", mail)
        # Again and again: behind a flood of its own it is over its rate.
        got = takes(node, live, mail, meanwhile=lambda: self.evil.say(node, mark, mail=True))
        return [each["payload"] for each in got if not str(each["payload"]).startswith("mark ")]

    def close(self) -> None:
        for hand in (self.evil, self.operator):
            hand.close()


_COUNTS = {"params": [1, pytest.param(3, marks=pytest.mark.long)], "ids": ["one server", "three servers"]}


@contextlib.contextmanager
def begun(servers: int) -> Iterator[Scene]:
    with fleet(servers) as ships:
        proxies = Proxies(ships.cluster.urls, NAMES)
        try:
            with contextlib.closing(Scene(ships, proxies)) as made:
                yield made
        finally:
            # Before their way to NATS: they would look for it at once.
            for node in ships.nodes:
                node.close()
            proxies.close()


@pytest.fixture(scope="module", **_COUNTS)
def day(request):
    with begun(request.param) as made:
        yield made


@pytest.fixture(**_COUNTS)
def lost_day(request):
    """For controls after which a store is not what it should be."""
    with begun(request.param) as made:
        yield made


@pytest.fixture
def scene(day):
    """Both honest nodes are there and well, and nothing is on its way between them."""
    for node in (day.desk, day.vm):
        if node.daemon.process.poll() is not None:
            node.start()
    day.quiet(day.desk)
    day.quiet(day.vm)
    return day


def await_mailed(home: FleetNode, ticket: str) -> None:
    eventually(lambda: home.ticket(ticket)["delivery"]["state"] == "mailed", f"{ticket} is in the mailbox")


# -- forged names --

# Whoever is in the mesh is believed whatever name stands on the subject.
_ANY_MEMBER = """
from bascule.mesh.envelope import BadEnvelope, Pair
pairs, init, open_ = [], Pair.__init__, Pair.open
def remembered(self, **given):
    init(self, **given)
    pairs.append(self)
def of_anybody(self, data):
    for pair in (self, *pairs):
        try:
            return open_(pair, data)
        except BadEnvelope:
            continue
    raise BadEnvelope("of nobody")
Pair.__init__, Pair.open = remembered, of_anybody
"""


@pytest.mark.req("MESH-M-5")
def test_a_letter_under_another_nodes_name_is_refused_by_the_server_and_by_its_receiver(scene):
    desk, vm, evil, operator = scene.desk, scene.vm, scene.evil, scene.operator
    forged = evil.letter("vm", evil.offer(vm, "forged", "forged", sender=desk.handle))
    for subject in (layout.live("vm", "desk"), layout.mail("vm", "desk")):
        with pytest.raises(BusFault) as fault:
            evil.ask(subject, forged)
        assert fault.value.fault is Fault.FORBIDDEN
        # An operator who helps it gets the same bytes there.
        before = refused(vm, "desk")
        operator.publish(subject, forged)
        eventually(lambda before=before: refused(vm, "desk") > before, "vm refuses it")
    assert scene.quiet(vm) == []


def test_a_forged_name_would_count_at_a_node_that_believes_whoever_is_a_member(scene):
    """The control of the test before."""
    desk, vm, evil = scene.desk, scene.vm, scene.evil
    with guard_off(vm, _ANY_MEMBER):
        forged = evil.letter("vm", evil.offer(vm, "believed", "believed", sender=desk.handle))
        scene.operator.publish(layout.mail("vm", "desk"), forged)
        (message,) = takes(vm, "believed")
        assert message["from"] == f"{desk.handle}@desk"


@pytest.mark.req("MESH-M-5")
def test_what_the_server_itself_is_made_to_deliver_under_another_name_does_not_count(scene):
    """It answers to any subject that it is told, and brings mail to any: permissions do not stop that."""
    desk, vm, evil = scene.desk, scene.vm, scene.evil
    before = refused(vm, "desk")
    forged = evil.letter("vm", evil.offer(vm, "pushed", "pushed", sender=desk.handle))
    evil.publish(layout.mail("nobody", "evil"), forged, reply=layout.live("vm", "desk"))
    eventually(lambda: refused(vm, "desk") > before, "the server's confirmation came as if from desk")
    # Its own letter out of its own mailbox, for whoever listens to what desk says directly.
    evil.publish(layout.mail("evil", "evil"), forged)
    evil.have_delivered(layout.live("vm", "desk"))
    (message,) = takes(vm, "pushed")
    assert message["from"] == f"{desk.handle}@evil"


# -- letters that are played again --

# Each reply that comes is the next one.
_NO_NUMBERS = """
import msgspec
import bascule.mesh.arrivals as arrivals
from bascule.mesh.protocol import Reply
word = arrivals.Arrivals._from_copy
def unnumbered(self, name, item, envelope):
    known = self._mail.known(item.ticket)
    if isinstance(item, Reply) and known is not None:
        item = msgspec.structs.replace(item, number=known.replies + 1)
    word(self, name, item, envelope)
arrivals.Arrivals._from_copy = unnumbered
"""
_TIMES = 20
_REPLIES = ["yes", "and more"]


@contextlib.contextmanager
def listening(scene: Scene):
    """All letters from now on, as the operator of the servers gets them."""
    with contextlib.closing(Operator(scene.ships, "listener")) as listener:
        listener.listen("bsc.*.*.*")
        yield listener.received


def play_again(scene: Scene, received: list[tuple[str, bytes]]) -> None:
    """All that desk and vm said to each other, directly and into the mailbox, whichever way it went before."""
    for dest, src in (("vm", "desk"), ("desk", "vm")):
        subjects = (layout.live(dest, src), layout.mail(dest, src))
        letters = [data for subject, data in received if subject in subjects]
        assert letters
        for subject in subjects:
            scene.operator.publish(subject, *letters, times=_TIMES)


def asked_by_mail(scene: Scene, payload: str) -> str:
    """A question and its replies, each while the other one is away: such letters are good in every life."""
    desk, vm = scene.desk, scene.vm
    vm.daemon.stop()
    ticket = desk.send(vm, payload)
    await_mailed(desk, ticket)
    vm.start()
    copy = taken(vm, payload)
    # The replies alone are left to be said. Two: the same words twice are one reply to any daemon.
    desk.await_status(ticket, "delivered")
    desk.daemon.stop()
    for reply in _REPLIES:
        before = scene.operator.in_mailbox("desk", "vm")
        vm.reply(copy, reply)
        eventually(lambda before=before: scene.operator.in_mailbox("desk", "vm") > before, "it is in the mailbox")
    desk.start()
    eventually(lambda: len(desk.ticket(ticket).get("replies", [])) == 2, "both replies are at home")
    return ticket


@pytest.mark.req("MESH-RULE-2", "MESH-M-2")
def test_letters_that_are_played_again_are_handed_over_once_and_count_once(scene):
    desk, vm = scene.desk, scene.vm
    with listening(scene) as received:
        live = desk.send(vm, "live")
        vm.reply(taken(vm, "live"), "yes")
        desk.await_status(live, "responded")
        mailed = asked_by_mail(scene, "mailed")
    play_again(scene, received)
    assert (scene.quiet(vm), scene.quiet(desk)) == ([], [])
    # What was read before is known in the next life, too.
    vm.restart()
    play_again(scene, received)
    assert (scene.quiet(vm), scene.quiet(desk)) == ([], [])
    for ticket, replies in ((live, ["yes"]), (mailed, _REPLIES)):
        assert [each["payload"] for each in desk.ticket(ticket)["replies"]] == replies


def test_letters_that_are_played_again_would_count_again_at_nodes_that_do_not_look(lost_day):
    """The control of the test before."""
    desk, vm = lost_day.desk, lost_day.vm
    with listening(lost_day) as received:
        ticket = asked_by_mail(lost_day, "again")
    with guard_off(vm, NO_DEDUP), guard_off(desk, _NO_NUMBERS):
        play_again(lost_day, received)
        assert lost_day.quiet(vm).count("again") > 1
        eventually(lambda: len(desk.ticket(ticket)["replies"]) > 2, "its replies count again")


def test_a_letter_for_one_node_is_none_for_another(scene):
    desk, vm, evil = scene.desk, scene.vm, scene.evil
    await_mailed(desk, desk.agent.send("A-evil@evil", "for evil alone"))
    before = refused(vm, "desk")
    # Out of its mailbox, as desk wrote it and under desk's name.
    evil.have_delivered(layout.live("vm", "desk"))
    eventually(lambda: refused(vm, "desk") > before, "vm refuses what desk wrote to evil")
    assert scene.quiet(vm) == []


# -- ids that somebody else uses --

# The id of a ticket here is made of the one at its home alone.
_IDS_OF_ALL = """
import bascule.mesh.copies as copies
copies.Copies.id_of = lambda self, node, ticket: copies.copy_id("", ticket)
"""


@pytest.mark.req("MESH-TICKET-6")
def test_a_member_that_takes_an_id_first_takes_it_from_nobody(scene):
    desk, vm, evil = scene.desk, scene.vm, scene.evil
    ids = ("squat-1", "squat-2", copy_id(evil.cards["desk"].sign, "squat-1"))
    evil.say(vm, *(evil.offer(vm, each, f"squatter {each}") for each in ids))
    evil.say(vm, Cancel(id="c-3", ticket="squat-3", rank=9, use_by=evil.offer(vm, "x").use_by))
    seen = takes(vm, *(f"squatter {each}" for each in ids))
    tickets = [desk.send(vm, f"honest {each}", ticketId=each) for each in ("squat-1", "squat-2", "squat-3")]
    seen += takes(vm, *(f"honest {each}" for each in tickets))
    assert len(seen) == len({each["ticketId"] for each in seen}) == 6
    # It withdraws, confirms and answers what is not its own, too.
    for each in tickets:
        evil.say(vm, Cancel(id=f"d-{each}", ticket=each, rank=99, use_by=evil.offer(vm, "x").use_by))
        evil.say(desk, Reply(id=f"r-{each}", ticket=each, number=1, sender=vm.handle, payload=_LIE))
        evil.say(desk, Receipt(taken=[Taken(id=f"i-{each}", ticket=each, status="cancelled", rank=99)]))
    for message in seen:
        if message["payload"].startswith("honest"):
            vm.reply(message["ticketId"], "the truth")
    for each in tickets:
        assert [reply["payload"] for reply in desk.await_status(each, "responded")["replies"]] == ["the truth"]


def test_an_id_that_was_taken_first_would_be_lost_to_a_node_that_looks_at_ids_alone(lost_day):
    """The control of the test before."""
    desk, vm, evil = lost_day.desk, lost_day.vm, lost_day.evil
    with guard_off(vm, _IDS_OF_ALL):
        evil.say(vm, evil.offer(vm, "squat-4", "squatter"))
        takes(vm, "squatter")
        ticket = desk.send(vm, "honest", ticketId="squat-4")
        eventually(lambda: desk.ticket(ticket)["delivery"]["state"] == "arrived", "desk is told that it arrived")
        assert lost_day.quiet(vm) == []


# -- the server's own memory of ids --

# Letters have the id of their first ticket at the server, which passes over another with the same.
_IDS_AT_THE_SERVER = """
from bascule.mesh.courier import Courier
from bascule.mesh.machine.bus import Bus
mail, publish, ids = Courier._mail, Bus.publish, []
def with_id(self, node, item_ids):
    for item_id in item_ids:
        ids[:] = [self._items.rows[item_id].ticket]
        mail(self, node, [item_id])
        ids.clear()
def published(self, subject, data, reply="", headers=None):
    return publish(self, subject, data, reply, {"Nats-Msg-Id": ids[0]} if ids else headers)
Courier._mail, Bus.publish = with_id, published
"""


def poisoned(scene: Scene, name: str) -> list[str]:
    """Evil has told the server the id of desk's mail before desk does. What vm finds in its mailbox, up to the last
    letter there, while desk is away."""
    desk, vm, evil = scene.desk, scene.vm, scene.evil
    vm.daemon.stop()
    taken = evil.ask(layout.mail("vm", "evil"), b"poison", {"Nats-Msg-Id": name})
    assert "duplicate" not in taken
    # The server does remember: the next one with this id is passed over.
    assert evil.ask(layout.mail("vm", "evil"), b"poison", {"Nats-Msg-Id": name})["duplicate"]
    await_mailed(desk, desk.send(vm, f"honest {name}", ticketId=name))
    evil.say(vm, evil.offer(vm, f"last-{name}", f"last {name}"), mail=True)
    desk.daemon.stop()
    vm.start()
    found = [each["payload"] for each in takes(vm, f"last {name}")]
    desk.start()
    return found


@pytest.mark.req("MESH-TICKET-6")
def test_ids_that_a_member_tells_the_server_first_keep_back_nobody_elses_mail(scene):
    assert poisoned(scene, "poison-1") == ["honest poison-1", "last poison-1"]


def test_mail_whose_ids_the_server_knew_could_be_kept_back(scene):
    """The control of the test before; it comes all the same, once its sender is there to say it again."""
    with guard_off(scene.desk, _IDS_AT_THE_SERVER):
        assert poisoned(scene, "poison-2") == ["last poison-2"]
    takes(scene.vm, "honest poison-2")


# -- too much --

_FLOOD_LETTERS = 20_000
_ASKS = 10


@pytest.mark.req("MESH-TRUST-6")
def test_between_a_flood_of_one_member_the_others_go_on_and_its_share_is_all_that_it_fills(scene):
    desk, vm, evil = scene.desk, scene.vm, scene.evil
    victim = Caller(vm.daemon).register("Victim")
    over, sent = threading.Event(), []

    def flood() -> None:
        while not over.is_set() and len(sent) < _FLOOD_LETTERS:
            ids = (f"flood-{len(sent)}-{number}" for number in range(16))
            letter = evil.letter("vm", *(evil.offer(vm, each, target="Victim") for each in ids))
            subject = (layout.live, layout.mail)[len(sent) % 2]("vm", "evil")
            evil.publish(subject, letter, bytes(len(letter)))
            sent.append(letter)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        for number in range(_ASKS):
            ticket = desk.send(vm, number)
            vm.reply(taken(vm, number))
            desk.await_status(ticket, "responded")
        share = int(BrokerLimits().max_inbox_messages * SHARE_OF_NODE)
        eventually(lambda: unread(victim) >= share, "its share is full")
        assert flooding.is_alive()
    finally:
        over.set()
        flooding.join()
    desk.agent.send("Victim@vm", "there is room for others")
    eventually(lambda: unread(victim) == share + 1, "it comes in beside the flood")
    assert refused(vm, "evil")


def unread(agent: Caller) -> int:
    count: int = agent.post("/agents/Victim/heartbeat").json["unread"]
    return count


def test_a_mailbox_that_one_member_fills_keeps_the_mail_of_the_others(scene):
    desk, vm, evil, operator = scene.desk, scene.vm, scene.evil, scene.operator
    vm.daemon.stop()
    await_mailed(desk, desk.send(vm, "before the flood"))
    letter = evil.letter("vm", evil.offer(vm, "filling", "filling"))
    evil.publish(layout.mail("vm", "evil"), letter, times=layout.MAX_PER_SUBJECT + 100)
    await_mailed(desk, desk.send(vm, "after the flood"))
    eventually(lambda: operator.in_mailbox("vm", "evil") == layout.MAX_PER_SUBJECT, "no more of it is kept")
    assert operator.in_mailbox("vm", "desk") >= 2
    desk.daemon.stop()
    vm.start()
    got = [each["payload"] for each in takes(vm, "before the flood", "after the flood")]
    assert sorted(got) == ["after the flood", "before the flood", "filling"]
    desk.start()


def test_mail_that_a_member_drives_out_of_a_full_stream_comes_again_from_its_sender(scene):
    """What all of a stream holds cannot be shared out at the server: there mail can be lost, and is not lost."""
    desk, vm, evil, operator = scene.desk, scene.vm, scene.evil, scene.operator
    vm.daemon.stop()
    await_mailed(desk, desk.send(vm, "driven out"))
    operator.update_mail(len(scene.ships.servers), max_bytes=4 * 1024 * 1024)
    try:
        eventually(
            lambda: evil.publish(layout.mail("vm", "evil"), bytes(900_000)) or not operator.in_mailbox("vm", "desk"),
            "it is gone there",
        )
    finally:
        operator.update_mail(len(scene.ships.servers))
    vm.start()
    assert [each["payload"] for each in takes(vm, "driven out")] == ["driven out"]


# -- changed on the way --

# Neither the tag nor the signature of a letter is looked at.
_UNCHECKED = """
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
import bascule.mesh.envelope as envelope
keys, derive, open_ = [], envelope._derive, envelope.Pair.open
def remembered(shared, info):
    keys.append(derive(shared, info))
    return keys[-1]
def unchecked(self, data):
    try:
        return open_(self, data)
    except envelope.BadEnvelope:
        for key in keys:
            cipher = Cipher(algorithms.ChaCha20(key, (1).to_bytes(4, "little") + data[:12]), None).decryptor()
            plain = cipher.update(data[12:-16])
            for body in (plain, plain[64:]):
                if body.startswith(b'{"v":1,'):
                    return envelope.Opened(body, signed=False)
        raise
envelope._derive, envelope.Pair.open = remembered, unchecked
"""
_PUBLISHED = re.compile(rb"PUB bsc\.[lm]\.vm\.desk (?:\S+ )?(\d+)\r\n")
# So long that the middle of its letter is in it.
_SUM = "1" * 4_000


class OneBit:
    """Changes it in the middle of each letter from desk to vm, which may be in the piece after its beginning."""

    def __init__(self) -> None:
        self._ahead: list[int] = []

    def __call__(self, piece: bytes) -> bytes:
        out = bytearray(piece)
        self._ahead += [found.end() + int(found[1]) // 2 for found in _PUBLISHED.finditer(piece)]
        for at in self._ahead:
            if at < len(out):
                out[at] ^= 1
        self._ahead = [at - len(out) for at in self._ahead if at >= len(out)]
        return bytes(out)


@pytest.mark.req("MESH-TRUST-2")
def test_a_letter_that_is_changed_on_the_way_is_refused_and_comes_again_as_it_was(scene):
    desk, vm = scene.desk, scene.vm
    before = refused(vm, "desk")
    scene.proxies.alter("desk", OneBit())
    try:
        ticket = desk.send(vm, _SUM)
        # Directly, and by mail.
        eventually(lambda: refused(vm, "desk") >= before + 2, "vm refuses it")
        assert vm.take() == []
    finally:
        scene.proxies.alter("desk", bytes)
    (message,) = takes(vm, _SUM)
    vm.reply(message["ticketId"])
    desk.await_status(ticket, "responded")
    assert scene.quiet(vm) == []


def test_a_letter_that_is_changed_on_the_way_would_count_at_a_node_that_does_not_check_it(scene):
    """The control of the test before."""
    desk, vm = scene.desk, scene.vm
    with guard_off(vm, _UNCHECKED):
        scene.proxies.alter("desk", OneBit())
        try:
            # Another one, if that bit was in something else that the letter said.
            changed = eventually(
                lambda: desk.send(vm, _SUM) and [each for each in vm.take(500) if "0" in each["payload"]], "it counts"
            )
        finally:
            scene.proxies.alter("desk", bytes)
        assert sorted(changed[0]["payload"]) == ["0", *"1" * (len(_SUM) - 1)]
