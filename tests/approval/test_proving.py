"""A person at the console answers with a touch or the passphrase, for exactly this call; nothing less approves."""

import pytest
from console_page import Page, approves, asked
from felling import Grove

from bascule.foundation.errors import Forbidden, InvalidRequest, NotFound, Overloaded, ProofRequired, StorageFull
from bascule.kernel.call import ConsoleSession
from bascule.kernel.identity.passphrase import FREE_TRIES
from bascule.kernel.identity.proofs import CHALLENGE_SECONDS, PROOF_SECONDS
from bascule.kernel.limits import MAX_CALLS_PER_PROOF
from bascule.testing.stores import HeldStore
from soft_key import ORIGIN, PRESENT, SoftKey


def state(grove, approval_id):
    return grove.house.call("local", "approvals.show", {"approvalId": approval_id})["state"]


# -- signing in --


def test_a_page_signs_in_with_a_touch_and_without_any_command(grove, key):
    page = Page(grove)
    answer = page.answer(page.challenge(), key)
    assert answer["grade"] == "signed_in"
    page.token = answer["token"]
    assert page.call("console.session")["grade"] == "signed_in"


def test_a_paired_page_that_signs_in_gets_another_session(grove, key):
    page = Page(grove).pair()
    old = page.token
    page.sign_in(key)
    assert page.sessions.find(old) is None
    assert page.call("console.session")["grade"] == "signed_in"


def test_no_agent_and_no_plain_client_asks_for_a_challenge(grove):
    for principal in ("agent:Jerry", "local", "person"):
        with pytest.raises(Forbidden):
            grove.house.call(principal, "person.challenge", {"purpose": "sign-in"})


def test_a_page_that_has_not_signed_in_proves_no_calls(grove, key):
    for page in (Page(grove), Page(grove).pair()):
        with pytest.raises(Forbidden):
            page.challenge(("tree.water", {"path": "oak"}))


def test_a_session_that_could_not_be_recorded_does_not_exist(key, grove):
    held = HeldStore(hold=False)
    other = Grove(store=held)
    with other.house:
        other.set_person()
        page = Page(other).pair()
        page.enrol(key2 := SoftKey())
        challenge = page.challenge()
        held.hold = True
        begun = other.house.begin(
            "local",
            "person.prove",
            {"challengeId": challenge["challengeId"], "assertion": key2.get(challenge["challenge"])},
            session=_session(page),
        )
        other.house.run(held.fail)
        with pytest.raises(StorageFull):
            begun.result()
        held.hold = False
        assert [each["grade"] for each in other.house.call("local", "console.sessions")] == ["paired"]
        page.sign_in(key2)


def _session(page):
    found = page.sessions.find(page.token)
    return ConsoleSession(found.session_id, found.grade)


# -- approving --


def test_a_touch_approves_exactly_one_question(grove, page, key):
    approval_id = asked(grove)
    assert page.act(key, "approvals.decide", approves(approval_id))["state"] == "approved"
    assert state(grove, approval_id) != "pending"


def test_a_session_alone_never_approves(grove, page):
    approval_id = asked(grove)
    with pytest.raises(ProofRequired) as refused:
        page.call("approvals.decide", approves(approval_id))
    assert refused.value.details["grade"] == "fresh"
    assert state(grove, approval_id) == "pending"


def test_the_passphrase_approves_what_it_was_typed_for_and_nothing_more(grove, page):
    first, second = asked(grove, "oak"), asked(grove, "elm")
    answer = page.type_passphrase(page.challenge(("approvals.decide", approves(first))))
    page.call("approvals.decide", approves(first), proof=answer["proofId"])
    with pytest.raises(ProofRequired):
        page.call("approvals.decide", approves(second), proof=answer["proofId"])


def test_up_to_20_questions_share_one_touch(grove, page, key):
    ids = [asked(grove, f"tree {number}") for number in range(MAX_CALLS_PER_PROOF)]
    calls = [("approvals.decide", approves(each)) for each in ids]
    proof = page.prove(key, *calls)
    for method, params in calls:
        page.call(method, params, proof=proof)
    assert {state(grove, each) for each in ids} <= {"approved", "spent", "done"}
    with pytest.raises(InvalidRequest):
        page.challenge(*calls, ("approvals.decide", approves(ids[0])))


# -- attacks: each is refused, and the control beside it is what would have been allowed --


def test_a_proof_is_not_good_for_another_answer(grove, page, key):
    first, second = asked(grove, "oak"), asked(grove, "elm")
    proof = page.prove(key, ("approvals.decide", approves(first)))
    for other in (
        approves(second),
        approves(first, scope="rule", offer=1),
        approves(first, minutes=480),
        {"approvalId": first, "decision": "denied", "reason": "words of another"},
    ):
        with pytest.raises(ProofRequired):
            page.call("approvals.decide", other, proof=proof)
    page.call("approvals.decide", approves(first), proof=proof)


def test_a_proof_is_good_once(grove, page, key):
    calls = ("agents.revoke", {"agentId": "Jerry"})
    grove.house.register("Jerry")
    proof = page.prove(key, calls)
    page.call(*calls, proof=proof)
    grove.house.register("Jerry")
    with pytest.raises(ProofRequired):
        page.call(*calls, proof=proof)
    page.act(key, *calls)


