"""The plug is pulled while several clients write: whatever was acknowledged is there afterwards."""

import json
import os
import random
import subprocess

import pytest
from living import Living, run_command
from writers import Book, Writers

CUTS = 10
# A new disk now and then: what was ever acknowledged there is looked for once more at its end.
DISKS = 25 if os.environ.get("BASCULE_LONG") else 1
# Acknowledgements in one life: from "just started" to several folds of the WAL.
FEWEST, MOST = 1, 600
SETTINGS = {
    "port": 0,
    "log": "json",
    "max_open_tickets": 1_000_000,
    "max_inbox_messages": 1_000_000,
    "max_kept_messages": 10_000_000,
    "calls_per_second": 0,
}
# So that folding the WAL back is in the story too; the default of 4,000 pages is more than one life writes.
FOLD_OFTEN = {"bascule.stores.sqlite.WAL_CHECKPOINT_PAGES": 100}
# The log is blanked between any two commits.
REST_OFTEN = {**FOLD_OFTEN, "bascule.stores.sqlite.FOLD_AFTER_SECONDS": 0.0005}


def live_and_die(disk, book, life, rng, *, constants=FOLD_OFTEN, **settings):
    """One life of the daemon, from a start to a cut in the middle of its work; what is missing at its start."""
    with Living(disk.state, errors=disk.errors, constants=constants, **SETTINGS, **settings) as daemon:
        missing = book.missing(disk.state, daemon.link_socket, of_last_life=True)
        writers = Writers(daemon.link_socket, book, life)
        writers.wait_for(book.count + rng.randint(FEWEST, MOST))
        book.power = "going"
        disk.cut()
        book.power = "off"
        if rng.random() < 0.5:
            # The machine lives on without its disk: nothing may be acknowledged on a sync that failed.
            writers.join()
        daemon.kill()
        writers.join()
        disk.replug()
        book.power = "on"
    return missing


def verify(disk):
    done = run_command("ledger", "verify", "--json", "--state-dir", disk.state)
    return json.loads(done.stdout)["faults"]


# Ten starts; a machine that runs much else beside may need seconds for each.
@pytest.mark.parametrize("number", range(DISKS))
@pytest.mark.parametrize("constants", [FOLD_OFTEN, REST_OFTEN], ids=["fold", "rest"])
def test_nothing_acknowledged_is_lost_when_the_power_is_cut(cut_disk, number, constants):
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    book = Book()
    for life in range(CUTS):
        missing = live_and_die(cut_disk, book, life, rng, constants=constants, durability="fsync")
        assert missing == [], f"seed {seed}, life {life}"
    assert verify(cut_disk) == []
    with Living(cut_disk.state, errors=cut_disk.errors, **SETTINGS) as daemon:
        assert book.missing(cut_disk.state, daemon.link_socket) == []
        assert daemon.stop() == 0
    assert verify(cut_disk) == []
    assert book.strange == []
    print(f"{CUTS} cuts, {book.count} acknowledged, none lost")  # noqa: T201 - the figure, for `pytest -s`


def test_a_disk_whose_mount_another_namespace_has_copied_comes_back_from_a_cut(cut_disk):
    """Sandboxes of other tests start at any moment, and each begins with a copy of all mounts."""
    copier = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo copied; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with copier:
        assert copier.stdout.readline() == b"copied\n"
        with open(f"{cut_disk.mount_point}/kept", "w") as file:
            file.write("synced")
            file.flush()
            os.fsync(file.fileno())
        cut_disk.cut()
        cut_disk.replug()
        with open(f"{cut_disk.mount_point}/kept") as file:
            assert file.read() == "synced"


def test_without_syncing_the_same_cuts_lose_what_was_acknowledged(cut_disk):
    """The control: a test that finds nothing missing here would find nothing missing anywhere."""
    book = Book()
    rng = random.Random()
    # A cut may come right after the WAL was folded back, which syncs; not six times.
    for life in range(6):
        missing = live_and_die(cut_disk, book, life, rng, durability="relaxed")
        if any(each.startswith(("message", "reply", "acknowledgement", "token of")) for each in missing):
            return
    pytest.fail(f"{book.count} acknowledged without a sync, and all of it is there: this test is blind")
