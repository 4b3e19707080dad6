"""What whoever runs the servers can read, and what whoever has a copy of a member's database can do."""

import contextlib
import os
import time
from pathlib import Path

import pytest
from fleet import SERVERS, Fleet, FleetNode, fleet
from hostile_member import EvilMember, Operator, membership_in, taken, takes
from living import eventually, run_command

from bascule.mesh.admissions import mesh_secret
from bascule.mesh.cards import DAY_MS, Card, Keys, sign_card
from bascule.mesh.machine import layout
from bascule.mesh.ports import Board

# A machine says this often that it lives; a test need not wait half a minute for it.
QUICK_SIGNS = {"bascule.mesh.engine.LIFE_SIGN_SECONDS": 1.0}


@pytest.fixture(scope="module", params=SERVERS)
def pair(request):
    """For tests that leave both well."""
    with fleet(request.param) as ships:
        ships.join("desk", "vm", constants=QUICK_SIGNS)
        yield ships


# -- who runs the servers --


def all_received(listener: Operator) -> bytes:
    return b"".join(data for _, data in list(listener.received))


def stored(ships: Fleet) -> bytes:
    """All that the servers have on their disks."""
    places = [Path(server.config["jetstream"]["store_dir"]) for server in ships.servers]
    return b"".join(file.read_bytes() for place in places for file in place.rglob("*") if file.is_file())


@pytest.mark.req("MESH-TRUST-1")
def test_an_operator_of_the_servers_reads_no_message_and_no_reply(pair):
    """Everything that is published, directly and into mailboxes, and everything that is stored."""
    desk, vm = pair.nodes
    secrets = {f"secret-{what}" for what in ("live", "live-reply", "mail", "mail-reply", "metadata")}
    with (
        contextlib.closing(Operator(pair, "listener")) as listener,
        contextlib.closing(Operator(pair, "writer")) as writer,
    ):
        listener.listen(">")
        live = desk.send(vm, "secret-live", metadata={"about": "secret-metadata"})
        vm.reply(taken(vm, "secret-live"), "secret-live-reply")
        desk.await_status(live, "responded")
        vm.daemon.stop()
        mailed = desk.send(vm, "secret-mail")
        eventually(lambda: desk.ticket(mailed)["delivery"]["state"] == "mailed", "it is in the mailbox")
        vm.start()
        vm.reply(taken(vm, "secret-mail"), "secret-mail-reply")
        desk.await_status(mailed, "responded")
        # The control: words that nobody sealed, on a subject of letters.
        writer.publish(layout.mail("vm", "nobody"), b"the words in-the-clear")
        eventually(lambda: b"in-the-clear" in all_received(listener), "the listener hears them")
        eventually(lambda: b"in-the-clear" in stored(pair), "the server stores them")
        letters = {subject for subject, _ in listener.received}
        assert {layout.live("vm", "desk"), layout.live("desk", "vm"), layout.mail("vm", "desk")} <= letters
        seen = all_received(listener) + stored(pair)
    assert [each for each in secrets if each.encode() in seen] == []
    # What is not sealed, and is said so: who is there.
    assert desk.handle.encode() in seen


# -- who has a copy of a database --


def copy_of(node: FleetNode, folder: Path) -> str:
    copy = os.fspath(folder / f"{node.name}.db")
    assert run_command("backup", copy, "--state-dir", node.state).returncode == 0
    return copy


@pytest.mark.req("MESH-TRUST-13")
@pytest.mark.parametrize("servers", SERVERS)
def test_a_copy_of_a_member_speaks_as_it_until_it_is_revoked(servers, tmp_path):
    with fleet(servers) as ships:
        desk, vm, laptop = ships.join("desk", "vm", "laptop")
        with contextlib.closing(EvilMember(ships, vm, copy_of(vm, tmp_path))) as thief:
            thief.say(desk, thief.offer(desk, "before", "before", sender=vm.handle))
            (message,) = takes(desk, "before")
            assert message["from"] == f"{vm.handle}@vm"
            desk.call("mesh.revoke", node="vm")
            thief.say(desk, thief.offer(desk, "after", "after"))
            thief.say(desk, thief.offer(desk, "after, mailed", "after, mailed"), mail=True)
            laptop.send(desk, "behind it")
            assert [each["payload"] for each in takes(desk, "behind it")] == ["behind it"]


@pytest.mark.req("MESH-TRUST-13")
def test_a_copy_of_the_machine_that_began_the_mesh_lets_in_anybody(pair, tmp_path):
    desk, vm = pair.nodes
    own, _ = membership_in(copy_of(desk, tmp_path))
    # The control: the other member has no such key.
    assert membership_in(copy_of(vm, tmp_path))[0].mesh_secret is None
    sign, box, bus = Keys.new().public
    ends = int(time.time() * 1_000) + DAY_MS
    card = Card(mesh=own.mesh, node="ghost", sign=sign, box=box, bus=bus, owner=own.owner, not_after=ends)
    with contextlib.closing(Operator(pair, "writer")) as writer:
        writer.publish(layout.board_key(Board.CARDS, "ghost"), sign_card(mesh_secret(own), card))

    def ghost() -> dict[str, object] | None:
        return next((each for each in vm.call("mesh.nodes")["nodes"] if each["node"] == "ghost"), None)

    found = eventually(ghost, "vm believes its card")
    assert (found["standing"], found["own"]) == ("member", True)


@pytest.mark.req("MESH-DAY-12")
def test_of_a_copy_that_is_restored_beside_its_machine_both_daemons_stop(pair, tmp_path):
    _, vm = pair.nodes
    copy = copy_of(vm, tmp_path)
    twin = FleetNode.__new__(FleetNode)
    twin.__dict__.update({**vm.__dict__, "state": vm.state + "2", "port": None})
    assert run_command("restore", copy, "--state-dir", twin.state).returncode == 0
    twin.start()
    try:
        for each in (vm, twin):
            each.await_fault("a copied disk", "bascule mesh keep", "bascule mesh leave")
            assert not each.status().get("connected")
        twin.call("mesh.leave")
        vm.call("mesh.keep")
        vm.await_well()
    finally:
        twin.close()
