"""A passkey becomes the person's with a code from their terminal, a touch that verifies them, and a first signature."""

import msgspec
import pytest
from console_page import Page, invited
from felling import PASSPHRASE

from bascule.admin.enrolment import INVITE_SECONDS, INVITE_TRIES
from bascule.admin.passkeys import MAX_PASSKEYS
from bascule.admin.records import PasskeyRecord
from bascule.foundation.errors import Conflict, Forbidden
from bascule.kernel.identity.webauthn import ALGORITHMS
from bascule.testing.fakes import FakeConnection
from soft_key import ELIGIBLE, PRESENT, SoftKey


@pytest.fixture
def page(grove):
    return Page(grove).pair()


def listed(grove):
    return grove.house.call("local", "passkeys.list")


def ledgered(grove, method):
    return [record for record in grove.house.ledger() if record["method"] == method]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_paired_page_with_the_code_enrols_a_key(grove, page, algorithm):
    passkey_id = page.enrol(SoftKey(algorithm), "blue key")
    assert [(each["passkeyId"], each["name"]) for each in listed(grove)] == [(passkey_id, "blue key")]
    record = ledgered(grove, "passkeys.confirm")[0]
    assert (record["subject"], record["outcome"]) == (passkey_id, "ok")
    assert record["details"]["keys"][passkey_id]["algorithm"] == algorithm


def test_the_browser_is_asked_for_a_key_that_verifies_its_user(grove, page):
    first = SoftKey()
    page.enrol(first)
    options = page.call("passkeys.begin", {"code": invited(grove.house), "name": "second"})["options"]
    assert options["authenticatorSelection"]["userVerification"] == "required"
    assert options["attestation"] == "none"
    assert options["rp"]["id"] == "localhost"
    assert [each["alg"] for each in options["pubKeyCredParams"]] == [-7, -8, -257]
    assert [each["id"] for each in options["excludeCredentials"]] == [first.id]


def test_two_enrolments_have_two_user_ids_so_that_neither_replaces_the_other(grove, page):
    ids = [
        page.call("passkeys.begin", {"code": invited(grove.house), "name": "same"})["options"]["user"]["id"]
        for _ in range(2)
    ]
    assert ids[0] != ids[1]


# -- the code --


def test_only_the_person_makes_a_code(grove, page):
    for principal in ("local", "agent:Jerry"):
        with pytest.raises(Forbidden):
            grove.house.call(principal, "passkeys.invite", connection=FakeConnection(grove.house.clock))
    with pytest.raises(Forbidden):
        page.call("passkeys.invite")
    assert invited(grove.house)


def test_a_page_without_the_code_enrols_nothing(grove, page):
    invited(grove.house)
    with pytest.raises(Forbidden, match="can no longer be used"):
        page.call("passkeys.begin", {"code": "AAAA-AAAA", "name": "evil"})
    assert [record["outcome"] for record in ledgered(grove, "passkeys.begin")] == ["forbidden"]


def test_a_code_is_good_once(grove, page):
    code = invited(grove.house)
    page.call("passkeys.begin", {"code": code, "name": "one"})
    with pytest.raises(Forbidden):
        page.call("passkeys.begin", {"code": code, "name": "two"})


def test_a_new_code_makes_the_one_before_void(grove, page):
    old, new = invited(grove.house), invited(grove.house)
    with pytest.raises(Forbidden):
        page.call("passkeys.begin", {"code": old, "name": "one"})
    page.call("passkeys.begin", {"code": new, "name": "one"})


@pytest.mark.parametrize("jump", [0.0, -3600.0])
def test_a_code_ends_after_three_minutes(grove, page, jump):
    code = invited(grove.house)
    grove.house.clock.jump_wall(jump)
    grove.house.advance(INVITE_SECONDS)
    with pytest.raises(Forbidden):
        page.call("passkeys.begin", {"code": code, "name": "late"})


def test_a_code_that_was_guessed_at_is_void(grove, page):
    code = invited(grove.house)
    for _ in range(INVITE_TRIES):
        with pytest.raises(Forbidden):
            page.call("passkeys.begin", {"code": "guess", "name": "x"})
    with pytest.raises(Forbidden):
        page.call("passkeys.begin", {"code": code, "name": "x"})


def test_a_code_with_one_wrong_try_still_counts(grove, page):
    code = invited(grove.house)
    with pytest.raises(Forbidden):
        page.call("passkeys.begin", {"code": "guess", "name": "x"})
    page.call("passkeys.begin", {"code": code, "name": "x"})


