"""Challenges are spent at first sight, proofs are for exactly the calls that were named, and both end in a minute."""

import hashlib

import msgspec
import pytest

from bascule.kernel.identity.proofs import (
    CHALLENGE_SECONDS,
    DOMAIN,
    MAX_OPEN_WITHOUT_SESSION,
    MAX_PROOFS,
    PROOF_SECONDS,
    AskedCall,
    Proofs,
    call_digest,
)
from bascule.kernel.rows import Params
from bascule.testing.clock import FakeClock

ORIGINS = ("http://localhost:5051",)
CUT = AskedCall(method="trees.cut", digest=call_digest("trees.cut", {"tree": 1}))
FELL = AskedCall(method="trees.fell", digest=call_digest("trees.fell", {}))


class Cut(Params, frozen=True, kw_only=True):
    tree: int
    slowly: bool = False


class Grove:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.proofs = Proofs(self.clock, b"key", "dmn_1")

    def challenge(self, session: str | None = "ses_1", *calls: AskedCall):
        return self.proofs.open("calls", session, ORIGINS, calls or (CUT,))

    def proof(self, *calls: AskedCall, session: str = "ses_1") -> str:
        challenge = self.challenge(session, *calls)
        assert self.proofs.spend(challenge.challenge_id, session) is challenge
        proof = self.proofs.prepare()
        self.proofs.issue(proof, challenge)
        return proof.proof_id

    def take(self, proof_id: str, call: AskedCall = CUT, session: str = "ses_1") -> str | None:
        return self.proofs.take(proof_id, session, call.method, call.digest)


@pytest.fixture
def grove():
    return Grove()


# -- digests --


def test_a_call_that_writes_out_a_default_is_the_same_call():
    digest = call_digest("trees.cut", Cut(tree=1, slowly=False))
    assert digest == call_digest("trees.cut", Cut(tree=1)) == call_digest("trees.cut", {"tree": 1})


@pytest.mark.parametrize(
    ("method", "params"), [("trees.cut", {"tree": 2}), ("trees.fell", {"tree": 1}), ("trees.cut", {"tree": "1"})]
)
def test_another_call_has_another_digest(method, params):
    assert call_digest(method, params) != call_digest("trees.cut", {"tree": 1})


def test_a_challenge_is_the_digest_of_its_statement(grove):
    challenge = grove.challenge()
    assert challenge.bytes == hashlib.sha256(DOMAIN + challenge.statement.canonical()).digest()
    read = msgspec.json.decode(challenge.statement.canonical())
    assert (read["daemon"], read["origin"], read["session"]) == ("dmn_1", ORIGINS[0], "ses_1")
    assert [call["method"] for call in read["calls"]] == ["trees.cut"]
    # Short params could be guessed from a digest that has no key.
    assert CUT.digest not in challenge.statement.canonical().decode()


def test_no_two_challenges_are_the_same(grove):
    assert grove.challenge().bytes != grove.challenge().bytes


# -- challenges --


def test_a_challenge_is_spent_by_the_first_who_shows_it(grove):
    challenge = grove.challenge()
    assert grove.proofs.spend(challenge.challenge_id, "ses_1") is challenge
    assert grove.proofs.spend(challenge.challenge_id, "ses_1") is None


def test_a_challenge_that_another_session_shows_is_spent_and_gives_nothing(grove):
    challenge = grove.challenge()
    assert grove.proofs.spend(challenge.challenge_id, "ses_2") is None
    assert grove.proofs.spend(challenge.challenge_id, "ses_1") is None


def test_a_challenge_of_a_session_is_not_one_of_a_page_without(grove):
    assert grove.proofs.spend(grove.challenge().challenge_id, None) is None
    assert grove.proofs.spend(grove.challenge(None).challenge_id, "ses_1") is None


def test_a_session_has_one_open_challenge(grove):
    first, other, second = grove.challenge(), grove.challenge("ses_2"), grove.challenge()
    assert grove.proofs.spend(first.challenge_id, "ses_1") is None
    assert grove.proofs.spend(second.challenge_id, "ses_1") is second
    assert grove.proofs.spend(other.challenge_id, "ses_2") is other


