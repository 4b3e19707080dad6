"""A full disk: writes are refused in so many words, reads go on, and it all works again once there is room."""

import json
import os
import subprocess
import threading
import time

import pytest
from living import Living, eventually, run_command
from wires import Caller, LinkWire

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
        until = time.monotonic() + 0.5

        def write() -> None:
            with LinkWire(daemon.link_socket) as link:
                link.hello()
                while time.monotonic() < until:
                    ids = [link.request("messages.send", {"agentId": "Jerry", "payload": "x"}) for _ in range(20)]
                    statuses["write"] |= {"error" in link.answer(id_) for id_ in ids}

        writer = threading.Thread(target=write)
        writer.start()
        while time.monotonic() < until:
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