@pytest.mark.parametrize("typed", [str.lower, lambda code: code.replace("-", ""), lambda code: f" {code} "])
def test_a_code_may_be_typed_as_people_type(grove, page, typed):
    page.call("passkeys.begin", {"code": typed(invited(grove.house)), "name": "x"})


def test_the_code_is_in_no_record_and_no_log_line(grove, page):
    code = invited(grove.house)
    page.call("passkeys.begin", {"code": code, "name": "x"})
    assert code not in str(grove.house.ledger())
    assert code not in str(grove.house.log)


def test_a_call_without_a_session_of_the_console_enrols_nothing(grove):
    with pytest.raises(Forbidden, match="page of the console"):
        grove.house.call("local", "passkeys.begin", {"code": invited(grove.house), "name": "x"})


# -- the key --


def begun(grove, page):
    return page.call("passkeys.begin", {"code": invited(grove.house), "name": "x"})


def test_a_key_that_cannot_verify_its_user_is_refused_with_how_to_set_a_pin(grove, page):
    key = SoftKey()
    key.flags = PRESENT
    with pytest.raises(Forbidden, match="did not verify") as refused:
        page.finish(begun(grove, page), key)
    assert "PIN" in refused.value.hint
    assert listed(grove) == []


def test_a_key_counts_only_after_its_first_signature(grove, page):
    key = SoftKey()
    start = begun(grove, page)
    page.call("passkeys.finish", {"challengeId": start["challengeId"], **key.create(start["options"]["challenge"])})
    assert listed(grove) == []
    with pytest.raises(Forbidden, match="not enrolled"):
        Page(grove).sign_in(key)


def test_who_shows_anothers_key_cannot_confirm_it(grove, page):
    """The page says a public key whose private half it does not have."""
    mine, theirs = SoftKey(), SoftKey()
    start = begun(grove, page)
    made = mine.create(start["options"]["challenge"]) | {"publicKey": theirs.create("")["publicKey"]}
    following = page.call("passkeys.finish", {"challengeId": start["challengeId"], **made})
    with pytest.raises(Forbidden, match="signature"):
        page.confirm(following, mine)
    assert listed(grove) == []


def test_another_credential_cannot_confirm_a_key(grove, page):
    key = SoftKey()
    start = begun(grove, page)
    following = page.call(
        "passkeys.finish", {"challengeId": start["challengeId"], **key.create(start["options"]["challenge"])}
    )
    with pytest.raises(Forbidden, match="another passkey"):
        page.confirm(following, SoftKey())


def test_a_step_of_an_enrolment_is_spent_at_first_sight(grove, page):
    key = SoftKey()
    start = begun(grove, page)
    made = {"challengeId": start["challengeId"], **key.create(start["options"]["challenge"])}
    page.call("passkeys.finish", made)
    with pytest.raises(Forbidden, match="not open"):
        page.call("passkeys.finish", made)


def test_an_enrolment_belongs_to_the_session_that_began_it(grove, page):
    key = SoftKey()
    start = begun(grove, page)
    made = {"challengeId": start["challengeId"], **key.create(start["options"]["challenge"])}
    with pytest.raises(Forbidden, match="not open"):
        Page(grove).pair().call("passkeys.finish", made)


def test_a_challenge_to_sign_in_enrols_nothing_and_one_to_enrol_signs_nobody_in(grove, page):
    key = SoftKey()
    page.enrol(key)
    start = begun(grove, page)
    with pytest.raises(Forbidden, match="not open"):
        page.answer({"challengeId": start["challengeId"], "challenge": start["options"]["challenge"]}, key)
    challenge = page.challenge()
    with pytest.raises(Forbidden, match="not open"):
        page.confirm(challenge, key)


def test_the_same_key_is_enrolled_once(grove, page):
    key = SoftKey()
    page.enrol(key)
    with pytest.raises(Conflict, match="enrolled already"):
        page.enrol(key)


def test_there_is_room_for_some_keys(grove, page):
    for number in range(MAX_PASSKEYS):
        page.enrol(SoftKey(), f"key {number}")
    with pytest.raises(Conflict, match="are enrolled"):
        invited(grove.house)


def test_a_synced_key_is_shown_as_one(grove, page):
    key = SoftKey()
    key.flags |= ELIGIBLE
    key.counter = None
    page.enrol(key)
    assert listed(grove)[0]["synced"] is True


# -- the end of a key --


