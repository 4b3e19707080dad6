"""`bascule ledger`: what happened, and whether the record of it is whole; on a running and on a stopped daemon."""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3

import pytest
from exit_codes import NOT_FOUND, UNREACHABLE
from living import Ended, Living, forked, run_command, short_dir
from wires import Caller

from inside import append_anchor
from patience import PATIENCE

TAMPERED = 1


def ledger(state: str, *arguments: str) -> Ended:
    done = forked("ledger", *arguments, "--state-dir", state)
    assert "Traceback" not in done.output, done.output
    return done


def busy(daemon: Living) -> None:
    """Some of everything that is recorded."""
    local = Caller(daemon)
    jerry = local.register("Jerry")
    for number in range(5):
        local.send("Jerry", "hello", ticketId=f"t-{number}")
    jerry.post("/agents/Jerry/inbox/ack", {"ticketIds": ["t-0"]})
    jerry.post("/replies", {"ticketId": "t-1", "payload": "done"})
    local.post("/tickets/t-2/cancel", {"reason": "tired"})
    local.post("/replies", {"ticketId": "t-3", "payload": "not mine to answer"})


@pytest.fixture(scope="module")
def running():
    with short_dir() as folder, Living(f"{folder}/s") as daemon:
        busy(daemon)
        yield daemon.state


@pytest.fixture(scope="module")
def template():
    with short_dir() as folder:
        with Living(f"{folder}/s") as daemon:
            busy(daemon)
            assert daemon.stop() == 0
        yield f"{folder}/s"


@pytest.fixture
def stopped(state, template):
    shutil.copytree(template, state)
    return state


# -- the running daemon ---------------------------------------------------------------------------


def test_tail_shows_the_newest_records_oldest_first(running):
    done = run_command("ledger", "tail", "-n", "3", "--state-dir", running)
    assert done.returncode == 0
    assert [line.split()[4] for line in done.stdout.splitlines()] == ["replies.post", "tickets.cancel", "replies.post"]
    numbers = [int(line.split()[0]) for line in done.stdout.splitlines()]
    assert numbers == sorted(numbers)
    assert "forbidden" in done.stdout.splitlines()[-1]


def test_tail_as_json_has_every_field(running):
    records = json.loads(ledger(running, "tail", "-n", "1000", "--json").output)
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    sent = next(record for record in records if record["method"] == "messages.send")
    assert (sent["principal"], sent["outcome"], sent["subject"]) == ("local", "ok", "t-0")
    assert sent["details"]["to"] == "Jerry"
    assert sent["details"]["bytes"] == len('"hello"')
    assert "hello" not in json.dumps(records)


@pytest.mark.parametrize(
    ("what", "methods"),
    [
        ("t-1", ["messages.send", "replies.post"]),
        ("t-2", ["messages.send", "tickets.cancel"]),
        ("tickets.cancel", ["tickets.cancel"]),
        ("1", ["daemon.start"]),
        ("Jerry", ["agents.register", *["messages.send"] * 5, "inbox.ack", "replies.post"]),
    ],
)
def test_show_finds_all_records_of_a_ticket_a_method_a_number_and_a_handle(running, what, methods):
    assert [record["method"] for record in json.loads(ledger(running, "show", what, "--json").output)] == methods


def test_show_of_what_never_happened_says_so(running):
    done = ledger(running, "show", "t-unknown")
    assert (done.code, done.output) == (NOT_FOUND, "bascule: the ledger has no record of t-unknown\n")


def test_verify_of_a_running_daemon_says_ok(running):
    done = run_command("ledger", "verify", "--state-dir", running)
    assert (done.returncode, done.stdout[:4]) == (0, "ok: ")


# -- the stopped one ------------------------------------------------------------------------------


def test_verify_of_a_stopped_daemon_says_ok_and_changes_nothing(stopped):
    done = ledger(stopped, "verify", "--json")
    result = json.loads(done.output)
    assert (done.code, result["ok"], result["faults"]) == (0, True, [])
    assert result["records"] == result["last"] - result["first"] + 1 > 10
    assert result["anchors"] == 2
    assert json.loads(ledger(stopped, "verify", "--json").output)["head"] == result["head"]


@pytest.mark.parametrize("verb", [["tail"], ["show", "t-1"]])
def test_tail_and_show_need_a_running_daemon_and_say_so(stopped, verb):
    done = ledger(stopped, *verb)
    assert done.code == UNREACHABLE
    assert "bascule up -d" in done.output


@pytest.mark.parametrize("made", [False, True], ids=["nothing there", "an empty folder"])
def test_verify_where_no_daemon_ever_was_says_so_and_makes_nothing(state, made):
    if made:
        os.mkdir(state, 0o700)
    done = ledger(state, "verify")
    assert done.code not in (0, TAMPERED)
    assert state in done.output
    assert not os.path.exists(os.path.join(state, "bascule.db"))
    assert os.path.exists(state) == made


# -- tampering ------------------------------------------------------------------------------------


def rows(connection: sqlite3.Connection) -> list[tuple[int, bytes, bytes]]:
    return list(connection.execute("SELECT seq, hash, body FROM ledger ORDER BY seq"))


