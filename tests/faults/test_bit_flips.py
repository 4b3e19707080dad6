"""One flipped bit anywhere in what is kept: it is said, or it changes nothing. Never a silent change."""

import os
import random
import shutil
import sqlite3
from collections import Counter
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from living import Living, eventually, forked
from wires import Caller, LinkWire

from bascule.admin.ledger_methods import verify
from bascule.admin.records import DaemonFact
from bascule.bridge_list import tables_of
from bascule.broker.records import AgentRecord, Message, Remembered, Ticket
from bascule.foundation import paths
from bascule.kernel.ledger import Segment
from bascule.stores import sqlite, wal
from bascule.stores.anchor_file import AnchorFile
from bascule.stores.schema import StoreUnusable
from bascule.stores.sqlite import SqliteStore
from bascule.testing.house import House

TIMES = 25 if os.environ.get("BASCULE_LONG") else 1
TYPES = {
    "agents": AgentRecord,
    "tickets": Ticket,
    "messages": Message,
    "remembered": Remembered,
    "segments": Segment,
    "house": DaemonFact,
}
PAGE_BYTES = sqlite.PAGE_BYTES
# Where a page's header and the places of its rows are: few bytes, on which everything rests.
STRUCTURE_BYTES = 100


class Content(NamedTuple):
    tables: dict
    ledger: list
    anchors: list


class Known(NamedTuple):
    """Files with a content that is known to the last byte: closed, and as a crash leaves them."""

    folder: str
    closed: Content
    crashed: Content


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = os.fspath(tmp_path_factory.mktemp("known"))
    path = f"{folder}/closed.db"
    # However slow the machine: it does not rest, so the log of the crash has all of it.
    house = House(store=SqliteStore(path, fold_after=3_600, tables=tables_of()), segment_records=30)
    anchors = AnchorFile(f"{folder}/anchors.jsonl")
    for number in range(4):
        house.register(f"Agent{number}", metadata={"number": number})
        house.journal.anchor(f"test {number}")
    house.call("local", "person.set", {"passphrase": "correct horse battery"})
    for number in range(30):
        to = f"Agent{number % 4}"
        message = {"agentId": to, "payload": f"message {number} {'y' * (number % 5 * 400)}"}
        ticket = house.call("local", "messages.send", message)["ticketId"]
        if number % 3 == 0:
            house.call(f"agent:{to}", "replies.post", {"ticketId": ticket, "payload": {"answer": number}})
        if number == 15:
            # Those answered so far expire, and leave free pages and remembered ids.
            house.advance(1_800)
            house.journal.anchor("half")
    for name in ("", "-wal"):
        shutil.copy(path + name, f"{folder}/crashed.db{name}")
    for anchor in house.anchors.anchors:
        anchors.append(anchor)
    house.close()
    for each in ("closed", "crashed"):
        for name in os.listdir(folder):
            if name.startswith(each):
                shutil.copy(f"{folder}/{name}", f"{folder}/kept-{name}")
    closed, crashed = (read(f"{folder}/{each}.db", anchors) for each in ("closed", "crashed"))
    # Nothing is said of files that are whole.
    assert (closed[1], crashed[1]) == ([], [])
    return Known(folder, closed[0], crashed[0])


def read(path, anchors):
    """Everything as a start and `ledger verify` see it, and what they say about it."""
    store = SqliteStore(path, tables=tables_of())
    try:
        faults = ["the end was cut"] if store.broken_end is not None else []
        tables = {name: dict(store.load(name, type_)) for name, type_ in TYPES.items()}
        segments = list(tables["segments"].values())
        store.ledger_head()
        faults += store.read_ledger(lambda ledger: verify(ledger, segments, anchors)).result().faults
        rows = store.read_ledger(lambda ledger: ledger.span(0, 10_000)).result()
        return Content(tables, rows, anchors.read()[0]), faults
    finally:
        store.close()


def fresh(known, kind, folder):
    """A copy to be damaged."""
    for suffix in ("", "-wal"):
        source, copy = f"{known.folder}/kept-{kind}.db{suffix}", f"{folder}/x.db{suffix}"
        if os.path.exists(source):
            shutil.copy(source, copy)
        elif os.path.exists(copy):
            os.unlink(copy)
    shutil.copy(f"{known.folder}/anchors.jsonl", f"{folder}/anchors.jsonl")


