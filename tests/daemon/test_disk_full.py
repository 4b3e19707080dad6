"""A full disk: writes are refused in so many words, reads go on, and it all works again once there is room."""

import contextlib
import json
import os
import subprocess
import threading

import pytest
from living import Living, eventually, run_command
from wires import Caller, LinkWire

from bascule.admin import protocol as admin
from bascule.broker import rows as broker_rows
from bascule.kernel.rows import Record, Shape

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 and os.environ.get("CI") != "true", reason="only root can mount a disk small enough to fill"
)

DISK_BYTES = 2 * 1024 * 1024


@pytest.fixture
def disk(state):
    """A state directory on a disk of its own, two megabytes large."""
    os.mkdir(state, 0o700)
    options = f"size={DISK_BYTES},mode=0700"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", state], capture_output=True, check=False)
    if done.returncode:
        assert os.environ.get("CI") != "true", done.stderr
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield state
    finally:
        # Lazily: a daemon that a failed test left behind must not keep the mount.
        subprocess.run(["umount", "-l", state], check=True)


def fill(disk: str) -> None:
    with open(os.path.join(disk, "ballast"), "ab", buffering=0) as file:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def make_room(disk: str) -> None:
    os.unlink(os.path.join(disk, "ballast"))


def send_until_refused(local: Caller) -> tuple[list[str], object]:
    acknowledged = []
    for number in range(200):
        answer = local.post("/agents/Jerry/send", {"payload": f"{number} {'x' * 5_000}"})
        if answer.status != 200:
            return acknowledged, answer
        acknowledged.append(answer.json["ticketId"])
    raise AssertionError("the disk did not fill up")


def verify(daemon: Living) -> list[str]:
    with LinkWire(daemon.link_socket) as link:
        return link.hello().call("ledger.verify")["faults"]


def kept(local: Caller) -> set[str]:
    return {ticket["ticketId"] for ticket in local.get("/tickets?limit=1000").json}


def test_writes_are_refused_reads_go_on_and_room_brings_everything_back(disk):
    with Living(disk) as daemon:
        local = Caller(daemon)
        jerry = local.register("Jerry")
        before = local.send("Jerry", "before")
        fill(disk)
        acknowledged, refused = send_until_refused(local)
        assert refused.status == 507
        assert refused.error["code"] == "storage_full"
        assert "free space" in refused.error["hint"]
        assert int(refused.headers["retry-after"]) >= 1
        assert local.post("/agents/register", {"agentId": "Tom"}).status == 507
        assert jerry.post("/replies", {"ticketId": before, "payload": "done"}).status == 507

        ready = local.get("/readyz")
        assert (ready.status, ready.body.startswith(b"cannot write")) == (503, True)
        assert local.get("/healthz").status == 200
        assert local.gauge("bascule_store_fault") == 1
        assert [agent["agentId"] for agent in local.get("/agents").json] == ["Jerry"]
        assert kept(local) == {before, *acknowledged}
        assert local.get(f"/replies/{before}?waitMs=0").status == 204
        assert jerry.get("/agents/Jerry/inbox?waitMs=0").json["messages"][0]["payload"] == "before"
        assert verify(daemon) == []

        make_room(disk)
        assert jerry.post("/replies", {"ticketId": before, "payload": "done"}).status == 204
        after = local.send("Jerry", "after")
        assert local.register("Tom").get("/agents/Tom/inbox?waitMs=0").status == 204
        assert local.get("/readyz").status == 200
        assert local.gauge("bascule_store_fault") == 0
        assert verify(daemon) == []
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.terminal()
        assert "store_recovered" in daemon.log()
    with Living(disk) as daemon:
        assert kept(Caller(daemon)) == {before, after, *acknowledged}
        assert Caller(daemon).get(f"/replies/{before}?waitMs=0").json["payload"] == "done"
        assert verify(daemon) == []


def test_a_read_beside_a_failing_write_is_answered(disk):
    with Living(disk) as daemon:
        local = Caller(daemon)
        local.register("Jerry")
        fill(disk)
        send_until_refused(local)
        statuses: dict[str, set[int]] = {"read": set(), "write": set()}

        def write() -> None:
            with LinkWire(daemon.link_socket) as link:
                link.hello()
                for _ in range(20):
                    ids = [link.request("messages.send", {"agentId": "Jerry", "payload": "x"}) for _ in range(20)]
                    statuses["write"] |= {"error" in link.answer(id_) for id_ in ids}

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            statuses["read"].add(local.get("/agents").status)
        writer.join()
        assert statuses == {"read": {200}, "write": {True}}


