"""Members that are cut off, restored from a backup or copied; NATS that is away, full or forbids something."""

import os
import re
import shutil
import subprocess

import pytest
from fleet import PASSPHRASE, SERVERS, FleetNode, fleet
from lacking import missing_here, only_root
from living import eventually, run_command
from wires import Caller

from bascule.mesh.machine import layout
from operator_of_nats import Key
from terminal import on_a_terminal

# A machine says this often that it lives; a test need not wait half a minute for it.
QUICK_SIGNS = {"bascule.mesh.engine.LIFE_SIGN_SECONDS": 1.0}


@pytest.fixture(scope="module", params=SERVERS)
def pair(request):
    """For tests that leave both well."""
    with fleet(request.param) as ships:
        ships.join("desk", "vm", constants=QUICK_SIGNS)
        yield ships


def typed(node, *command):
    """At a terminal, with the passphrase; what was shown."""
    done = on_a_terminal(*command, "--state-dir", node.state, typed=[("Passphrase: ", PASSPHRASE)])
    assert done.code == 0, done
    return done.shown


def doctor(node):
    """Its line about the mesh, and what it advises."""
    shown = run_command("doctor", "--state-dir", node.state).stdout
    found = re.search(r"^.*\bmesh  .*(?:\n +.*)*", shown, re.MULTILINE)
    assert found, shown
    return found[0]


# -- cut off --


@pytest.mark.req("MESH-DAY-13")
@pytest.mark.parametrize("servers", SERVERS)
def test_a_revoked_node_is_cut_off_at_once_and_what_was_open_with_it_ends_undeliverable(servers):
    with fleet(servers) as ships:
        desk, laptop, vm = ships.join("desk", "laptop", "vm")
        answered = laptop.send(vm, "before")
        vm.reply(vm.await_message("before")["ticketId"])
        laptop.await_status(answered, "responded")
        taken = laptop.send(vm, "taken, not answered")
        message = vm.await_message("taken, not answered")
        vm.kill()
        waiting = laptop.send(vm, "waits in the outbox")
        desk.call("mesh.revoke", node="vm")
        for ticket in (taken, waiting):
            assert "vm was revoked" in laptop.await_status(ticket, "cancelled")["reason"]
        assert laptop.ticket(answered)["status"] == "responded"
        assert laptop.agent.post(f"/agents/{vm.handle}@vm/send", {"payload": "after"}).status == 404
        # Its creds still let it into NATS: nobody there listens to it.
        vm.start()
        vm.await_fault("revoked", "bascule mesh leave")
        reply = vm.agent.post("/replies", {"ticketId": message["ticketId"], "payload": "too late"})
        assert reply.status in (204, 404, 409)
        ticket = laptop.send(desk, "control")
        desk.await_message("control")
        assert laptop.ticket(taken)["status"] == "cancelled"
        eventually(lambda: laptop.ticket(ticket)["delivery"]["state"] == "arrived", "it arrives")


@pytest.mark.req("MESH-DAY-14")
def test_a_node_whose_creds_were_revoked_says_so_and_its_mail_waits_for_new_ones(pair):
    ships, (desk, vm) = pair, pair.nodes
    ships.revoke_creds("vm")
    words = vm.await_fault("does not know", "vm.creds")
    assert "bascule" in words
    shown = run_command("mesh", "status", "--state-dir", vm.state)
    assert "vm.creds" in shown.stdout
    assert shown.returncode != 0
    there, here = vm.send(desk, "out"), desk.send(vm, "in")
    assert vm.ticket(there)["delivery"]["state"] == "outbox"
    ships.operator.creds(ships.folder, "vm")
    vm.reply(vm.await_message("in")["ticketId"])
    desk.reply(desk.await_message("out")["ticketId"])
    desk.await_status(here, "responded")
    vm.await_status(there, "responded")


# -- restored and copied --


def standing_of(node, name):
    return next(each["standing"] for each in node.call("mesh.nodes")["nodes"] if each["node"] == name)


def restore_after_revoking(ships):
    """desk, which holds the mesh key, revokes two machines and is put back to before the second."""
    desk, laptop = ships.nodes[:2]
    desk.call("mesh.revoke", node="tablet")
    backup = os.path.join(ships.folder, "before.db")
    assert run_command("backup", backup, "--state-dir", desk.state).returncode == 0
    desk.call("mesh.revoke", node="vm")
    eventually(lambda: standing_of(laptop, "vm") == "revoked", "laptop hears of it")
    desk.daemon.stop()
    assert run_command("restore", backup, "--state-dir", desk.state).returncode == 0
    desk.start()
    desk.await_well()