def test_a_proof_is_not_good_in_another_session(grove, page, key):
    approval_id = asked(grove)
    proof = page.prove(key, ("approvals.decide", approves(approval_id)))
    thief = Page(grove).sign_in(key)
    with pytest.raises(ProofRequired):
        thief.call("approvals.decide", approves(approval_id), proof=proof)
    page.call("approvals.decide", approves(approval_id), proof=proof)


def test_a_proof_ends_after_a_minute(grove, page, key):
    approval_id = asked(grove)
    proof = page.prove(key, ("approvals.decide", approves(approval_id)))
    grove.house.advance(PROOF_SECONDS)
    with pytest.raises(ProofRequired):
        page.call("approvals.decide", approves(approval_id), proof=proof)
    page.act(key, "approvals.decide", approves(approval_id))


def test_a_replayed_assertion_is_refused(grove, page, key):
    challenge = page.challenge(("approvals.decide", approves(asked(grove))))
    answer = {"challengeId": challenge["challengeId"], "assertion": key.get(challenge["challenge"])}
    page.call("person.prove", answer)
    with pytest.raises(Forbidden, match="not open"):
        page.call("person.prove", answer)
    # For a new challenge it is the signature of another one.
    again = page.challenge(("approvals.decide", approves(asked(grove))))
    with pytest.raises(Forbidden, match="another challenge"):
        page.call("person.prove", answer | {"challengeId": again["challengeId"]})


def test_a_challenge_is_spent_by_a_wrong_answer_too(grove, page, key):
    challenge = page.challenge(("approvals.decide", approves(asked(grove))))
    with pytest.raises(Forbidden, match="not enrolled"):
        page.answer(challenge, SoftKey())
    with pytest.raises(Forbidden, match="not open"):
        page.answer(challenge, key)


def test_an_answer_after_a_minute_is_too_late(grove, page, key):
    challenge = page.challenge(("approvals.decide", approves(asked(grove))))
    grove.house.advance(CHALLENGE_SECONDS)
    with pytest.raises(Forbidden, match="too late"):
        page.answer(challenge, key)
    challenge = page.challenge(("approvals.decide", approves(asked(grove, "elm"))))
    grove.house.advance(CHALLENGE_SECONDS)
    with pytest.raises(Forbidden, match="not open"):
        page.type_passphrase(challenge)


@pytest.mark.parametrize(
    "lie",
    [
        ("origin", "http://localhost:5050", "another address"),
        ("rp_id", "example.com", "another site"),
        ("flags", PRESENT, "did not verify"),
        ("flags", 0x04, "nobody touched"),
        ("client", {"crossOrigin": True}, "frame"),
        ("client", {"topOrigin": ORIGIN}, "frame"),
        ("client", {"type": "webauthn.create"}, "webauthn.get"),
        ("client", {"challenge": "AAAA"}, "another challenge"),
    ],
)
def test_a_ceremony_of_another_page_approves_nothing(grove, page, key, lie):
    field, value, words = lie
    approval_id = asked(grove)
    honest = getattr(key, field)
    setattr(key, field, value)
    with pytest.raises(Forbidden, match=words):
        page.act(key, "approvals.decide", approves(approval_id))
    assert state(grove, approval_id) == "pending"
    setattr(key, field, honest)
    page.act(key, "approvals.decide", approves(approval_id))


def test_a_wrong_passphrase_proves_nothing_and_is_slowed_down_as_at_the_terminal(grove, page):
    calls = ("approvals.decide", approves(asked(grove)))
    for _ in range(FREE_TRIES):
        with pytest.raises(Forbidden, match="wrong passphrase"):
            page.type_passphrase(page.challenge(calls), "wrong horse")
    with pytest.raises(Overloaded):
        page.type_passphrase(page.challenge(calls))
    # The same throttle as for `person.unlock`: nobody gets five more tries there.
    refused = [record for record in grove.house.ledger() if record["method"] == "person.prove"]
    assert [record["outcome"] for record in refused][-FREE_TRIES:] == ["forbidden"] * FREE_TRIES
    grove.house.advance(31)
    page.type_passphrase(page.challenge(calls))


def test_an_answer_is_a_touch_or_a_passphrase(grove, page, key):
    challenge = page.challenge(("approvals.decide", approves(asked(grove))))
    with pytest.raises(InvalidRequest):
        page.call("person.prove", {"challengeId": challenge["challengeId"]})


def test_a_challenge_names_methods_and_questions_that_there_are(grove, page):
    with pytest.raises(NotFound):
        page.challenge(("no.such", {}))
    with pytest.raises(NotFound):
        page.challenge(("approvals.decide", approves("apr_1")))
    with pytest.raises(InvalidRequest):
        page.challenge(("approvals.decide", {"approvalId": "apr_1"}))
    with pytest.raises(InvalidRequest):
        page.call("person.challenge", {"purpose": "calls"})


def test_sessions_and_challenges_die_with_the_daemon(grove, page, key):
    challenge = page.challenge(("approvals.decide", approves(asked(grove))))
    grove.house.restart()
    after = Page(grove).sign_in(key)
    with pytest.raises(Forbidden, match="not open"):
        after.answer(challenge, key)


def test_words_of_the_person_are_not_in_the_record(grove, page, key):
    approval_id = asked(grove)
    params = {"approvalId": approval_id, "decision": "denied", "reason": "the oak is my grandmother's"}
    page.act(key, "approvals.decide", params)
    assert "grandmother" not in str(grove.house.ledger())