def flip(path, at, bit):
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def outcome(known, kind, folder, name, place):
    """What one flipped bit does: refused, said, same; or silent."""
    fresh(known, kind, folder)
    flip(f"{folder}/{name}", *place)
    try:
        content, faults = read(f"{folder}/x.db", AnchorFile(f"{folder}/anchors.jsonl"))
    except StoreUnusable:
        return "refused"
    if faults:
        return "said"
    return "same" if content == getattr(known, kind) else "silent"


def some_places(path, count):
    """Half of them anywhere, half where the structure of a page is."""
    size = os.path.getsize(path)
    rng = random.Random()
    for number in range(count):
        at = rng.randrange(size)
        if number % 2:
            at = min(size - 1, at // PAGE_BYTES * PAGE_BYTES + rng.randrange(STRUCTURE_BYTES))
        yield at, rng.randrange(8)


def flips(known, kind, folder, name, where):
    fresh(known, kind, folder)
    seen = Counter()
    for at, bit in list(where):
        what = outcome(known, kind, folder, name, (at, bit))
        assert what != "silent", f"bit {bit} of byte {at} of {name} ({kind}) changes what is kept, and nobody says so"
        seen[what] += 1
    return seen


@pytest.mark.parametrize("part", range(TIMES))
@pytest.mark.parametrize("where", [("closed", "x.db", 90), ("crashed", "x.db-wal", 70)], ids=["database", "wal"])
def test_a_flipped_bit_in_database_or_wal_is_found_or_harmless(known, tmp_path, where, part):
    kind, name, count = where
    fresh(known, kind, tmp_path)
    seen = flips(known, kind, tmp_path, name, some_places(f"{tmp_path}/{name}", count))
    assert seen["refused"] + seen["said"] > 0
    assert sum(seen.values()) == count


@pytest.mark.parametrize("part", range(TIMES))
def test_a_flipped_bit_in_the_anchors_is_found_or_harmless(known, tmp_path, part):
    size = os.path.getsize(f"{known.folder}/anchors.jsonl")
    where = [(random.randrange(size), random.randrange(8)) for _ in range(40)]
    seen = flips(known, "closed", tmp_path, "anchors.jsonl", where)
    assert seen["said"] > 20


def test_every_flipped_bit_in_the_version_of_the_schema_is_found(known, tmp_path):
    """Four bytes of the file's header; with the first bit set the version is negative."""
    places_of_it = [(at, bit) for at in range(60, 64) for bit in range(8)]
    assert flips(known, "closed", tmp_path, "x.db", places_of_it) == {"refused": 32}


@pytest.mark.long
def test_every_flipped_bit_in_the_files_header_is_found_or_harmless(known, tmp_path):
    flips(known, "closed", tmp_path, "x.db", [(at, bit) for at in range(100) for bit in range(8)])


# -- that the test sees what it should see --


class Anything(int):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = int.__hash__


def test_without_checksums_of_rows_the_same_flips_are_silent(known, tmp_path, monkeypatch):
    fresh(known, "closed", tmp_path)
    with open(f"{tmp_path}/x.db", "rb") as file:
        at = file.read().index(b"message 29")
    assert outcome(known, "closed", tmp_path, "x.db", (at, 0)) == "refused"
    monkeypatch.setattr(sqlite, "zlib", SimpleNamespace(crc32=lambda *_: Anything()))
    assert outcome(known, "closed", tmp_path, "x.db", (at, 0)) == "silent"


def test_without_a_look_at_the_wal_flips_there_lose_commits_silently(known, tmp_path, monkeypatch):
    size = os.path.getsize(f"{known.folder}/kept-crashed.db-wal")
    # Behind the last anchor, which would tell too, and before the last commit.
    where = [(at, 3) for at in range(size * 3 // 4, size * 9 // 10, 10_001)]
    assert set(flips(known, "crashed", tmp_path, "x.db-wal", where)) == {"refused"}
    monkeypatch.setattr(wal, "find_break", lambda _path: None)
    assert {outcome(known, "crashed", tmp_path, "x.db-wal", each) for each in where} == {"silent"}


def test_without_a_walk_through_the_file_a_row_can_vanish(known, tmp_path, monkeypatch):
    """The number of rows on a page is one byte: with a bit less, the last of them are not there."""
    fresh(known, "closed", tmp_path)
    connection = sqlite3.connect(f"{tmp_path}/x.db")
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'remembered'").fetchone()
    connection.close()
    at = (root - 1) * PAGE_BYTES + 4
    with open(f"{tmp_path}/x.db", "rb") as file:
        rows = file.read()[at]
    bit = (rows & -rows).bit_length() - 1
    assert outcome(known, "closed", tmp_path, "x.db", (at, bit)) == "refused"
    monkeypatch.setattr(sqlite, "CHECK_ALWAYS_BYTES", 0)
    assert outcome(known, "closed", tmp_path, "x.db", (at, bit)) == "silent"


# -- the real daemon --


@pytest.fixture
def crashed(state):
    """A state directory as kill -9 leaves it: everything since the start is in the WAL."""
    with Living(state, port=0) as daemon, LinkWire(daemon.link_socket) as link:
        link.hello().call("agents.register", {"agentId": "Jerry"})
        for number in range(30):
            link.call("messages.send", {"agentId": "Jerry", "payload": f"hello {number}", "ticketId": f"t{number}"})
        daemon.kill()
    return state


def refusal(state):
    with pytest.raises(AssertionError, match="the daemon ended") as refused:
        Living(state, port=0)
    return str(refused.value)


def tickets(daemon):
    with LinkWire(daemon.link_socket) as link:
        return {each["ticketId"] for each in link.hello().call("tickets.list", {"limit": 1000})}


def offset_of(path, text):
    with open(path, "rb") as file:
        return file.read().index(text)


def test_a_daemon_refuses_a_damaged_wal_leaves_it_and_the_hint_leads_on(crashed):
    log = paths.database_file(crashed) + "-wal"
    flip(log, offset_of(log, b"hello 20"), 0)
    size = os.path.getsize(log)
    assert f"{log} is damaged at byte " in refusal(crashed)
    faults = forked("ledger", "verify", "--state-dir", crashed).output
    assert f"{log} is damaged at byte " in faults
    assert os.path.getsize(log) == size
    command = faults.partition("truncate -s ")[2].split("`")[0]
    os.truncate(log, int(command.split()[0]))
    with Living(crashed, port=0) as daemon:
        assert tickets(daemon) == {f"t{number}" for number in range(20)}


def test_a_daemon_says_that_the_end_of_its_wal_is_cut(crashed):
    """The last commit could be what a crash cut off: that is no reason to refuse, but it is said."""
    log = paths.database_file(crashed) + "-wal"
    flip(log, os.path.getsize(log) - 1, 0)
    with Living(crashed, port=0) as daemon:
        eventually(lambda: "store_end_cut" in daemon.terminal(), "it is said")
        assert tickets(daemon) == {f"t{number}" for number in range(29)}


def test_a_daemon_names_the_row_that_changed(crashed):
    with Living(crashed, port=0) as daemon:
        daemon.stop()
    path = paths.database_file(crashed)
    flip(path, offset_of(path, b"hello 7"), 0)
    assert "messages row 't7/0' does not match its checksum" in refusal(crashed)


def test_a_changed_token_opens_nothing(state):
    with Living(state) as daemon:
        Caller(daemon).register("Jerry")
        path = paths.token_file(state, "Jerry")
        flip(path, 5, 0)
        with open(path) as file:
            assert Caller(daemon, file.read()).get("/agents/Jerry/inbox?waitMs=0").status == 401


def test_a_private_file_that_holds_no_text_is_said(tmp_path):
    path = f"{tmp_path}/x.token"
    paths.write_private_file(path, "a" * 43)
    flip(path, 5, 7)
    with pytest.raises(paths.UnsafePlace, match="is damaged"):
        paths.read_private_file(path)


@pytest.mark.parametrize("name", ["local.token", "digest.key"])
def test_a_secret_that_is_none_is_refused_with_what_to_do(state, name):
    os.mkdir(state, 0o700)
    paths.write_private_file(f"{state}/{name}", "a" * 20 + "!" + "a" * 22)
    done = forked("up", "--port", "0", "--state-dir", state)
    assert done.code != 0
    assert f"bascule: {state}/{name} is damaged" in done.output
    assert "move it away" in done.output


def test_a_digest_key_that_changed_is_said_and_recorded(state):
    with Living(state, port=0) as daemon:
        daemon.stop()
    path = os.path.join(state, "digest.key")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(("b" if text[0] == "a" else "a") + text[1:])
    with Living(state, port=0) as daemon, LinkWire(daemon.link_socket) as link:
        eventually(lambda: "digest_key_changed" in daemon.terminal(), "it is said")
        records = link.hello().call("ledger.tail", {"limit": 5})
        assert records[-1]["details"]["digest_key"] == "changed"
