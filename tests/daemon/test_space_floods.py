"""A loop inside a sandbox that is refused again and again: the ledger, the disk and everybody else hardly notice."""

import os
from pathlib import Path

import pytest
from fenced import fenced
from living import Living, short_dir
from wires import Caller

from bascule.foundation import paths

# Connections of one command at the space's own socket, each with as many refused requests as it is served.
FLOOD = """
import os, socket
path = os.environ["BASCULE_SPACE_SOCK"]
body = b'{"ticketId":"%(ticket)s","payload":"mine"}'
lines = [b"POST /replies HTTP/1.1", b"Host: space", b"Content-Type: application/json"]
lines.append(b"Content-Length: %%d" %% len(body))
request = b"\\r\\n".join([*lines, b"", body])
refused = overloaded = 0
while refused + overloaded < %(count)d:
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(60)
        door.connect(path)
        door.sendall(request)
        answer = door.recv(65536)
        refused += b" 403 " in answer[:20]
        overloaded += b" 429 " in answer[:20] or b" 503 " in answer[:20]
print(refused, overloaded)
"""
# A record takes some 300 bytes and its row; the WAL is filled in steps.
MAX_GROWTH_BYTES = 1024 * 1024


def records(inside) -> int:
    return inside.client.call("ledger.tail", {"limit": 1})[0]["seq"]


def disk(daemon) -> int:
    """What is used: at rest the write-ahead log has a fixed length, most of it zeros."""
    path = paths.database_file(daemon.state)
    return os.path.getsize(path) + len(Path(path + "-wal").read_bytes().rstrip(b"\0"))


def flooded(tmp_path, count, **living):
    """What a command that asks `count` times for what is not its own leaves: records, bytes, and what it was told."""
    with short_dir() as folder, Living(f"{folder}/s", **living) as daemon:
        local = Caller(daemon)
        local.register("Tom")
        ticket = local.send("Tom", "not for the sandbox")
        with fenced(daemon, tmp_path / "work") as inside:
            inside.asks(("GET", "/agents"))
            before, size = records(inside), disk(daemon)
            printed = inside.run(FLOOD % {"ticket": ticket, "count": count}).split()
            # The last record is of somebody else, who was not in anybody's way.
            assert local.send("Tom", "still here")
            return records(inside) - before, disk(daemon) - size, [int(each) for each in printed]


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_refused_calls_from_a_sandbox_leave_a_bounded_record(tmp_path, count):
    grown, size, (refused, overloaded) = flooded(tmp_path, count)
    assert refused + overloaded == count
    assert refused > 400, "the attack got through to where refusals are recorded"
    assert overloaded > 0, "a space's agent has a smaller quota than others"
    # Twenty of the kind, one count per minute, and the few of the command itself.
    assert grown < 60
    assert size < MAX_GROWTH_BYTES


def test_without_the_guard_every_refused_call_is_a_record(tmp_path):
    """The control: the same loop against a daemon that counts nothing together and lets spaces call like others."""
    quota = {"bascule.daemon.quota.SPACE_CALLS_PER_SECOND": 10**6, "bascule.daemon.quota.SPACE_BURST_CALLS": 10**6}
    each = "from bascule.kernel.refusals import Refusals as R; R.__init__.__kwdefaults__['one_by_one'] = 10**9"
    grown, _, (refused, overloaded) = flooded(tmp_path, 600, constants=quota, bug=each)
    assert (refused, overloaded) == (600, 0)
    assert grown >= 600