@pytest.mark.req("MESH-DAY-13")
@pytest.mark.parametrize("servers", SERVERS)
def test_a_revocation_that_the_holder_of_the_mesh_key_has_lost_is_told_to_it_by_the_others(servers):
    with fleet(servers) as ships:
        desk, laptop, *_ = ships.join("desk", "laptop", "vm", "tablet")
        restore_after_revoking(ships)
        eventually(lambda: standing_of(desk, "vm") == "revoked", "desk is told")
        # And what it revokes next counts.
        desk.call("mesh.revoke", node="laptop")
        laptop.await_fault("revoked", "bascule mesh leave")


_SAYS_NOTHING = """
import bascule.mesh.engine as engine
engine.Engine._may_inform = lambda self, name: False
"""


@pytest.mark.long
def test_without_the_others_a_revoked_machine_would_be_a_member_again_for_the_holder():
    """The control of the test before."""
    with fleet(1) as ships:
        desk, laptop, *_ = ships.join("desk", "laptop", "vm", "tablet", bug=_SAYS_NOTHING)
        restore_after_revoking(ships)
        laptop.send(desk, "control")
        desk.await_message("control")
        assert standing_of(desk, "vm") == "member"


def tickets_after_a_restore(ships, wanted):
    """vm is restored from a backup that is older than what it confirmed since; how desk's tickets stand at both."""
    desk, vm = ships.nodes
    backup = os.path.join(ships.folder, "old.db")
    assert run_command("backup", backup, "--state-dir", vm.state).returncode == 0
    sent = [desk.send(vm, number) for number in range(12)]
    got = {}
    eventually(lambda: got.update({each["payload"]: each["ticketId"] for each in vm.take(200)}) or len(got) == 12, "")
    for number in range(4):
        vm.reply(got[number], f"answer {number}")
    for number in range(4):
        desk.await_status(sent[number], "responded")
    eventually(lambda: not desk.status()["nodes"][0].get("outboxItems"), "everything is confirmed")
    vm.daemon.stop()
    assert run_command("restore", backup, "--state-dir", vm.state).returncode == 0
    vm.start()
    eventually(lambda: vm.status().get("connected"), "vm is back")
    # Behind whatever is words again.
    desk.send(vm, "last")
    seen = set()
    eventually(lambda: seen.update(each["payload"] for each in vm.take(200)) or wanted <= seen, f"{wanted} come")
    again = [vm.agent.get(f"/tickets/{got[number]}") for number in range(12)]
    return [
        (desk.ticket(ticket)["status"], there.json["status"] if there.status == 200 else "missing")
        for ticket, there in zip(sent, again, strict=True)
    ], seen


@pytest.mark.req("MESH-DAY-11")
def test_a_node_that_was_restored_from_an_old_backup_misses_nothing(pair):
    wanted = {*range(4, 12), "last"}
    both, seen = tickets_after_a_restore(pair, wanted)
    assert [home for home, _ in both[:4]] == ["responded"] * 4
    assert both[4:] == [("pending", "pending")] * 8
    assert seen == wanted, "what was not answered comes again, what was does not"


@pytest.mark.long
def test_without_the_word_that_it_was_rolled_back_it_would_miss_what_it_had_confirmed():
    """The control of the test before."""
    unhearing = "import bascule.mesh.engine as engine; engine.Engine._say_again = lambda self, node: None\n"
    with fleet() as ships:
        ships.join("desk", bug=unhearing)
        ships.join("vm")
        both, _ = tickets_after_a_restore(ships, {"last"})
    assert [there for _, there in both] == ["missing"] * 12


@pytest.mark.req("MESH-DAY-12")
def test_of_a_copied_disk_both_daemons_stop_and_say_so_until_a_person_keeps_one(pair):
    desk, vm = pair.nodes
    vm.daemon.stop()
    shutil.copytree(vm.state, vm.state + "2", ignore=shutil.ignore_patterns("*.sock"))
    vm.start()
    eventually(lambda: vm.status().get("connected"), "the first one is there")
    copy = FleetNode.__new__(FleetNode)
    copy.__dict__.update({**vm.__dict__, "state": vm.state + "2", "port": None})
    copy.start()
    try:
        for each in (vm, copy):
            each.await_fault("a copied disk", "bascule mesh keep", "bascule mesh leave")
            assert not each.status().get("connected")
        waits = desk.send(vm, "for the one that stays")
        left, kept = typed(copy, "mesh", "leave"), typed(vm, "mesh", "keep")
        assert "in no mesh any more" in left
        assert "this machine stays. On the other one: bascule mesh leave" in kept
        vm.reply(vm.await_message("for the one that stays")["ticketId"])
        desk.await_status(waits, "responded")
        assert "for the one that stays" not in [each["payload"] for each in copy.take()]
        assert copy.status()["standing"] == "none"
    finally:
        copy.close()


# -- NATS is away, or full --