def test_a_person_revokes_a_key_and_it_signs_nobody_in(grove, page):
    key = SoftKey()
    passkey_id = page.enrol(key)
    Page(grove).sign_in(key)
    with pytest.raises(Forbidden):
        grove.house.call("local", "passkeys.revoke", {"passkeyId": passkey_id})
    grove.house.call("person", "passkeys.revoke", {"passkeyId": passkey_id})
    assert listed(grove) == []
    with pytest.raises(Forbidden, match="not enrolled"):
        Page(grove).sign_in(key)


def test_a_copied_key_is_suspended_when_its_counter_goes_back(grove, page):
    key = SoftKey()
    page.enrol(key)
    Page(grove).sign_in(key)
    assert key.counter is not None
    key.counter -= 1
    with pytest.raises(Forbidden, match="counter went"):
        Page(grove).sign_in(key)
    assert listed(grove)[0]["suspended"] is True
    key.counter += 100
    with pytest.raises(Forbidden, match="suspended"):
        Page(grove).sign_in(key)
    assert [record["outcome"] for record in ledgered(grove, "passkeys.suspend")] == ["ok"]
    grove.house.restart()
    assert listed(grove)[0]["suspended"] is True


def test_a_forged_counter_suspends_nothing(grove, page):
    """Only a valid signature says anything about the counter: else anybody could take the person's key away."""
    key, other = SoftKey(), SoftKey()
    page.enrol(key)
    other.credential_id, other.counter = key.credential_id, 0
    with pytest.raises(Forbidden, match="signature"):
        Page(grove).sign_in(other)
    Page(grove).sign_in(key)


def test_a_synced_key_stays_at_zero_and_is_not_suspended(grove, page):
    key = SoftKey()
    key.counter = None
    page.enrol(key)
    for _ in range(3):
        Page(grove).sign_in(key)


# -- rows and their records --


def stored(grove):
    return dict(grove.house.store.load("passkeys", PasskeyRecord))


def smuggle(grove, row):
    grove.house.store._tables["passkeys"][row.passkey_id] = row


def test_a_key_is_still_there_after_a_restart(grove, page):
    key = SoftKey()
    page.enrol(key)
    grove.house.restart()
    Page(grove).sign_in(key)


def test_a_row_without_its_record_is_ignored(grove, page):
    mine, evil = SoftKey(), SoftKey()
    passkey_id = page.enrol(mine)
    row = stored(grove)[passkey_id]
    changes = [
        # A key beside ours, which names our record.
        {"passkey_id": "pk_evil", "credential_id": evil.id, "public_key": evil.create("")["publicKey"]},
        # Ours, with another key in it.
        {"passkey_id": "pk_evil2", "public_key": evil.create("")["publicKey"]},
        {"passkey_id": "pk_evil3", "record": 1},
        {"passkey_id": "pk_evil4", "record": 10_000},
    ]
    for change in changes:
        smuggle(grove, msgspec.structs.replace(row, **change))
    grove.house.restart()
    assert [each["passkeyId"] for each in listed(grove)] == [passkey_id]
    ignored = {fields["passkey"] for event, fields in grove.house.log if event == "passkey_ignored"}
    assert ignored == {"pk_evil", "pk_evil2", "pk_evil3", "pk_evil4"}
    with pytest.raises(Forbidden, match="not enrolled"):
        Page(grove).sign_in(evil)


def test_a_row_whose_key_was_changed_in_place_is_ignored(grove, page):
    mine, evil = SoftKey(), SoftKey()
    passkey_id = page.enrol(mine)
    row = stored(grove)[passkey_id]
    smuggle(
        grove,
        msgspec.structs.replace(row, credential_id=evil.id, public_key=evil.create("")["publicKey"]),
    )
    grove.house.restart()
    assert listed(grove) == []
    with pytest.raises(Forbidden, match="not enrolled"):
        Page(grove).sign_in(evil)


def test_a_smuggled_key_signs_in_where_nobody_looks_into_the_ledger(grove, page, monkeypatch):
    """The control of the two tests above."""
    mine, evil = SoftKey(), SoftKey()
    passkey_id = page.enrol(mine)
    row = stored(grove)[passkey_id]
    smuggle(
        grove,
        msgspec.structs.replace(
            row, passkey_id="pk_evil", credential_id=evil.id, public_key=evil.create("")["publicKey"], counter=0
        ),
    )
    monkeypatch.setattr("bascule.admin.passkeys._is_vouched", lambda *_: True)
    grove.house.restart()
    Page(grove).sign_in(evil)


def test_the_passphrase_signs_in_where_no_key_is_enrolled(grove):
    page = Page(grove)
    challenge = page.challenge()
    assert (challenge["allowCredentials"], challenge["passphrase"]) == ([], True)
    page.type_passphrase(challenge, PASSPHRASE["passphrase"])
