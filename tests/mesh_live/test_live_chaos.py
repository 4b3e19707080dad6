"""Random deaths, freezes, cuts and wiped storage on three real nodes and three real servers, while agents talk."""

import os
import random
import sys
import threading
import time

import pytest
from chaos import NO_DEDUP, Chaos
from fleet import Proxies, fleet
from talkers import Talk

NAMES = ("desk", "laptop", "vm")
# BASCULE_CHAOS_SECONDS is how long things go wrong; a run of an hour is the long one's.
SECONDS = float(os.environ.get("BASCULE_CHAOS_SECONDS", "8"))
LONG_SECONDS = float(os.environ.get("BASCULE_CHAOS_SECONDS", "3600"))

# So long that a server may be frozen until everybody has noticed.
MINUTES = 300.0


def play(seed, seconds, *, bug="", pause=0.02, rest=90.0):
    """What is wrong when all is quiet again, what was done, and what was counted."""
    with fleet(3) as ships:
        proxies = Proxies(ships.cluster.urls, NAMES)
        try:
            ships.join(*NAMES, proxies=proxies, bug=bug)
            talk = Talk(ships.nodes, seed, pause)
            chaos = Chaos(ships, proxies, long_freezes=seconds > MINUTES)
            try:
                end = time.monotonic() + seconds
                threads = [
                    threading.Thread(target=chaos.go_on, args=(kind, random.Random(f"{seed} {kind}"), end))
                    for kind in ("nodes", "servers")
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                assert not chaos.failed, chaos.failed
                talk.stop_asking()
                talk.await_rest(rest)
            finally:
                talk.close()
            return talk.faults(), chaos.log, talk.counts()
        finally:
            proxies.close()


def check(seed, seconds, **options):
    faults, done, counts = play(seed, seconds, **options)
    report = "\n".join([f"seed {seed}, {seconds:g} s: {counts}", *faults[:20], "what was done:", *done])
    sys.stdout.write(report + "\n")
    assert not faults, report
    assert counts["asked"] == counts["answered"] + counts["cancelled"] > 0, report


@pytest.mark.req("MESH-M-1", "MESH-M-2", "MESH-M-3", "MESH-DAY-6")
def test_some_chaotic_seconds_lose_nothing_and_do_nothing_twice():
    check(int(os.environ.get("BASCULE_SEED", random.randrange(10**6))), SECONDS)


@pytest.mark.req("MESH-DAY-6")
@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS + 1_800)
def test_a_chaotic_hour_loses_nothing_and_does_nothing_twice():
    check(int(os.environ.get("BASCULE_SEED", random.randrange(10**6))), LONG_SECONDS, pause=0.05, rest=600.0)


# -- the controls: each guard off, and the count shows it --

# A receipt at once, and nothing stored: the outbox forgets what never was on the other disk.
_RECEIPT_FIRST = """
import random
import bascule.mesh.arrivals as arrivals
from bascule.mesh.protocol import Taken
_offer = arrivals.Arrivals._offer
def offer(self, node, item, envelope):
    if random.random() < 0.2:
        self._courier.confirm(node.card.node, Taken(id=item.id, ticket=item.ticket))
    else:
        _offer(self, node, item, envelope)
arrivals.Arrivals._offer = offer
"""


@pytest.mark.req("MESH-DAY-6")
@pytest.mark.parametrize(("bug", "word"), [(_RECEIPT_FIRST, "lost"), (NO_DEDUP, "twice")], ids=["receipt", "dedup"])
@pytest.mark.long
def test_a_guard_that_is_off_is_seen(bug, word):
    faults, *_ = play(1, 10, bug=bug, rest=5.0)
    assert any(f": {word}" in fault for fault in faults), faults[:10]
