"""The proof column: what a caller at the console must have shown for a call, and that nobody else is asked for it."""

from typing import Any, NamedTuple

import pytest

from bascule.foundation.errors import Forbidden, PolicyDenied, ProofRequired
from bascule.kernel.call import BROWSER, LOCAL, PERSON, Call, ConsoleSession, Grade, ShownBy, agent_principal
from bascule.kernel.identity.proofs import call_digest
from bascule.kernel.rows import (
    BROWSER_PAGE,
    PERSON_ONLY,
    Acts,
    Changes,
    Effect,
    Params,
    Reads,
    Streams,
    Waits,
)
from bascule.testing.house import House

PAIRED, SIGNED_IN, FRESH = Grade.PAIRED, Grade.SIGNED_IN, Grade.FRESH


class Given(Params, frozen=True, kw_only=True):
    word: str = ""


class Taken(NamedTuple):
    proof_id: str
    session_id: str
    method: str
    digest: str


class FakeProofs:
    """Proofs as a person would have made them: each for one call of one session, good once."""

    def __init__(self) -> None:
        self.made: set[Taken] = set()

    def make(self, proof_id: str, session_id: str, method: str, params: Any) -> None:
        self.made.add(Taken(proof_id, session_id, method, call_digest(method, params)))

    def shown_by(self, proof_id: str) -> ShownBy | None:
        return "passkey"

    def take(self, proof_id: str, session_id: str, method: str, digest: str) -> str | None:
        wanted = Taken(proof_id, session_id, method, digest)
        if wanted not in self.made:
            return None
        self.made.remove(wanted)
        return proof_id


class NoProofs(FakeProofs):
    """Believes whatever is sent: what the controls have in place of the guard."""

    def take(self, proof_id: str, session_id: str, method: str, digest: str) -> str | None:
        return proof_id


def by_word(params: Given) -> Grade:
    return FRESH if params.word else SIGNED_IN


def look(call, params):
    return call.principal


def change(call, params, tx):
    tx.subject = params.word or "thing"
    return call.principal


def act(call, params, effect):
    return call.principal


READ = Reads[Given, str]("toy.read", "Read.")
WRITE = Changes[Given, str]("toy.write", "Write.", effect=Effect.MESSAGE)
STOP = Changes[Given, str]("toy.stop", "Stop.", effect=Effect.PROCESS_CONTROL)
ACT = Acts[Given, str]("toy.act", "Act.", effect=Effect.ADMIN, asks=False)
DECIDE = Changes[Given, str]("toy.decide", "Decide.", effect=Effect.ADMIN, who=PERSON_ONLY, proof=by_word)
APPROVE = Changes[Given, str]("toy.approve", "Approve.", effect=Effect.ADMIN, who=PERSON_ONLY)
PAGE = Reads[Given, str]("toy.page", "Be a page.", who=BROWSER_PAGE, proof=PAIRED)
METHODS = (
    READ.bind(look),
    WRITE.bind(change),
    STOP.bind(change),
    ACT.bind(act),
    DECIDE.bind(change),
    APPROVE.bind(change),
    PAGE.bind(look),
)


@pytest.fixture
def proofs():
    return FakeProofs()


@pytest.fixture
def house(proofs):
    with House(methods=METHODS) as house:
        house.gate._proofs = proofs
        yield house


def called(
    house: House, method: str, grade: Grade | None, word: str = "", proof: str | None = None, *, session="ses_1"
):
    """As the console's door makes it: who it is follows from the grade."""
    principal = BROWSER if grade is None else LOCAL if grade is PAIRED else PERSON
    shown = ConsoleSession(session, grade, proof) if grade is not None else None
    call = Call(principal, method, Given(word=word), door="console", session=shown)
    answer = house.run(lambda: house.gate.call(call))
    return answer.result() if hasattr(answer, "result") else answer


def required(house: House, *arguments: Any, **more: Any) -> str:
    with pytest.raises(ProofRequired) as refused:
        called(house, *arguments, **more)
    assert refused.value.status == 403
    assert refused.value.code == "proof_required"
    grade: str = refused.value.details["grade"]
    return grade


# -- the column --


@pytest.mark.parametrize(
    ("row", "proof"),
    [
        (READ, SIGNED_IN),
        (Waits[Given, str]("toy.wait", "Wait."), SIGNED_IN),
        (Streams[Given, str]("toy.stream", "Stream."), SIGNED_IN),
        (STOP, SIGNED_IN),
        (WRITE, FRESH),
        (ACT, FRESH),
        (APPROVE, FRESH),
    ],
)
def test_what_a_row_needs_unless_it_says_so(row, proof):
    assert row.proof is proof


def test_every_row_of_ours_that_changes_something_needs_a_proof_or_says_why_not():
    from bascule.bridge_list import methods_of

    less = {row.name for row in methods_of() if not row.looks and row.proof is not FRESH}
    stops = {row.name for row in methods_of() if row.effect is Effect.PROCESS_CONTROL}
    # Each of these has its own reason, beside its row.
    ceremonies = {"person.prove", "passkeys.begin", "passkeys.finish", "passkeys.confirm"}
    assert less - stops - ceremonies <= {
        "console.revoke",
        "console.signOut",
        "approvals.decide",
        "admin.stop",
        "runs.undo",
        "runs.redo",
        "runs.resume",
    }


# -- a paired session --


def test_a_paired_session_may_what_local_may(house):
    assert called(house, "toy.read", PAIRED) == LOCAL
    assert called(house, "toy.write", PAIRED) == LOCAL
    assert called(house, "toy.act", PAIRED) == LOCAL