@pytest.mark.req("MESH-TICKET-1")
def test_while_nats_is_away_local_asks_are_as_ever_and_those_to_others_wait(pair):
    ships, (desk, vm) = pair, pair.nodes
    other = Caller(desk.daemon).register("Other")
    for server in ships.servers:
        server.kill()
    desk.await_fault("does not answer", "messages wait here")
    waiting = desk.send(vm, "when it is back")
    assert desk.ticket(waiting)["delivery"]["state"] == "outbox"
    local = desk.agent.send("Other", "local")
    (message,) = other.get("/agents/Other/inbox?waitMs=0").json["messages"]
    assert other.post("/replies", {"ticketId": message["ticketId"], "payload": "yes"}).status == 204
    assert desk.ticket(local)["status"] == "responded"
    assert run_command("doctor", "--state-dir", desk.state).stdout.count("messages wait here") == 1
    # Not even a daemon that starts needs it.
    desk.restart()
    assert desk.ticket(waiting)["delivery"]["state"] == "outbox"
    for server in ships.servers:
        server.start()
    vm.reply(vm.await_message("when it is back")["ticketId"])
    desk.await_status(waiting, "responded")
    desk.await_well()


@pytest.mark.req("MESH-DAY-14")
@pytest.mark.parametrize(
    "denied",
    [
        {"pub": "$KV.bsc_live.vm"},
        pytest.param({"pub": "$JS.API.STREAM.INFO.BSC"}, marks=pytest.mark.long),
        pytest.param({"sub": "_INBOX_vm.>"}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_what_the_servers_operator_does_not_allow_is_named_with_who_can_help(pair, denied):
    ships, (_, vm) = pair, pair.nodes
    ((way, subject),) = denied.items()
    verb = {"pub": "publish to", "sub": "subscribe to"}[way]
    ships.operator.creds(ships.folder, "vm", **denied)
    ships.start_again()
    try:
        vm.await_fault(f"does not let this node {verb} ", subject.partition(".>")[0], "docs/mesh.md")
        line = doctor(vm)
        assert f"does not let this node {verb} {subject.partition('.>')[0]}" in line, line
        assert "the server's operator has to allow it: docs/mesh.md lists what a node needs" in line
        assert run_command("mesh", "status", "--state-dir", vm.state).returncode == 1
    finally:
        ships.operator.creds(ships.folder, "vm")
        ships.start_again()
    vm.await_well()
    assert "ok" in doctor(vm), "the control: with all permissions nothing is said"


@pytest.fixture
def small_disk(tmp_path):
    """Of all servers together."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], check=False).returncode:
        missing_here("tmpfs cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.req("MESH-DAY-7")
@only_root
@pytest.mark.parametrize("servers", SERVERS)
def test_servers_whose_disk_is_full_are_named_and_nothing_is_lost(small_disk, servers):
    with fleet(servers, store=small_disk) as ships:
        desk, vm = ships.join("desk", "vm")
        vm.kill()
        tickets = [desk.send(vm, [number, "x" * 900_000]) for number in range(10)]
        words = desk.await_fault("full", "free space on the server's disk")
        shown = run_command("mesh", "status", "--state-dir", desk.state)
        assert words.partition(" -> ")[0] in shown.stdout
        assert shown.returncode != 0
        line = doctor(desk)
        # Of a cluster one server after the other turns JetStream off, and says less.
        assert re.search(r"its disk is full|room on its disk|a full disk", line), line
        assert "free space on the server's disk" in line
        for server in ships.servers:
            server.kill()
        subprocess.run(["mount", "-o", "remount,size=256m", small_disk], check=True)
        for server in ships.servers:
            server.start()
        vm.start()
        seen = []
        eventually(lambda: seen.extend(each["payload"][0] for each in vm.take(500)) or len(seen) >= 10, "all come")
        assert sorted(seen) == list(range(10))
        eventually(lambda: desk.ticket(tickets[-1])["delivery"]["state"] == "arrived", "it is confirmed")
        eventually(lambda: not desk.faults(), "desk is well")


# -- only what the page says --


@pytest.mark.req("MESH-JOIN-10")
def test_a_machine_joins_with_the_permissions_that_the_page_lists_and_no_others():
    with fleet() as ships:
        (desk,) = ships.join("desk")
        vm = FleetNode(str(ships.folder), "vm")
        ships.nodes.append(vm)
        key = Key("user")
        node, asks = layout.node_permissions("vm"), layout.invited_permissions(key.text)
        may = layout.Permissions([*node.publish, *asks.publish], [*node.subscribe, *asks.subscribe])
        creds = ships.operator.creds(ships.folder, "vm", may, key=key)
        asked = vm.call("mesh.join", servers=list(ships.cluster.urls), credsFile=creds, node="vm")
        vm.call("mesh.join", words=asked["joining"]["words"])
        desk.accept("vm")
        vm.await_well()
        eventually(lambda: desk.reaches("vm"), "desk reaches vm")
        ticket = desk.send(vm, "hello")
        vm.reply(vm.await_message("hello")["ticketId"])
        desk.await_status(ticket, "responded")
