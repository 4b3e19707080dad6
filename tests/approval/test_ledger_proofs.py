"""`ledger verify` checks every signature again: whoever rewrites the ledger, hashes and all, cannot rewrite these."""

import copy

import msgspec
import pytest
from console_page import Page, approves, asked
from felling import Grove

from bascule.admin.ledger_methods import verify
from bascule.admin.records import PasskeyRecord
from bascule.kernel.identity.proof_records import ProofWalk
from bascule.kernel.journal_ports import Batch, LedgerRow
from bascule.kernel.ledger import GENESIS, Record, link, read_record
from bascule.stores.memory import MemoryStore
from bascule.testing.fakes import FakeConnection, MemoryAnchors
from gabp import codec
from soft_key import SoftKey, b64, unb64

DAY = 86_400
# Of one answer, with all of its signature: a ledger of years must stay small.
MAX_EVIDENCE_BYTES = 1_024


class Story:
    """A key is enrolled and used; the records of it, to be told differently."""

    def __init__(self, **settings) -> None:
        self.grove = Grove(**settings)
        self.grove.set_person()
        self.key = SoftKey()
        self.passkey_id = Page(self.grove).pair().enrol(self.key)
        self.page = Page(self.grove).sign_in(self.key)

    def approve(self, path: str = "oak", **more) -> str:
        approval_id = asked(self.grove, path)
        self.page.act(self.key, "approvals.decide", approves(approval_id, **more))
        return approval_id

    def records(self) -> list[Record]:
        return [read_record(row) for row in self.grove.house.store._ledger]

    def faults(self) -> list[str]:
        return self.grove.house.call("local", "ledger.verify")["faults"]


@pytest.fixture
def story():
    story = Story()
    with story.grove.house:
        yield story


def rewritten(records: list[Record]) -> list[LedgerRow]:
    """As who has the file and all the time in the world would write it: each hash fits."""
    rows, head = [], GENESIS
    for number, record in enumerate(records, 1):
        body = codec.encode(msgspec.structs.replace(record, seq=number))
        head = link(head, body)
        rows.append(LedgerRow(number, head, body))
    return rows


def faults_of(records: list[Record]) -> list[str]:
    """What is said about a ledger with these records and no anchors, as of a stopped daemon."""
    store = MemoryStore()
    store.write(Batch([], rewritten(records)))
    return store.read_ledger(lambda ledger: verify(ledger, [], MemoryAnchors())).result().faults


def at(records: list[Record], method: str) -> int:
    """Where the last one of this method is."""
    return max(number for number, record in enumerate(records) if record.method == method and record.outcome == "ok")


def changed(records: list[Record], number: int, **fields) -> list[Record]:
    out = list(records)
    out[number] = msgspec.structs.replace(out[number], **fields)
    return out


def with_details(records: list[Record], number: int, **details) -> list[Record]:
    whole = {**copy.deepcopy(records[number].details or {}), **details}
    return changed(records, number, details={name: value for name, value in whole.items() if value is not None})


def test_the_story_as_it_was_has_no_fault(story):
    story.approve()
    result = story.grove.house.call("local", "ledger.verify")
    # Enrolled, signed in, approved.
    assert (result["ok"], result["faults"], result["signatures"]) == (True, [], 3)
    assert faults_of(story.records()) == []


def test_evidence_of_one_answer_is_below_a_kilobyte(story):
    story.approve()
    records = story.records()
    assert len(codec.encode(records[at(records, "person.prove")].details)) < MAX_EVIDENCE_BYTES


def test_the_record_of_an_approval_names_its_proof(story):
    story.approve()
    records = story.records()
    proved, decided = records[at(records, "person.prove")], records[at(records, "approvals.decide")]
    assert decided.details["proof"] == proved.subject
    assert proved.details["statement"]["calls"][0]["about"]["approvalId"] == decided.subject
    assert proved.details["credentialId"] == story.key.id


# -- one byte --


def flipped(text: str, place: int) -> str:
    data = bytearray(unb64(text))
    data[place % len(data)] ^= 1
    return b64(bytes(data))


@pytest.mark.parametrize("place", [0, 7, 32, 33, -1])
@pytest.mark.parametrize("field", ["authenticatorData", "signature", "credentialId"])
def test_one_flipped_bit_of_a_signature_is_found(story, field, place):
    story.approve()
    records = story.records()
    number = at(records, "person.prove")
    forged = with_details(records, number, **{field: flipped(records[number].details[field], place)})
    found = faults_of(forged)
    assert found[0].startswith(f"record {number + 1}: person.prove does not hold")
    decided = at(records, "approvals.decide") + 1
    assert any(each.startswith(f"record {decided}: approved without a valid signature") for each in found)


def leaves(value, path=()):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path