def test_pages_without_a_session_have_a_few_open_challenges_together(grove):
    made = [grove.challenge(None) for _ in range(MAX_OPEN_WITHOUT_SESSION + 3)]
    spent = [grove.proofs.spend(each.challenge_id, None) is not None for each in made]
    assert spent == [False] * 3 + [True] * MAX_OPEN_WITHOUT_SESSION


@pytest.mark.parametrize("jump", [0.0, -3600.0])
def test_a_challenge_ends_after_a_minute_whatever_the_wall_clock_says(grove, jump):
    challenge = grove.challenge()
    grove.clock.jump_wall(jump)
    grove.clock.advance(CHALLENGE_SECONDS - 0.1)
    assert grove.proofs.in_time(challenge)
    grove.clock.advance(0.1)
    assert not grove.proofs.in_time(challenge)


def test_a_wall_clock_that_jumps_forward_ends_a_challenge_early(grove):
    challenge = grove.challenge()
    grove.clock.jump_wall(CHALLENGE_SECONDS)
    assert not grove.proofs.in_time(challenge)


def test_challenges_that_ran_out_are_forgotten(grove):
    for number in range(100):
        grove.challenge(f"ses_{number}")
        grove.clock.advance(CHALLENGE_SECONDS / 2)
    assert len(grove.proofs._open) <= 3
    assert len(grove.proofs._of_session) <= 3


# -- proofs --


def test_a_proof_is_good_once_for_its_call(grove):
    proof = grove.proof()
    assert grove.take(proof) == proof
    assert grove.take(proof) is None


def test_a_proof_is_good_for_each_of_its_calls(grove):
    proof = grove.proof(CUT, FELL, CUT)
    assert [grove.take(proof, each) for each in (CUT, FELL, CUT)] == [proof] * 3
    assert [grove.take(proof, each) for each in (CUT, FELL)] == [None, None]


def test_a_proof_for_another_call_or_session_is_none_and_loses_nothing(grove):
    proof = grove.proof()
    assert grove.take(proof, FELL) is None
    assert grove.take(proof, AskedCall(method="trees.cut", digest=call_digest("trees.cut", {"tree": 2}))) is None
    assert grove.take(proof, session="ses_2") is None
    assert grove.take("prf_1") is None
    assert grove.take(proof) == proof


def test_a_proof_counts_only_once_it_is_issued(grove):
    challenge = grove.challenge()
    grove.proofs.spend(challenge.challenge_id, "ses_1")
    proof = grove.proofs.prepare()
    assert grove.take(proof.proof_id) is None
    grove.proofs.issue(proof, challenge)
    assert grove.take(proof.proof_id) == proof.proof_id


@pytest.mark.parametrize("jump", [0.0, -3600.0])
def test_a_proof_ends_after_a_minute_whatever_the_wall_clock_says(grove, jump):
    early, late = grove.proof(), grove.proof()
    grove.clock.jump_wall(jump)
    grove.clock.advance(PROOF_SECONDS - 0.1)
    assert grove.take(early) == early
    grove.clock.advance(0.1)
    assert grove.take(late) is None


def test_a_wall_clock_that_jumps_forward_ends_a_proof_early(grove):
    proof = grove.proof()
    grove.clock.jump_wall(PROOF_SECONDS)
    assert grove.take(proof) is None


def test_a_session_that_ends_takes_its_challenge_and_proofs_along(grove):
    proof, other = grove.proof(), grove.proof(session="ses_2")
    challenge = grove.challenge()
    grove.proofs.end_session("ses_1")
    assert grove.take(proof) is None
    assert grove.proofs.spend(challenge.challenge_id, "ses_1") is None
    assert grove.take(other, session="ses_2") == other


def test_proofs_that_nobody_uses_have_an_end(grove):
    proofs = [grove.proof() for _ in range(MAX_PROOFS + 1)]
    assert grove.take(proofs[0]) is None
    assert grove.take(proofs[-1]) == proofs[-1]
