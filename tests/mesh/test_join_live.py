"""Daemons join each other over a real hub: the three commands, bad codes, restarts in between, and being cut off."""

import base64
import contextlib
import os
import re
import shutil
import sqlite3
import threading
import time

import msgspec
import pytest
from live_nodes import PASSPHRASE, Refused, live_nodes
from living import eventually, run_command, short_dir
from wires import Caller, LinkWire

from bascule.mesh.join_code import read_code, write_code
from patience import PATIENCE
from ports import free_port
from terminal import on_a_terminal

TYPED = ("Passphrase: ", PASSPHRASE)


def _long(point):
    return pytest.param(point, marks=pytest.mark.long)


@pytest.fixture(scope="module")
def pair():
    """Two that have joined, for tests that leave them so."""
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.accept("laptop")
        laptop.await_standing("member")
        desk.await_reachable("laptop")
        laptop.await_reachable("desk")
        yield desk, laptop


@pytest.fixture(scope="module")
def third():
    with live_nodes("other") as (node,):
        yield node


@pytest.fixture
def other(third):
    """A daemon that is in no mesh."""
    yield third
    if third.status()["standing"] != "none":
        third.call("mesh.leave")


def on_tty(node, *arguments, typed):
    return on_a_terminal(*arguments, "--state-dir", node.state, typed=typed)


# -- the three commands --


@pytest.mark.req("MESH-JOIN-1")
def test_three_commands_join_two_machines_and_both_show_the_same_words():
    with live_nodes("desk", "laptop") as (desk, laptop):
        begun = on_tty(
            desk, "mesh", "new", "home", "--node", "desk", "--listen", f"127.0.0.1:{free_port()}", typed=[TYPED]
        )
        assert begun.code == 0, begun.shown
        code = re.search(r"bsc1-\S+", begun.shown)[0]
        joined = []
        command = threading.Thread(
            target=lambda: joined.append(on_tty(laptop, "join", code, "--node", "laptop", typed=[TYPED]))
        )
        command.start()
        words = desk.asking("laptop")["words"]
        listed = run_command("node", "list", "--state-dir", desk.state).stdout
        assert words in listed
        accepted = on_tty(desk, "node", "accept", "laptop", typed=[("Type yes: ", "yes"), TYPED])
        assert accepted.code == 0, accepted.shown
        assert words in accepted.shown
        command.join()
        assert joined[0].code == 0, joined[0].shown
        assert words in joined[0].shown
        assert "bascule node accept laptop" in joined[0].shown, "says what is typed at the other machine"
        desk.await_reachable("laptop")
        status = run_command("mesh", "status", "--state-dir", desk.state)
        assert status.returncode == 0, status
        assert re.search(r"laptop +member +yes +empty", status.stdout)


@pytest.mark.req("MESH-JOIN-1")
def test_words_that_differ_let_nobody_in():
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.asking("laptop")
        answered = on_tty(desk, "node", "accept", "laptop", typed=[("Type yes: ", "no")])
        assert answered.code != 0
        assert "bascule node deny laptop" in answered.shown
        denied = on_tty(desk, "node", "deny", "laptop", typed=[TYPED])
        assert denied.code == 0
        ended = laptop.await_standing("none")["ended"]
        assert "said no" in ended


def test_help_teaches_how_machines_join():
    shown = run_command("mesh", "--help").stdout
    assert "bascule mesh new home" in shown
    assert "bascule node accept laptop" in shown


# -- who may, and what is shown --


@pytest.mark.req("MESH-JOIN-6")
def test_an_agent_and_the_user_without_a_passphrase_change_nothing(pair):
    desk, _ = pair
    wire = LinkWire(desk.daemon.link_socket).hello()
    for method, params in (
        ("mesh.invite", {}),
        ("mesh.accept", {"node": "x", "words": "y"}),
        ("mesh.deny", {"node": "x"}),
        ("mesh.revoke", {"node": "laptop"}),
        ("mesh.leave", {}),
        ("mesh.keep", {}),
        ("mesh.new", {"mesh": "other"}),
        ("mesh.join", {"code": "bsc1-A"}),
        ("mesh.init", {"mesh": "other", "servers": ["nats://a"]}),
    ):
        answer = wire.answer(wire.request(method, params))
        assert answer["error"]["data"]["code"] == "forbidden", (method, answer)
    wire.close()
    agent = Caller(desk.daemon).register("Jerry")
    assert agent.get("/v1/mesh").json["standing"] == "member"
    assert agent.post("/v1/mesh/nodes/laptop/revoke", {}).status == 403
    # Control: the person may.
    assert desk.invite().startswith("bsc1-")