def forge_from(connection: sqlite3.Connection, number: int) -> None:
    """Change a record and every hash after it, as somebody who has read the source would."""
    previous = rows(connection)[number - 2][1]
    for seq, _, body in rows(connection)[number - 1 :]:
        changed = body.replace(b"Jerry", b"Larry") if seq == number else body
        previous = hashlib.sha256(previous + changed).digest()
        connection.execute("UPDATE ledger SET hash = ?, body = ? WHERE seq = ?", (previous, changed, seq))


def flip(connection: sqlite3.Connection) -> None:
    (body,) = connection.execute("SELECT body FROM ledger WHERE seq = 5").fetchone()
    middle = len(body) // 2
    flipped = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
    connection.execute("UPDATE ledger SET body = ? WHERE seq = 5", (flipped,))


def swap(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE ledger SET seq = -1 WHERE seq = 4")
    connection.execute("UPDATE ledger SET seq = 4 WHERE seq = 5")
    connection.execute("UPDATE ledger SET seq = 5 WHERE seq = -1")


def append(connection: sqlite3.Connection) -> None:
    seq, hash_, body = rows(connection)[-1]
    connection.execute("INSERT INTO ledger VALUES (?, ?, ?)", (seq + 1, hash_, body))


TAMPERING = {
    "a byte flipped in a record": (flip, "record 5 "),
    "the hash of a record changed": (
        lambda db: db.execute("UPDATE ledger SET hash = zeroblob(32) WHERE seq = 5"),
        "record 5 ",
    ),
    "a record deleted": (lambda db: db.execute("DELETE FROM ledger WHERE seq = 5"), "records 5 to 5 are gone"),
    "several deleted": (
        lambda db: db.execute("DELETE FROM ledger WHERE seq BETWEEN 3 AND 6"),
        "records 3 to 6 are gone",
    ),
    "the first deleted": (lambda db: db.execute("DELETE FROM ledger WHERE seq = 1"), "records before 2 are gone"),
    "two swapped": (swap, "record 4 "),
    "one copied to the end": (append, "calls itself"),
    "the last deleted behind the anchor": (
        lambda db: db.execute("DELETE FROM ledger WHERE seq = (SELECT max(seq) FROM ledger)"),
        "the end was cut off",
    ),
    "half deleted behind the anchor": (
        lambda db: db.execute("DELETE FROM ledger WHERE seq > 6"),
        "the ledger ends at record 6",
    ),
    "everything deleted": (lambda db: db.execute("DELETE FROM ledger"), "the end was cut off"),
    "a record changed and every hash after it made to fit": (lambda db: forge_from(db, 4), "is not the one that was"),
    "a record that is no record": (
        lambda db: db.execute("UPDATE ledger SET body = x'00' WHERE seq = 5"),
        "record 5 cannot be read",
    ),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_is_found_and_named(stopped, how):
    tamper, expected = TAMPERING[how]
    connection = sqlite3.connect(os.path.join(stopped, "bascule.db"))
    with connection:
        tamper(connection)
    connection.close()
    done = ledger(stopped, "verify")
    assert done.code == TAMPERED
    assert expected in done.output
    assert "FAULT: " in done.output


def recompute_anchors(state: str) -> None:
    """Each line with the hash that its record has now, and a checksum that fits."""
    file = os.path.join(state, "anchors.jsonl")
    with contextlib.closing(sqlite3.connect(os.path.join(state, "bascule.db"))) as connection:
        hashes = {seq: hash_.hex() for seq, hash_, _ in rows(connection)}
    with open(file, encoding="utf-8") as lines:
        anchors = [json.loads(line) for line in lines]
    os.unlink(file)
    for each in anchors:
        head = hashes.get(each["seq"], each["head"])
        append_anchor(file, seq=each["seq"], head=head, at=each["at"], why=each["why"])


def forge(state: str, number: int) -> None:
    with contextlib.closing(sqlite3.connect(os.path.join(state, "bascule.db"))) as connection, connection:
        forge_from(connection, number)


# What it says of itself (README.md, SECURITY.md, `ledger verify --help`): who computes the hashes anew is stopped by an
# anchor behind the edit, and by nothing when the anchors are written anew as well.
NOT_FOUND_BY_THIS = "whoever runs as you and computes the hashes anew is not found by this"


def test_an_edit_with_all_hashes_computed_anew_is_found_by_an_anchor_behind_it(stopped):
    forge(stopped, 4)
    done = ledger(stopped, "verify")
    assert (done.code, "is not the one that was anchored" in done.output) == (TAMPERED, True)


def test_an_edit_behind_the_newest_anchor_with_all_hashes_computed_anew_is_not_found_and_verify_says_so(stopped):
    file = os.path.join(stopped, "anchors.jsonl")
    with open(file, encoding="utf-8") as lines:
        first = lines.readline()
    with open(file, "w", encoding="utf-8") as shortened:
        shortened.write(first)
    assert json.loads(first)["seq"] < 4
    forge(stopped, 4)
    done = ledger(stopped, "verify")
    assert (done.code, NOT_FOUND_BY_THIS in done.output) == (0, True)


def test_an_edit_with_the_hashes_and_the_anchors_computed_anew_is_not_found_and_verify_says_so(stopped):
    forge(stopped, 4)
    recompute_anchors(stopped)
    done = ledger(stopped, "verify")
    assert (done.code, NOT_FOUND_BY_THIS in done.output) == (0, True)
    helped = forked("ledger", "verify", "--help").output
    assert "computes the hashes anew" in " ".join(helped.split())


def test_a_daemon_that_runs_on_a_tampered_ledger_tells_it_too(stopped):
    connection = sqlite3.connect(os.path.join(stopped, "bascule.db"))
    with connection:
        flip(connection)
    connection.close()
    with Living(stopped):
        done = ledger(stopped, "verify")
        assert done.code == TAMPERED
        assert "record 5 " in done.output


def test_a_changed_anchor_is_found(stopped):
    path = os.path.join(stopped, "anchors.jsonl")
    with open(path) as file:
        text = file.read()
    last = json.loads(text.splitlines()[-1])
    with open(path, "w") as file:
        file.write(text.replace(last["head"], "0" * 64))
    done = ledger(stopped, "verify")
    assert done.code == TAMPERED
    assert "line 2 of the anchors file is not an anchor of ours: changed or damaged" in done.output


def test_an_anchor_of_another_record_is_found(stopped):
    path = os.path.join(stopped, "anchors.jsonl")
    with open(path) as file:
        last = json.loads(file.read().splitlines()[-1])
    append_anchor(path, seq=last["seq"], head="0" * 64, at=last["at"], why="stop")
    done = ledger(stopped, "verify")
    assert done.code == TAMPERED
    assert "is not the one that was anchored (stop)" in done.output


def test_an_anchor_cut_short_by_a_crash_is_no_tampering_now_or_after_the_next_start(stopped):
    path = os.path.join(stopped, "anchors.jsonl")
    os.truncate(path, os.path.getsize(path) - 20)
    assert ledger(stopped, "verify").code == 0
    with Living(stopped) as daemon:
        daemon.stop()
    assert json.loads(ledger(stopped, "verify", "--json").output)["faults"] == []


def test_a_damaged_file_is_said_in_a_sentence(stopped):
    path = os.path.join(stopped, "bascule.db")
    with open(path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xaa" * (os.path.getsize(path) - 4096))
    done = ledger(stopped, "verify")
    assert done.code not in (0, 2)
    assert path in done.output


# -- a database that was put back -----------------------------------------------------------------


def newcomer(daemon: Living) -> None:
    """A record or two that no life before had."""
    Caller(daemon).register(f"Jerry-{os.urandom(4).hex()}")


def store_of(folder: str) -> None:
    """A life that ends well."""
    with Living(f"{folder}/s") as daemon:
        newcomer(daemon)
        daemon.stop()


def put_back(folder: str, saved: str) -> None:
    database = os.path.join(folder, "s", os.path.basename(saved))
    for end in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(database + end)
    shutil.copyfile(saved, database)


def seen(folder: str, **living) -> tuple[str, str, str, dict[str, object]]:
    """What the next life says of its ledger: status, doctor, log, and its start record."""
    with Living(f"{folder}/s", **living) as daemon:
        status = json.loads(forked("status", "--json", "--state-dir", daemon.state).output)
        shown = forked("status", "--state-dir", daemon.state).output
        doctor = forked("doctor", "--state-dir", daemon.state, seconds=PATIENCE).output
        start = json.loads(ledger(daemon.state, "show", "daemon.start", "--json").output)[-1]["details"]
        assert (status.get("ledgerProblem") or "") in shown
        assert Caller(daemon).get("/agents").status == 200, "it works on, whatever it has to say"
        log = daemon.log()
        daemon.stop()
    return status.get("ledgerProblem") or "", doctor, log, start


def test_a_database_that_was_put_back_is_noticed_at_the_next_start_and_after_it():
    with short_dir() as folder:
        store_of(folder)
        database = f"{folder}/s/bascule.db"
        saved = f"{folder}/{os.path.basename(database)}"
        shutil.copyfile(database, saved)
        before = seen(folder)
        assert before[0] == ""
        assert "it goes on from its anchors" in before[1]
        store_of(folder)
        put_back(folder, saved)
        problem, doctor, log, start = seen(folder)
        assert "was anchored at" in problem
        assert "the database is older than that" in problem
        assert "If you put a backup back" in doctor
        assert '"event":"ledger_rolled_back"' in log
        assert start["ledger_problem"] == problem
        # The chain has grown past the anchors meanwhile; they still do not fit.
        for _ in range(3):
            store_of(folder)
        assert "the database was put back and used again" in seen(folder)[0]
        # The way on that doctor names.
        anchors = f"{folder}/s/anchors.jsonl"
        os.rename(anchors, anchors + ".old")
        assert seen(folder)[0] == ""


def test_a_daemon_that_was_killed_is_not_taken_for_one_that_was_put_back():
    with short_dir() as folder:
        for _ in range(2):
            with Living(f"{folder}/s") as daemon:
                newcomer(daemon)
                daemon.kill()
        assert seen(folder)[0] == ""