def test_a_deadline_that_passes_while_the_disk_is_full_is_kept_once_there_is_room(disk):
    with Living(disk) as daemon:
        local = Caller(daemon)
        local.register("Jerry")
        ticket = local.send("Jerry", timeoutMs=600)
        fill(disk)
        send_until_refused(local)
        # The terminal is on another disk: there it says that the deadline could not be recorded.
        eventually(lambda: "store_failed" in daemon.terminal(), "the refusal is logged")
        failures = daemon.terminal().count("store_failed")
        eventually(lambda: daemon.terminal().count("store_failed") > failures, "the deadline came")
        make_room(disk)
        local.send("Jerry", "there is room again")
        assert local.get(f"/replies/{ticket}?waitMs=3000").status == 200


def test_a_stop_and_a_start_on_a_full_disk_are_said_in_words_and_lose_nothing(disk):
    with Living(disk) as daemon:
        local = Caller(daemon)
        local.register("Jerry")
        fill(disk)
        acknowledged, _ = send_until_refused(local)
        code = daemon.stop()
        assert "Traceback" not in daemon.terminal()
        assert code == 0
    fill(disk)
    # It comes up and refuses writes, or it says why it does not; either is fine, as long as it is said.
    done = run_command("up", "-d", "--port", "0", "--state-dir", disk)
    if done.returncode == 0:
        assert run_command("down", "--state-dir", disk).returncode == 0
    else:
        assert done.stderr.startswith("bascule: ")
    assert "Traceback" not in done.stderr
    make_room(disk)
    with Living(disk) as daemon:
        assert kept(Caller(daemon)) == set(acknowledged)
        assert verify(daemon) == []
        daemon.stop()
    done = run_command("ledger", "verify", "--json", "--state-dir", disk)
    assert json.loads(done.stdout)["faults"] == []


PASSPHRASE = {"passphrase": "correct horse battery staple"}
# Every method that writes, who calls it, and with what.
WRITES = {
    "agents.register": ("local", {"agentId": "Tom"}),
    "agents.revoke": ("person", {"agentId": "Jerry"}),
    "messages.send": ("local", {"agentId": "Jerry", "payload": "x"}),
    "messages.broadcast": ("local", {"agentIds": ["Jerry"], "payload": "x"}),
    "replies.post": ("Jerry", {"ticketId": "answered", "payload": "x"}),
    "inbox.ack": ("Jerry", {"agentId": "Jerry", "ticketIds": ["acked"]}),
    "tickets.cancel": ("local", {"ticketId": "cancelled"}),
    "daemon.gc": ("local", {}),
    "daemon.backup": ("local", {}),
    "person.unlock": ("local", PASSPHRASE),
}
READS = {
    "agents.heartbeat": ("Jerry", {"agentId": "Jerry"}),
    "agents.list": ("local", {}),
    "replies.wait": ("local", {"ticketId": "acked", "waitMs": 0}),
    "replies.gather": ("local", {"ticketIds": ["acked"], "waitMs": 0}),
    "inbox.take": ("Jerry", {"agentId": "Jerry", "waitMs": 0}),
    "inbox.watch": ("Jerry", {"agentId": "Jerry", "waitMs": 0}),
    "tickets.list": ("local", {}),
    "tickets.show": ("local", {"ticketId": "acked"}),
    "conversations.list": ("local", {}),
    "conversations.show": ("local", {"conversationId": "talk"}),
    "events.recent": ("local", {}),
    "daemon.status": ("local", {}),
    "daemon.doctor": ("local", {}),
    "metrics.history": ("local", {}),
    "ledger.tail": ("local", {}),
    "ledger.search": ("local", {}),
    "ledger.show": ("local", {"what": "acked"}),
    "ledger.verify": ("local", {}),
    "person.status": ("local", {}),
}
STREAMS = {
    "events.stream": "/events",
    "inbox.stream": "/agents/Jerry/inbox/stream",
    "replies.stream": "/replies/answered/stream",
    "ledger.verifyStream": "/v1/ledger/verify/stream",
}


def fill_to_the_brim(disk: str, link: LinkWire) -> None:
    fill(disk)
    for _ in range(200):
        if "error" in link.answer(link.request("messages.send", {"agentId": "Jerry", "payload": "x" * 5_000})):
            return
    raise AssertionError("the disk did not fill up")