@pytest.mark.req("MESH-JOIN-7")
def test_no_secret_is_in_what_is_shown_recorded_or_logged(pair):
    desk, _ = pair
    code = read_code(desk.invite())
    desk.call("mesh.invite", ownerName="Ann")
    secrets = [code.secret.hex(), base64.urlsafe_b64encode(code.secret).decode().rstrip("="), write_code(code)]
    for node in pair:
        row = _stored_row(node)
        secrets += [each for each in (*row["keys"], row.get("mesh_secret")) if each]
    for node in pair:
        shown = [node.call(method) for method in ("mesh.status", "mesh.nodes")] + [node.call("ledger.tail", limit=200)]
        text = msgspec.json.encode(shown).decode() + node.daemon.terminal()
        for secret in secrets:
            assert secret not in text
    # Control: the store has them, which is where they are looked for above.
    assert len(secrets) == 3 + 3 + 1 + 3


def _stored_row(node):
    """Of a copy: the daemon has the file to itself."""
    with short_dir() as folder:
        for name in ("bascule.db", "bascule.db-wal"):
            if os.path.exists(f"{node.state}/{name}"):
                shutil.copy(f"{node.state}/{name}", folder)
        with contextlib.closing(sqlite3.connect(f"{folder}/bascule.db")) as database:
            (body,) = database.execute("SELECT body FROM mesh_membership").fetchone()
    return msgspec.json.decode(body)


def test_words_are_for_the_user_of_the_machine_and_not_for_agents():
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.asking("laptop")
        agent = Caller(desk.daemon).register("Jerry")
        (asking,) = [each for each in agent.get("/v1/mesh/nodes").json["nodes"] if each["standing"] == "waiting"]
        assert "words" not in asking
        assert "words" not in Caller(laptop.daemon).register("Tom").get("/v1/mesh").json["joining"]
        assert len(desk.asking("laptop")["words"].split()) == 5


# -- codes that are not good --


@pytest.mark.req("MESH-JOIN-2")
def test_a_code_that_was_stolen_is_good_for_one_of_the_two_and_the_person_sees_other_words():
    with live_nodes("desk", "laptop", "thief") as (desk, laptop, thief):
        code = desk.begin()
        thief.join(code, "laptop")
        seen = desk.asking("laptop")["words"]
        with pytest.raises(Refused, match="used already") as refused:
            laptop.join(code)
        assert "bascule node deny" in refused.value.data["hint"]
        assert seen == thief.status()["joining"]["words"]
        desk.deny("laptop")
        thief.await_standing("none")
        with pytest.raises(Refused, match="used already"):
            thief.join(code)
        # Control: with a code of its own the laptop gets in.
        assert laptop.join(desk.invite())["standing"] == "waiting"


def test_a_code_that_has_expired_is_refused_by_both_sides():
    with live_nodes("desk", "laptop", bascule__mesh__admissions__CODE_SECONDS=1) as (desk, laptop):
        code = desk.begin()
        eventually(lambda: _has_expired(code), "a second passes")
        with pytest.raises(Refused, match="has expired") as refused:
            laptop.join(code)
        assert "bascule mesh invite" in refused.value.data["hint"]
        # With a clock that is wrong, or a changed date in the code: the server does not know the key any more.
        later = msgspec.structs.replace(read_code(code), expires_ms=2**50)
        with pytest.raises(Refused, match=r"does not know this join code|has expired"):
            laptop.join(write_code(later))
        assert laptop.status()["standing"] == "none"


def _has_expired(code):
    return read_code(code).expires_ms < time.time() * 1000


@pytest.mark.req("MESH-JOIN-4")
def test_a_server_with_another_certificate_is_told_nothing(pair, other):
    desk, _ = pair
    code = read_code(desk.invite())
    wrong = msgspec.structs.replace(code, certificate=os.urandom(32))
    with pytest.raises(Refused, match="another certificate") as refused:
        other.join(write_code(wrong))
    assert "bascule mesh invite" in refused.value.data["hint"]
    mesh = msgspec.structs.replace(code, mesh_key=os.urandom(32))
    with pytest.raises(Refused, match="another mesh"):
        other.join(write_code(mesh))
    nowhere = msgspec.structs.replace(code, addresses=[f"127.0.0.1:{free_port()}"])
    with pytest.raises(Refused, match="no address of the join code answers"):
        other.join(write_code(nowhere))
    with pytest.raises(Refused, match="not a whole join code"):
        other.join(write_code(code)[:-8])
    # Control: the code as it is.
    assert other.join(write_code(code))["standing"] == "waiting"
    desk.deny("other")