def test_any_other_word_of_the_statement_is_found(story):
    story.approve("oak", scope="rule", offer=1, minutes=5)
    records = story.records()
    number = at(records, "person.prove")
    paths = list(leaves(records[number].details["statement"]))
    assert len(paths) >= 12
    for path in paths:
        statement = copy.deepcopy(records[number].details["statement"])
        *way, last = path
        inner = statement
        for step in way:
            inner = inner[step]
        inner[last] = inner[last] + 1 if isinstance(inner[last], int) else f"{inner[last]}x"
        found = faults_of(with_details(records, number, statement=statement))
        assert any(each.startswith(f"record {number + 1}: person.prove does not hold") for each in found), path


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("localhost:5051", "localhost:5052"),
        lambda text: text.replace("webauthn.get", "webauthn.create"),
        lambda text: text + " ",
        lambda text: text.replace("false", "true"),
        lambda _text: "",
    ],
)
def test_other_client_data_is_found(story, change):
    story.approve()
    records = story.records()
    number = at(records, "person.prove")
    text = records[number].details["clientData"]
    assert faults_of(with_details(records, number, clientData=change(text)))


@pytest.mark.parametrize("field", ["statement", "authenticatorData", "signature", "credentialId", "clientData"])
def test_evidence_that_is_not_whole_is_found(story, field):
    story.approve()
    records = story.records()
    assert faults_of(with_details(records, at(records, "person.prove"), **{field: None}))


def test_another_key_in_the_record_of_the_enrolment_is_found(story):
    story.approve()
    records = story.records()
    number = at(records, "passkeys.confirm")
    keys = copy.deepcopy(records[number].details["keys"])
    keys[story.passkey_id]["publicKey"] = SoftKey().create("")["publicKey"]
    assert faults_of(with_details(records, number, keys=keys))[0].startswith(f"record {number + 1}: passkeys.confirm")


# -- what was approved --


def test_a_smuggled_approval_has_no_signature(story):
    """Written into the store as the console would write it, with every hash right."""
    story.approve()
    records = story.records()
    decided = records[at(records, "approvals.decide")]
    smuggled = msgspec.structs.replace(
        decided, subject="apr_evil", details={**decided.details, "proof": None, "process": None}
    )
    found = faults_of([*records, smuggled])
    assert found == [f"record {len(records) + 1}: approved without a valid signature: it names no proof"]
    # The control: with a process, as over a link connection that was unlocked, the ledger has nothing to compare with.
    assert faults_of([*records, with_details([smuggled], 0, process="pid 1 uid 1000")[0]]) == []


def test_an_approval_that_names_a_proof_that_is_not_there_is_found(story):
    records = story.records()
    approval = Record(
        seq=0,
        at=records[-1].at,
        principal="person",
        method="approvals.decide",
        outcome="ok",
        subject="apr_evil",
        details={"decision": "approved", "scope": "once", "proof": "prf_00000000000000000000"},
    )
    assert "its proof is not in the ledger" in faults_of([*records, approval])[0]


def test_a_signature_is_for_one_approval(story):
    story.approve()
    records = story.records()
    decided = records[at(records, "approvals.decide")]
    assert "for other calls" in faults_of([*records, decided])[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("decision", "denied"),
        ("scope", "run"),
        ("principal", "agent:Tom"),
        ("method", "tree.burn"),
        ("digest", "0" * 64),
    ],
)
def test_an_approval_of_something_else_than_was_signed_is_found(story, field, value):
    story.approve()
    records = story.records()
    forged = with_details(records, at(records, "approvals.decide"), **{field: value})
    assert f"signed another {'paramsDigest' if field == 'digest' else field}" in faults_of(forged)[0]


def test_another_question_than_the_one_that_was_signed_is_found(story):
    story.approve()
    records = story.records()
    assert "another approvalId" in faults_of(changed(records, at(records, "approvals.decide"), subject="apr_2"))[0]


def test_a_wider_rule_than_the_one_that_was_signed_is_found(story):
    story.approve("oak", scope="rule", offer=1, minutes=5)
    assert story.faults() == []
    records = story.records()
    number = at(records, "approvals.decide")
    assert "another rule" in faults_of(with_details(records, number, rule="allow everybody to call *"))[0]
    assert "fewer minutes" in faults_of(with_details(records, number, until="2099-01-01T00:00:00.000Z"))[0]


def test_other_calls_than_the_signed_ones_are_found(story):
    story.grove.house.register("Jerry")
    story.page.act(story.key, "agents.revoke", {"agentId": "Jerry"})
    assert story.faults() == []
    records = story.records()
    forged = changed(records, at(records, "agents.revoke"), method="policy.accept")
    assert "its proof is for agents.revoke" in faults_of(forged)[0]


def test_an_effect_outside_of_the_store_names_its_proof_once(story):
    story.page.act(story.key, "tree.water", {"path": "oak"})
    assert [record.outcome for record in story.records() if record.method == "tree.water"] == ["begun", "ok"]
    assert story.faults() == []