@pytest.mark.parametrize("method", ["toy.approve", "toy.decide"])
@pytest.mark.parametrize("proof", [None, "prf_1"])
def test_a_paired_session_cannot_approve_whatever_it_sends(house, proofs, method, proof):
    proofs.make("prf_1", "ses_1", method, Given(word="yes"))
    assert required(house, method, PAIRED, "yes", proof) == "signed_in"
    assert len(proofs.made) == 1


def test_what_is_not_even_the_persons_is_forbidden_and_not_asked_for(house):
    own = Call(LOCAL, "inbox.take", b'{"agentId":"Jerry"}', door="console", session=ConsoleSession("ses_1", PAIRED))
    with pytest.raises(Forbidden) as refused:
        house.run(lambda: house.gate.call(own))
    assert not isinstance(refused.value, ProofRequired)


# -- a signed-in session --


def test_a_signed_in_session_looks_and_stops_as_the_person(house):
    assert called(house, "toy.read", SIGNED_IN) == PERSON
    assert called(house, "toy.stop", SIGNED_IN) == PERSON
    assert called(house, "toy.decide", SIGNED_IN) == PERSON


@pytest.mark.parametrize(
    ("method", "word"), [("toy.write", ""), ("toy.act", ""), ("toy.approve", ""), ("toy.decide", "no")]
)
def test_a_signed_in_session_needs_a_proof_for_the_rest(house, method, word):
    assert required(house, method, SIGNED_IN, word) == "fresh"


@pytest.mark.parametrize("method", ["toy.write", "toy.act", "toy.approve"])
def test_a_proof_is_good_once_and_the_record_names_it(house, proofs, method):
    proofs.make("prf_1", "ses_1", method, Given(word="yes"))
    assert called(house, method, SIGNED_IN, "yes", "prf_1") == PERSON
    assert "prf_1" in [
        record.get("details", {}).get("proof") for record in house.ledger() if record["method"] == method
    ]
    assert required(house, method, SIGNED_IN, "yes", "prf_1") == "fresh"


OTHER = {
    "another word": ("toy.approve", "other", "prf_1", "ses_1"),
    "another method": ("toy.write", "yes", "prf_1", "ses_1"),
    "another session": ("toy.approve", "yes", "prf_1", "ses_2"),
    "another proof": ("toy.approve", "yes", "prf_2", "ses_1"),
    "no proof": ("toy.approve", "yes", None, "ses_1"),
}


@pytest.mark.parametrize("other", OTHER)
def test_a_proof_is_for_exactly_one_call_of_one_session(house, proofs, other):
    method, word, proof, session = OTHER[other]
    proofs.make("prf_1", "ses_1", "toy.approve", Given(word="yes"))
    assert required(house, method, SIGNED_IN, word, proof, session=session) == "fresh"
    assert called(house, "toy.approve", SIGNED_IN, "yes", "prf_1") == PERSON


@pytest.mark.parametrize("other", [name for name in OTHER if name != "no proof"])
def test_where_proofs_are_not_compared_another_call_goes_through(other):
    """The control."""
    method, word, proof, session = OTHER[other]
    with House(methods=METHODS) as house:
        house.gate._proofs = NoProofs()
        assert called(house, method, SIGNED_IN, word, proof, session=session) == PERSON


def test_a_refusal_for_want_of_a_proof_is_recorded(house):
    required(house, "toy.approve", SIGNED_IN)
    house.advance(120)
    assert ("toy.approve", "proof_required") in [(each["method"], each["outcome"]) for each in house.ledger()]


def test_a_proof_is_asked_for_before_the_policy_and_does_not_overrule_it(proofs):
    from bascule.kernel.policy.decision import Decision
    from bascule.kernel.policy.engine import Policy
    from bascule.kernel.policy.rules import Rule

    nothing = Policy([Rule(name="nothing", decision=Decision.DENY, reason="closed")], "nothing", "0")
    with House(methods=METHODS, policy=nothing) as house:
        house.gate._proofs = proofs
        assert required(house, "toy.write", SIGNED_IN) == "fresh"
        proofs.make("prf_1", "ses_1", "toy.write", Given())
        with pytest.raises(PolicyDenied):
            called(house, "toy.write", SIGNED_IN, "", "prf_1")


# -- a page that has shown nothing --


def test_a_page_without_a_session_calls_what_is_meant_for_it_and_nothing_else(house):
    assert called(house, "toy.page", None) == BROWSER
    for method in ("toy.read", "toy.write", "toy.stop", "toy.act", "toy.decide", "toy.approve", "daemon.status"):
        with pytest.raises(Forbidden):
            called(house, method, None) if method.startswith("toy") else house.call("browser", method)


def test_a_page_without_a_session_reads_where_the_check_is_left_out(house, monkeypatch):
    """The control: `read` is open to all."""
    monkeypatch.setattr("bascule.kernel.gate.check_at_console", lambda *_: None)
    assert called(house, "toy.read", None) == BROWSER


def test_no_agent_is_a_page(house):
    with pytest.raises(Forbidden):
        house.call(agent_principal("Jerry"), "toy.page")


# -- everybody else --


@pytest.mark.parametrize("method", ["toy.read", "toy.write", "toy.act", "toy.stop"])
@pytest.mark.parametrize("principal", [LOCAL, PERSON])
def test_at_every_other_door_nobody_is_asked_for_a_proof(house, principal, method):
    assert house.call(principal, method, {"word": "x"}) == principal


def test_an_unlocked_terminal_approves_without_the_console(house):
    assert house.call(PERSON, "toy.approve", {"word": "yes"}) == PERSON