@pytest.mark.parametrize(("name", "words"), [("desk", "is called desk already"), ("laptop", "laptop already")])
def test_a_name_that_is_taken_is_refused_and_another_one_may_be_chosen(pair, other, name, words):
    desk, _ = pair
    code = desk.invite()
    with pytest.raises(Refused, match=words) as refused:
        other.join(code, name)
    assert f"--node {name}-2" in refused.value.data["hint"]
    assert other.join(code, f"{name}-2")["standing"] == "waiting"
    desk.deny(f"{name}-2")


def test_a_reserved_name_is_refused_before_anybody_is_asked(pair, other):
    desk, _ = pair
    with pytest.raises(Refused, match="not a name for a node"):
        other.join(desk.invite(), "any")
    with pytest.raises(Refused):
        other.join(desk.invite(), "Not A Name")
    assert other.status()["standing"] == "none"


# -- stopping in between --


@pytest.mark.parametrize("who", ["desk", "laptop"])
def test_either_side_may_be_killed_while_a_person_is_waited_for(who):
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        words = desk.asking("laptop")["words"]
        {"desk": desk, "laptop": laptop}[who].restart()
        assert desk.asking("laptop")["words"] == words == laptop.status()["joining"]["words"]
        desk.accept("laptop")
        laptop.await_standing("member")
        desk.await_reachable("laptop")


def test_who_is_accepted_while_it_is_away_gets_its_card_when_it_is_back():
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.asking("laptop")
        laptop.kill()
        desk.accept("laptop")
        desk.restart()
        laptop.start()
        laptop.await_standing("member")
        desk.await_reachable("laptop")


@pytest.mark.req("MESH-DAY-15")
@pytest.mark.parametrize(
    "point", ["mesh.accept:after", "mesh.card:before", _long("mesh.card:after"), _long("mesh.fetched:after")]
)
def test_a_holder_that_dies_while_it_accepts_has_let_the_node_in_or_asks_again(point):
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        words = desk.asking("laptop")["words"]
        desk.restart(point)
        desk.ask_and_die("mesh.accept", node="laptop", words=words)
        desk.start()
        asks = any(
            each["node"] == "laptop" and each["standing"] == "waiting" for each in desk.call("mesh.nodes")["nodes"]
        )
        assert asks == (point == "mesh.accept:after"), "stored or not, and nothing in between"
        if asks:
            assert desk.asking("laptop")["words"] == words
            desk.accept("laptop")
        laptop.await_standing("member")
        desk.await_reachable("laptop")
        laptop.await_reachable("desk")


@pytest.mark.req("MESH-DAY-15")
def test_a_holder_that_dies_while_it_revokes_cuts_the_node_off_when_it_is_back():
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.accept("laptop")
        laptop.await_standing("member")
        desk.restart("mesh.card:before")
        laptop.await_connected()
        desk.ask_and_die("mesh.revoke", node="laptop")
        desk.start()
        eventually(lambda: not laptop.status().get("connected"), "the laptop is cut off")
        assert not desk.reaches("laptop")


@pytest.mark.req("MESH-DAY-15")
def test_a_daemon_that_dies_while_it_begins_a_mesh_has_none_and_may_begin_again():
    with live_nodes("desk") as (desk,):
        desk.restart("mesh.began:after")
        desk.ask_and_die("mesh.new", mesh="home", node="desk", listen=f"127.0.0.1:{free_port()}")
        desk.start()
        assert desk.status()["standing"] == "none"
        assert any(each["method"] == "mesh.new" and each["outcome"] == "unknown" for each in desk.call("ledger.tail"))
        assert desk.begin().startswith("bsc1-")


@pytest.mark.req("MESH-DAY-15")
@pytest.mark.parametrize("point", ["mesh.asked:after", _long("mesh.joined:before"), _long("mesh.joined:after")])
def test_a_joiner_that_dies_on_the_way_goes_on_or_begins_again_with_the_same_code(point):
    with live_nodes("desk", "laptop") as (desk, laptop):
        code = desk.begin()
        laptop.restart(point)
        if point.startswith("mesh.asked"):
            laptop.ask_and_die("mesh.join", code=code, node="laptop")
            laptop.start()
            laptop.join(code)
            desk.accept("laptop")
        else:
            laptop.join(code)
            desk.accept("laptop")
            laptop.daemon.process.wait(PATIENCE)
            laptop.wire.close()
            laptop.start()
        laptop.await_standing("member")
        desk.await_reachable("laptop")