def test_the_same_signature_twice_is_found(story):
    story.approve()
    records = story.records()
    number = at(records, "person.prove")
    again = msgspec.structs.replace(records[number], subject="prf_11111111111111111111")
    assert f"repeats the signature of record {number + 1}" in faults_of([*records, again])[0]


# -- which keys counted --


def test_a_signature_by_a_key_that_was_never_enrolled_is_found(story):
    story.approve()
    records = [record for record in story.records() if record.method != "passkeys.confirm"]
    assert all("never enrolled" in each or "not in the ledger" in each for each in faults_of(records))
    assert len(faults_of(records)) == 3


def test_a_signature_after_its_key_was_revoked_is_found(story):
    story.approve()
    records = story.records()
    story.grove.house.call("person", "passkeys.revoke", {"passkeyId": story.passkey_id})
    revoked = story.records()[-1]
    assert revoked.method == "passkeys.revoke"
    number = at(records, "person.prove")
    forged = [*records[:number], revoked, *records[number:]]
    assert "did not count at that time" in faults_of(forged)[0]
    assert story.faults() == []


def test_a_person_who_was_reset_signs_no_more(story):
    story.approve()
    records = story.records()
    number = at(records, "person.prove")
    reset = Record(seq=0, at=records[-1].at, principal="local", method="person.reset", outcome="ok", subject="person")
    assert "did not count at that time" in faults_of([*records[:number], reset, *records[number:]])[0]
    assert faults_of([*records, reset]) == []


def test_a_smuggled_enrolment_needs_a_signature_of_its_key(story):
    records = story.records()
    number = at(records, "passkeys.confirm")
    evil = SoftKey()
    keys = {"pk_evil": {**records[number].details["keys"][story.passkey_id], "publicKey": evil.create("")["publicKey"]}}
    forged = msgspec.structs.replace(
        records[number], subject="pk_evil", details={**records[number].details, "keys": keys}
    )
    assert faults_of([*records, forged])
    only_kept = msgspec.structs.replace(forged, principal="daemon", method="passkeys.keep", details={"keys": keys})
    assert faults_of([*records, only_kept])


def test_the_passphrase_leaves_no_signature_and_no_fault(story):
    approval_id = asked(story.grove)
    answer = story.page.type_passphrase(story.page.challenge(("approvals.decide", approves(approval_id))))
    story.page.call("approvals.decide", approves(approval_id), proof=answer["proofId"])
    result = story.grove.house.call("local", "ledger.verify")
    assert (result["faults"], result["signatures"]) == ([], 2)
    records = story.records()
    assert records[at(records, "person.prove")].details["by"] == "passphrase"


def test_an_approval_over_an_unlocked_link_connection_needs_no_signature(story):
    approval_id = asked(story.grove)
    connection = FakeConnection(story.grove.house.clock)
    story.grove.house.call("person", "approvals.decide", approves(approval_id), connection=connection)
    assert story.faults() == []


# -- retention --


def fill_segment(house):
    while house.journal.chain.seq % 10:
        house.register(f"agent{house.journal.chain.seq}")


def test_signatures_stay_provable_when_the_record_of_the_enrolment_is_dropped():
    story = Story(segment_records=10, ledger_days=1)
    house = story.grove.house
    with house:
        fill_segment(house)
        house.advance(DAY / 2)
        story.page = Page(story.grove).sign_in(story.key)
        story.approve("elm")
        fill_segment(house)
        house.advance(DAY / 2 + 60)
        house.call("local", "daemon.gc")
        methods = {record.method for record in story.records()}
        assert "passkeys.keep" in methods
        assert "passkeys.confirm" not in methods
        result = house.call("local", "ledger.verify")
        assert result["faults"] == []
        assert result["signatures"] >= 1
        # The control: without that record nobody knows the key.
        records = [record for record in story.records() if record.method != "passkeys.keep"]
        assert any("never enrolled" in each for each in window_faults(records))
        house.restart()
        Page(story.grove).sign_in(story.key)
        assert story.faults() == []


def window_faults(records):
    walk = ProofWalk()
    for record in records:
        walk.look(record)
    walk.finish()
    return walk.faults


def test_a_key_that_was_revoked_is_kept_for_as_long_as_its_signatures_are():
    story = Story(segment_records=10, ledger_days=1)
    house = story.grove.house
    with house:
        fill_segment(house)
        house.advance(DAY / 2)
        Page(story.grove).sign_in(story.key)
        house.call("person", "passkeys.revoke", {"passkeyId": story.passkey_id})
        fill_segment(house)
        house.advance(DAY / 2 + 60)
        house.call("local", "daemon.gc")
        assert story.passkey_id in dict(house.store.load("passkeys", PasskeyRecord))
        assert story.faults() == []
        fill_segment(house)
        house.advance(DAY + 60)
        house.call("local", "daemon.gc")
        assert dict(house.store.load("passkeys", PasskeyRecord)) == {}
        assert story.faults() == []
