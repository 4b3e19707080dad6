"""Connections that never finish: cut in time, and nobody else notices them."""

import os

import pytest

from load_scenes import LORIS, Swarm, descriptors, loris, until
from patience import PATIENCE

EACH = 1_000 if os.environ.get("BASCULE_LONG") else 250
# Head and body each have 10 s; the bound is 15.
CUT_SECONDS = 15
# Ratios are figures for the bench. Here a machine may be busy with other tests: only a stall is a failure.
STALL_MS = 2_000


def test_a_thousand_slow_connections_are_cut_and_a_good_client_goes_on(start, record_property):
    _, target = start()
    before = descriptors(target.pid)
    # Six seconds of the good client's calls while all of them are open.
    seen = loris(target, each=EACH, seconds=6 if EACH == 1_000 else 3)
    record_property("loris", seen)
    assert seen["left"] == 0
    assert seen["cut"] == EACH * len(LORIS)
    # Counted from their own beginning; what a busy machine adds is the machine's.
    assert seen["longest_s"] < CUT_SECONDS + 10 * seen["alone"]["p99_ms"] / 1_000
    answers = seen["said"]
    assert answers.pop("lost") == 2 * EACH, "silent ones and half heads get no answer"
    assert answers.pop("400") == EACH, "a body that does not come is said to"
    assert answers.pop("401") + answers.pop("429") == EACH, "strangers are answered at once, and cut all the same"
    assert not answers
    assert seen["loaded"]["count"] > 0
    assert seen["loaded"]["p99_ms"] < max(STALL_MS, 10 * seen["alone"]["p99_ms"])
    assert until(lambda: descriptors(target.pid) <= before, PATIENCE)


@pytest.mark.parametrize("style", LORIS)
def test_slow_connections_stay_open_without_deadlines(style, start):
    # The control: what cuts them is our deadlines, not the swarm or the system.
    constants = {
        "bascule.surfaces.http.connection.HEAD_SECONDS": 600.0,
        "bascule.surfaces.http.connection.BODY_SECONDS": 600.0,
    }
    _, target = start(durability="memory", constants=constants)
    with Swarm(target) as swarm:
        swarm.do("loris", style=style, count=10, every_s=0.1)
        assert swarm.do("cut", seconds=1.0)["left"] == 10