# -- leaving and being cut off --


@pytest.mark.req("MESH-DAY-13")
def test_a_revoked_node_is_cut_off_at_once_and_stays_out():
    with live_nodes("desk", "laptop", "vm") as (desk, laptop, vm):
        laptop.join(desk.begin())
        desk.accept("laptop")
        vm.join(desk.invite())
        desk.accept("vm")
        for node in (laptop, vm):
            node.await_standing("member")
        vm.await_reachable("laptop")
        desk.call("mesh.revoke", node="laptop")
        eventually(lambda: not laptop.status().get("connected"), "the laptop is cut off")
        eventually(lambda: not vm.reaches("laptop"), "the vm does not reach it")
        assert [each["standing"] for each in vm.call("mesh.nodes")["nodes"] if each["node"] == "laptop"] == ["revoked"]
        desk.restart()
        desk.await_reachable("vm")
        assert not laptop.status().get("connected")
        with pytest.raises(Refused, match="in this mesh"):
            desk.call("mesh.revoke", node="laptop")
        # It comes again with new keys, under its old name.
        laptop.call("mesh.leave")
        laptop.join(desk.invite())
        desk.accept("laptop")
        vm.await_reachable("laptop")


def test_who_leaves_keeps_nothing_and_the_holder_ends_its_server():
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.accept("laptop")
        laptop.await_standing("member")
        laptop.call("mesh.leave")
        assert laptop.status()["standing"] == "none"
        assert laptop.call("mesh.nodes").get("nodes", []) == []
        desk.call("mesh.leave")
        assert desk.status()["standing"] == "none"
        eventually(lambda: not os.listdir(f"{desk.state}/mesh"), "the server's files are gone")
        # A new mesh does not know who was in the old one.
        code = desk.begin()
        assert [each["node"] for each in desk.call("mesh.nodes")["nodes"]] == ["desk"]
        assert laptop.join(code)["standing"] == "waiting"


def test_who_leaves_while_its_server_still_starts_is_heard_in_the_next_mesh():
    with live_nodes("desk", "laptop") as (desk, laptop):
        desk.begin()
        desk.restart()
        desk.call("mesh.leave")
        refused = Caller(desk.daemon).post("/agents/Jerry@laptop/send", {"payload": "hello"})
        assert "it is in no mesh" in refused.error["hint"]
        laptop.join(desk.begin())
        desk.accept("laptop")
        desk.await_reachable("laptop")
        laptop.await_reachable("desk")


def test_a_mesh_that_is_begun_on_a_port_in_use_leaves_nothing_behind(pair, other):
    desk, _ = pair
    taken = desk.status()["addresses"][0]
    with pytest.raises(Refused, match="port"):
        other.call("mesh.new", mesh="second", node="other", listen=taken)
    assert other.status()["standing"] == "none"
    assert not os.listdir(f"{other.state}/mesh")
    assert other.begin().startswith("bsc1-")


# -- put back from a backup --


@pytest.mark.req("MESH-DAY-16")
def test_the_machine_that_began_a_mesh_comes_back_elsewhere_with_its_copy_and_the_certificate_of_its_server():
    with live_nodes("desk", "laptop") as (desk, laptop):
        laptop.join(desk.begin())
        desk.accept("laptop")
        laptop.await_standing("member")
        copy = f"{desk.state}.db"
        assert run_command("backup", copy, "--state-dir", desk.state).returncode == 0
        desk.stop()
        before, desk.state = desk.state, f"{desk.state}2"
        assert run_command("restore", copy, "--state-dir", desk.state).returncode == 0
        desk.start()
        # Without its folder it is another server, which nobody believes: not even its own daemon.
        for node in (desk, laptop):
            eventually(lambda node=node: "shows another certificate" in str(node.status().get("faults")), "it is said")
        desk.stop()
        shutil.rmtree(f"{desk.state}/mesh")
        shutil.copytree(f"{before}/mesh", f"{desk.state}/mesh")
        desk.start()
        desk.await_reachable("laptop")
        laptop.await_reachable("desk")
