"""What `bascule doctor` says of the mesh."""

import pytest

from bascule import __version__
from bascule.cli.checks.patient import Mark, Patient
from bascule.mesh.cli import checks


class Asked(Patient):
    """A daemon that answers this."""

    def __init__(self, **status):
        super().__init__(state="/nonexistent")
        self.status = status

    def ask(self, method):
        assert method == "mesh.status"
        return self.status


MEMBER = {"standing": "member", "mesh": "home", "node": "desk", "server": "tls://a:4222", "serverVersion": "2.15.1"}

# A node may be called so, or its card.
FORBIDDEN = {"what": "tls://a:4222 does not let this node publish to $KV.bsc_live.clock-pi", "remedy": "its operator"}


def test_where_no_daemon_answers_nothing_is_wrong():
    for check in checks.CHECKS:
        assert check.look(Asked()).mark in (Mark.INFO, Mark.OK)


@pytest.mark.parametrize(
    ("status", "mark", "words"),
    [
        ({"standing": "none"}, Mark.INFO, "in no mesh"),
        ({"standing": "waiting", "node": "a", "mesh": "m", "joining": {"holder": "desk"}}, Mark.INFO, "waits"),
        ({**MEMBER, "connected": True}, Mark.OK, "desk in home"),
        (MEMBER, Mark.WARN, "not connected"),
        ({**MEMBER, "faults": [{"what": "its disk is full", "remedy": "make room"}]}, Mark.WARN, "its disk is full"),
        ({**MEMBER, "connected": True, "faults": [FORBIDDEN]}, Mark.WARN, "bsc_live.clock-pi"),
    ],
)
def test_the_connection(status, mark, words):
    verdict = checks.check_connection(Asked(**status))
    assert verdict.mark is mark
    assert words in verdict.what


@pytest.mark.parametrize(
    ("skew", "mark", "words"),
    [
        (None, Mark.INFO, "once this machine is connected"),
        (119_999, Mark.OK, "ahead of"),
        (-120_000, Mark.WARN, "behind"),
        (3_600_000, Mark.WARN, "mail is not taken"),
    ],
)
def test_the_clock_warns_at_two_minutes_and_says_when_mail_is_not_taken(skew, mark, words):
    verdict = checks.check_clock(Asked(clockSkewMs=skew))
    assert verdict.mark is mark
    assert words in verdict.what


def test_other_versions_and_nodes_that_are_away_are_named():
    def node(name, version=__version__, reachable=True):
        return {"node": name, "standing": "member", "version": version, "reachable": reachable}

    assert checks.check_peers(Asked(nodes=[node("vm")])).mark is Mark.OK
    assert "vm 9.9" in checks.check_peers(Asked(nodes=[node("vm", "9.9")])).what
    assert "not reachable: vm" in checks.check_peers(Asked(nodes=[node("vm", reachable=False)])).what


def test_a_card_that_ends_soon_warns():
    ends = "2026-01-01T00:00:00.000Z"
    assert checks.check_card(Asked(cardEnds=ends)).mark is Mark.OK
    fault = {"what": f"this node's card ends at {ends} and nobody has renewed it", "remedy": "start it"}
    assert checks.check_card(Asked(cardEnds=ends, faults=[fault])).mark is Mark.WARN
    assert checks.check_connection(Asked(**MEMBER, connected=True, faults=[fault])).mark is Mark.OK