def test_the_tables_above_name_every_method():
    # Consent and the workspace need something to act on; theirs is tested beside them.
    rows = (*broker_rows.METHODS, *admin.METHODS)
    assert {*WRITES, "person.set"} == {row.name for row in rows if row.record is Record.JOINED}
    assert {*READS, *STREAMS} == {row.name for row in rows if row.record is Record.NONE}
    assert set(STREAMS) == {row.name for row in rows if row.shape is Shape.STREAM}


def test_every_write_is_refused_every_read_answered_and_streams_go_on(disk):
    with Living(disk) as daemon, contextlib.ExitStack() as open_things:

        def link(token=None):
            return open_things.enter_context(LinkWire(daemon.link_socket)).hello(token)

        local = Caller(daemon)
        jerry = local.register("Jerry")
        wires = {"local": link(), "Jerry": link(jerry.token), "person": link()}
        for ticket in ("answered", "acked", "cancelled"):
            local.send("Jerry", ticketId=ticket, conversationId="talk")

        fill_to_the_brim(disk, wires["local"])
        assert wires["local"].refusal("person.set", PASSPHRASE)["code"] == "storage_full"
        assert wires["local"].call("person.status")["set"] is False
        make_room(disk)
        wires["local"].call("person.set", PASSPHRASE)
        wires["person"].call("person.unlock", PASSPHRASE)

        before = {
            name: open_things.enter_context(caller(name, local, jerry).open(path)) for name, path in STREAMS.items()
        }
        newest = wires["local"].call("events.recent", {"limit": 1})[-1]["id"]
        fill_to_the_brim(disk, wires["local"])
        records = wires["local"].call("daemon.status")["ledgerRecords"]
        for name, (who, params) in WRITES.items():
            assert wires[who].refusal(name, params)["code"] == "storage_full", name
        for name, (who, params) in READS.items():
            assert "error" not in wires[who].answer(wires[who].request(name, params)), name
        assert wires["local"].call("person.status").get("unlockedS") in (None, 0)
        assert wires["local"].call("daemon.status")["ledgerRecords"] == records
        meanwhile = {
            name: open_things.enter_context(caller(name, local, jerry).open(path)) for name, path in STREAMS.items()
        }
        while (checked := meanwhile["ledger.verifyStream"].event())["event"] == "progress":
            pass
        assert checked["data"]["result"]["faults"] == []

        make_room(disk)
        for name, (who, params) in WRITES.items():
            if name != "agents.revoke":
                wires[who].call(name, params)
        seen = before["events.stream"]
        assert before["replies.stream"].event()["event"] == "reply"
        assert before["inbox.stream"].event() is not None
        # Nothing is ever told about what was refused: of Tom there is one registration, and one cancelled ticket.
        notified = []
        while (event := seen.event()["data"])["event"] != "ticket.cancelled":
            notified.append((event["event"], event.get("agentId")))
        assert notified.count(("agent.registered", "Tom")) == 1
        assert newest
        wires["person"].call("agents.revoke", {"agentId": "Jerry"})
        assert verify(daemon) == []
        assert daemon.stop() == 0
    assert json.loads(run_command("ledger", "verify", "--json", "--state-dir", disk).stdout)["faults"] == []


def caller(name: str, local: Caller, jerry: Caller) -> Caller:
    return jerry if name == "inbox.stream" else local


def test_a_daemon_that_starts_on_a_full_disk_reads_refuses_and_recovers_without_another_start(disk):
    with Living(disk) as daemon:
        local = Caller(daemon)
        local.register("Jerry")
        ticket = local.send("Jerry", "before")
        fill(disk)
        daemon.kill()
    fill(disk)
    with Living(disk) as daemon:
        local = Caller(daemon)
        assert kept(local) == {ticket}
        acknowledged, refused = send_until_refused(local)
        assert refused.status == 507
        make_room(disk)
        after = local.send("Jerry", "after")
        assert kept(local) == {ticket, after, *acknowledged}
        assert verify(daemon) == []
        daemon.stop()
    assert json.loads(run_command("ledger", "verify", "--json", "--state-dir", disk).stdout)["faults"] == []


def test_a_first_start_on_a_full_disk_says_what_to_do(disk):
    with Living(disk) as daemon:
        daemon.stop()
    os.unlink(os.path.join(disk, "bascule.db"))
    fill(disk)
    done = run_command("up", "--port", "0", "--state-dir", disk)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "full" in done.stderr
    assert "free" in done.stderr
    make_room(disk)
    with Living(disk) as daemon:
        assert verify_knows_the_end_was_cut(daemon)


def verify_knows_the_end_was_cut(daemon: Living) -> bool:
    """The database that was taken away is missed: its anchors are not."""
    return any("cut off" in fault or "is not the one" in fault for fault in verify(daemon))
