"""An I/O error at the n-th call, for every n: refused, never acknowledged, and nothing acknowledged is lost."""

import json
import os
import subprocess
import sys

import pytest
from lacking import missing_here

from patience import PATIENCE

PRELOAD = "/usr/lib/fiu/fiu_posix_preload.so"
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "failing_io.py")
LONG = bool(os.environ.get("BASCULE_LONG"))
SYNC, WRITE = "posix/io/sync/fdatasync", "posix/io/rw/pwrite"


def lives(**options):
    if not os.path.exists(PRELOAD):
        missing_here("no libfiu to make system calls fail (Debian: libfiu0)")
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT, json.dumps(options)],
        env={**os.environ, "LD_PRELOAD": PRELOAD},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def opened(runs):
    return [run for run in runs if "unopened" not in run]


@pytest.mark.parametrize(
    ("call", "sticky", "fold"),
    [(SYNC, False, True), (SYNC, True, False), (WRITE, False, True), (WRITE, True, True)],
    ids=["a sync", "all syncs from then on", "a write", "all writes from then on"],
)
def test_what_is_acknowledged_is_there_whichever_call_fails(call, sticky, fold):
    # Every sync; of the writes, which are many, every one in the long run.
    runs = lives(call=call, sticky=sticky, fold=fold, step=1 if call == SYNC or LONG else 5)
    assert [run["wrong"] for run in opened(runs) if run["wrong"]] == []
    # The last run is the one in which nothing failed.
    assert len(runs) > 5
    assert (runs[-1]["happened"], runs[-1]["refused"]) == (False, 0)
    assert all(run["happened"] for run in runs[:-1])


@pytest.mark.parametrize("call", [SYNC, WRITE])
def test_no_act_is_acknowledged_on_a_sync_or_write_that_failed(call):
    """While nothing is folded back, every sync and write is a commit's, and the commit it belongs to is refused."""
    runs = lives(call=call, late=True, step=1 if call == SYNC or LONG else 5)[:-1]
    assert len(runs) > 5
    assert {run["refused"] for run in runs} == {1}


def test_an_acknowledgement_after_a_failed_sync_would_be_found():
    assert any(run["wrong"] for run in opened(lives(call=SYNC, careless=True)))
