"""The holder of the mesh key: who gets a card, who does not, and what somebody with a stolen code can do."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joining_scene import Holder, Joiner

from bascule.foundation.errors import Conflict, NotFound, Overloaded
from bascule.kernel.journal import Transaction
from bascule.mesh.admissions import (
    FETCH_SECONDS,
    MAX_INVITES,
    MAX_REQUESTS,
    MAX_TRIES,
    RENEW_DAYS,
    REQUEST_SECONDS,
    Admissions,
    mesh_secret,
)
from bascule.mesh.cards import (
    CARD_DAYS,
    DAY_MS,
    BadCard,
    Card,
    Revoked,
    read_card,
    read_revoked,
    sign_card,
    sign_revoked,
    text_of,
)
from bascule.mesh.join_code import CODE_SECONDS, bus_key, public_text
from bascule.mesh.knock import AnswerState, BadKnock, Party, Refusal, commitment_of, read_knock, words_between
from bascule.mesh.membership import keys_of
from bascule.mesh.roster import REVOKED_KEY

WAITING, ACCEPTED, DENIED, REFUSED = AnswerState


@pytest.fixture
def holder():
    return Holder()


@pytest.fixture
def laptop(holder):
    return Joiner(holder, code=holder.invite())


# -- the way it should go --


@pytest.mark.req("MESH-JOIN-1")
def test_both_sides_show_the_same_words_and_a_yes_brings_the_card(holder, laptop):
    assert laptop.ask().state is WAITING
    assert laptop.words == holder.admissions.find("laptop").words
    holder.accept("laptop")
    answer = laptop.knock(reveal=True)
    assert answer.state is ACCEPTED
    card = read_card(holder.own.mesh_key, "home", answer.card.encode())
    assert (card.node, card.sign, card.box, card.bus) == ("laptop", *laptop.keys.public)
    assert (card.owner, card.owner_name) == ("own_me", "me")
    assert card.not_after == holder.later()
    assert holder.roster.card("laptop") == card


@pytest.mark.req("MESH-JOIN-3")
def test_nobody_is_shown_to_the_person_before_both_numbers_are_fixed(holder, laptop):
    laptop.knock()
    assert list(holder.admissions.asked()) == []
    laptop.knock(reveal=True)
    assert [each.joiner.node for each in holder.admissions.asked()] == ["laptop"]


def test_a_knock_that_comes_again_changes_nothing(holder, laptop):
    first = laptop.ask()
    words = laptop.words
    assert laptop.knock(reveal=True) == first
    assert laptop.words == words
    assert len(holder.admissions.requests.rows) == 1


def test_a_denied_node_hears_so_and_gets_no_card(holder, laptop):
    laptop.ask()
    holder.deny("laptop")
    assert laptop.knock(reveal=True).state is DENIED
    assert holder.roster.known("laptop") is None
    with pytest.raises(NotFound, match="asks to join"):
        holder.accept("laptop", "any words")


def test_a_code_for_somebody_else_makes_their_node_and_the_next_one_theirs_too(holder):
    first = Joiner(holder, "ann-vm", holder.invite("Ann"))
    first.ask()
    card = holder.accept("ann-vm")
    assert card.owner_name == "Ann"
    assert card.owner != "own_me"
    second = Joiner(holder, "ann-laptop", holder.invite("Ann"))
    second.ask()
    assert holder.accept("ann-laptop").owner == card.owner
    other = Joiner(holder, "bob", holder.invite("Bob"))
    other.ask()
    assert holder.accept("bob").owner not in ("own_me", card.owner)


def test_without_a_code_a_person_says_whose_node_it_is(holder):
    joiner = Joiner(holder, "vm")
    assert joiner.ask().state is WAITING
    assert holder.accept("vm", owner_name="Ann").owner_name == "Ann"


# -- time --


@pytest.mark.req("MESH-JOIN-2")
def test_a_code_is_good_for_ten_minutes(holder, laptop):
    holder.clock.advance(CODE_SECONDS - 1)
    assert laptop.knock().state is WAITING
    late = Joiner(holder, "late", holder.invite())
    holder.clock.advance(CODE_SECONDS)
    assert late.knock().refusal == Refusal.CODE_UNKNOWN


def test_a_question_that_nobody_answers_ends_after_ten_minutes(holder, laptop):
    laptop.ask()
    holder.clock.advance(REQUEST_SECONDS)
    assert list(holder.admissions.asked()) == []
    assert laptop.knock(reveal=True).refusal == Refusal.OVER
    with pytest.raises(NotFound):
        holder.accept("laptop", "any words")


def test_who_was_accepted_while_it_was_away_finds_its_card(holder, laptop):
    laptop.ask()
    holder.accept("laptop")
    holder.clock.advance(FETCH_SECONDS - 1)
    assert laptop.knock(reveal=True).state is ACCEPTED
    invitation = holder.admissions.requests.rows[laptop.party.sign].invitation
    assert invitation in holder.admissions.open_invites()
    with Transaction() as tx:
        assert holder.admissions.fetched(tx, laptop.party.sign)
    assert invitation not in holder.admissions.open_invites(), "the code's key is of no use any more"


def test_what_is_over_is_forgotten(holder, laptop):
    laptop.ask()
    Joiner(holder, "vm", holder.invite()).knock()
    holder.clock.advance(2 * REQUEST_SECONDS + 1)
    with Transaction() as tx:
        assert holder.admissions.forget(tx) == 3
    assert not holder.admissions.requests.rows
    assert not holder.admissions.invites.rows


@pytest.mark.req("MESH-JOIN-9")
def test_cards_are_renewed_in_their_last_thirty_days_and_those_revoked_are_not(holder):
    for name in ("vm", "old"):
        Joiner(holder, name, holder.invite()).ask()
        holder.accept(name)
    holder.revoke("old")
    holder.clock.advance((CARD_DAYS - RENEW_DAYS) * DAY_MS / 1000)
    with Transaction() as tx:
        assert holder.admissions.renew(tx, holder.own) == []
    holder.clock.advance(1)
    before = holder.roster.card("vm")
    with Transaction() as tx:
        assert sorted(holder.admissions.renew(tx, holder.own)) == ["desk", "vm"]
    after = holder.roster.card("vm")
    assert (after.serial, after.not_after, after.sign) == (before.serial + 1, holder.later(), before.sign)


@pytest.mark.req("MESH-JOIN-9")
def test_a_card_whose_time_is_over_does_not_count(holder, laptop):
    laptop.ask()
    holder.accept("laptop")
    holder.clock.advance(CARD_DAYS * DAY_MS / 1000)
    assert holder.roster.card("laptop") is None
    assert holder.roster.known("laptop") is not None


# -- names --


@pytest.mark.parametrize("name", ["any", "local", "a2a"])
def test_a_reserved_name_is_refused(holder, name):
    assert Joiner(holder, name, holder.invite()).knock().refusal == Refusal.NAME_RESERVED


def test_a_taken_name_is_refused_and_the_code_is_still_good(holder, laptop):
    taken = Joiner(holder, "desk", laptop.code)
    assert taken.knock(reveal=True).refusal == Refusal.NAME_TAKEN
    assert laptop.ask().state is WAITING


def test_of_two_that_want_one_name_the_first_waits_and_the_second_is_refused(holder, laptop):
    laptop.ask()
    assert Joiner(holder, "laptop", holder.invite()).knock().refusal == Refusal.NAME_TAKEN


def test_the_name_of_a_revoked_node_may_be_used_again_with_new_keys(holder, laptop):
    laptop.ask()
    old = holder.accept("laptop")
    holder.revoke("laptop")
    again = Joiner(holder, "laptop", holder.invite())
    again.ask()
    card = holder.accept("laptop")
    assert card.serial == old.serial + 1
    assert holder.roster.card("laptop").sign == again.party.sign


# -- restarts --


def test_a_holder_that_restarts_while_a_person_is_asked_goes_on_with_the_same_words(holder, laptop):
    laptop.ask()
    words = laptop.words
    holder.restart()
    assert laptop.knock(reveal=True).state is WAITING
    assert laptop.words == words == holder.admissions.find("laptop").words


def test_a_holder_that_restarts_between_the_knocks_takes_a_new_number(holder, laptop):
    laptop.knock()
    number = laptop.answer.number
    holder.restart()
    laptop.knock(reveal=True)
    assert laptop.answer.number != number
    # The joiner has shown its number before it saw this one, so it begins again with another.
    laptop.number = text_of(os.urandom(32))
    laptop.ask()
    assert laptop.words == holder.admissions.find("laptop").words


# -- attacks --


@pytest.mark.req("MESH-JOIN-2")
def test_a_code_that_was_used_is_refused_for_everybody_else(holder, laptop):
    thief = Joiner(holder, "thief", laptop.code)
    laptop.ask()
    assert thief.knock().refusal == Refusal.CODE_USED
    assert thief.knock(reveal=True).refusal == Refusal.CODE_USED
    holder.accept("laptop")
    assert thief.knock(reveal=True).refusal == Refusal.CODE_USED


def test_a_thief_who_was_first_shows_other_words_than_the_screen_of_the_owner(holder, laptop):
    laptop.knock()
    expected = laptop.words
    thief = Joiner(holder, "laptop", laptop.code)
    thief.ask()
    assert laptop.knock(reveal=True).refusal == Refusal.CODE_USED
    assert holder.admissions.find("laptop").words == thief.words != expected
    with pytest.raises(Conflict, match="other words"):
        holder.accept("laptop", expected)


def test_the_public_key_of_a_code_alone_opens_nothing(holder, laptop):
    """The server sees that key at every login."""
    assert laptop.knock(proof=os.urandom(32)).refusal == Refusal.CODE_UNKNOWN
    # Control: with the code it is taken.
    assert laptop.knock().state is WAITING


def test_a_knock_in_the_name_of_another_key_is_refused(holder, laptop):
    other = Joiner(holder, "laptop", laptop.code)
    with pytest.raises(BadKnock, match="signature"):
        laptop.knock(joiner=other.party)


def test_keys_cannot_be_changed_once_a_person_looks_at_the_words(holder, laptop):
    laptop.ask()
    other = Joiner(holder).party
    swapped = Party(node="laptop", sign=laptop.party.sign, box=other.box, bus=other.bus)
    assert laptop.knock(reveal=True, joiner=swapped).refusal == Refusal.BAD
    assert holder.accept("laptop").box == laptop.party.box


def _first_two(words):
    return words.split()[:2]


@pytest.mark.req("MESH-JOIN-3")
def test_a_number_cannot_be_chosen_after_the_holders_was_seen(holder, laptop):
    """The control shows what it would be good for: in a second, two of the words are the same on both screens."""
    laptop.knock()
    screen = laptop.words
    middle = Joiner(holder, "laptop", laptop.code)
    seen = middle.knock()

    def words(number):
        return words_between(
            mesh="home",
            mesh_key=holder.own.mesh_key,
            joiner=middle.party,
            holder=seen.holder,
            numbers=(number, seen.number),
        )

    candidates = (text_of(each.to_bytes(32, "big")) for each in range(1_000_000))
    found = next(each for each in candidates if _first_two(words(each)) == _first_two(screen))
    assert _first_two(words(found)) == _first_two(screen)
    # With the guard: it is not the number that was committed to, and another commitment brings another number.
    with pytest.raises(BadKnock, match="committed"):
        middle.knock(reveal=True, number=found)
    middle.number = found
    assert middle.knock().number != seen.number
    assert commitment_of(found) != seen.number


@pytest.mark.req("MESH-JOIN-3")
def test_words_can_be_tried_a_few_times_only(holder, laptop):
    """Whatever keys somebody with the code comes with: each answer is one guess."""
    tried = [Joiner(holder, f"n{each}", laptop.code).knock() for each in range(MAX_TRIES + 3)]
    assert [each.state for each in tried] == [WAITING] * MAX_TRIES + [REFUSED] * 3
    assert tried[-1].refusal == Refusal.FULL
    assert len({each.number for each in tried[:MAX_TRIES]}) == MAX_TRIES


def test_more_questions_than_a_person_can_look_at_are_refused(holder):
    joiners = [Joiner(holder, f"n{each}") for each in range(MAX_REQUESTS + 1)]
    states = [joiner.ask().state for joiner in joiners]
    assert states == [WAITING] * MAX_REQUESTS + [REFUSED]
    holder.deny("n0")
    assert joiners[-1].ask().state is WAITING
    assert Joiner(holder, "later").ask().state is REFUSED
    holder.clock.advance(REQUEST_SECONDS)
    assert Joiner(holder, "later").ask().state is WAITING


@pytest.mark.req("MESH-JOIN-5")
def test_a_joiner_does_not_get_the_login_of_another_node(holder, laptop, monkeypatch):
    """All see the keys on the others' cards, and nobody proves that it has its own."""
    laptop.ask()
    holder.accept("laptop")
    desk, other = holder.roster.card("desk"), Joiner(holder, "other", holder.invite())
    other.ask()
    open_code = public_text(bus_key(holder.invite().secret))
    for taken in (desk.bus, laptop.party.bus, other.party.bus, open_code):
        evil = Joiner(holder, "evil", holder.invite())
        evil.party = msgspec.structs.replace(evil.party, bus=taken)
        assert evil.knock().refusal == Refusal.BAD
    # The control: with the guard off it is asked about as any other, and `users` alone keeps the server alive.
    monkeypatch.setattr(Admissions, "_has_login_of_another", lambda *_: False)
    assert evil.ask().state is AnswerState.WAITING


def test_more_codes_than_anybody_needs_are_refused(holder):
    for _ in range(MAX_INVITES):
        holder.invite()
    with pytest.raises(Overloaded, match="join codes"):
        holder.invite()
    holder.clock.advance(CODE_SECONDS)
    holder.invite()


@given(st.binary(max_size=400))
def test_any_bytes_are_a_knock_or_are_refused(data):
    with pytest.raises(BadKnock):
        read_knock(data)


# -- revoking --


def test_revoking_raises_the_number_and_ends_the_card_at_once(holder, laptop):
    laptop.ask()
    card = holder.accept("laptop")
    holder.revoke("laptop")
    assert holder.roster.card("laptop") is None
    number, signed = holder.roster.revocations()
    assert read_revoked(holder.own.mesh_key, "home", signed) == Revoked(mesh="home", number=number, keys=[card.sign])
    assert holder.roster.revoked_keys == {card.sign}
    with pytest.raises(NotFound):
        holder.revoke("laptop")
    again = Joiner(holder, "other", holder.invite())
    again.keys, again.party = laptop.keys, Party(node="other", **_public(laptop.keys))
    assert again.knock().refusal == Refusal.REVOKED, "a revoked key never comes again, whatever it calls itself"


@pytest.mark.req("MESH-JOIN-9")
def test_an_older_list_or_card_never_takes_the_place_of_a_newer_one(holder, laptop):
    laptop.ask()
    old = sign_card(holder.key, holder.accept("laptop"))
    older_list = sign_revoked(holder.key, Revoked(mesh="home", number=0))
    holder.revoke("laptop")
    with Transaction() as tx:
        assert not holder.roster.learn(tx, REVOKED_KEY, older_list)
        assert not holder.roster.learn(tx, "laptop", old)
    assert holder.roster.card("laptop") is None
    # Control: a newer list is taken.
    newer = sign_revoked(holder.key, Revoked(mesh="home", number=2**50, keys=[text_of(bytes(32))]))
    with Transaction() as tx:
        assert holder.roster.learn(tx, REVOKED_KEY, newer)
    assert holder.roster.revocations() == (2**50, newer)
    assert holder.roster.is_revoked_key(text_of(bytes(32)))


@pytest.mark.req("MESH-JOIN-9")
@pytest.mark.parametrize("order", ["newer last", "older last"])
def test_a_key_that_was_revoked_stays_so_though_a_newer_list_has_forgotten_it(holder, order):
    """Lists of a machine that was put back from a backup in between."""
    one, two = text_of(bytes([1] * 32)), text_of(bytes([2] * 32))
    older = sign_revoked(holder.key, Revoked(mesh="home", number=1, keys=[one]))
    newer = sign_revoked(holder.key, Revoked(mesh="home", number=2, keys=[two]))
    for each in (older, newer) if order == "newer last" else (newer, older):
        with Transaction() as tx:
            assert holder.roster.learn(tx, REVOKED_KEY, each)
    assert holder.roster.revoked_keys == {one, two}
    assert holder.roster.revocations() == (2, newer)
    with Transaction() as tx:
        assert not holder.roster.learn(tx, REVOKED_KEY, older)


def test_a_list_has_a_number_that_no_list_before_a_restore_had(holder, laptop):
    laptop.ask()
    holder.accept("laptop")
    holder.revoke("laptop")
    # As many lists as there are milliseconds would have had to be signed since the backup.
    assert holder.roster.revocations()[0] >= holder.clock.wall_ms()


def test_a_card_that_another_key_signed_is_not_taken(holder):
    other = Holder()
    card = Card(mesh="home", node="vm", **_keys(other), owner="own_me", not_after=holder.later())
    with Transaction() as tx, pytest.raises(BadCard, match="signature"):
        holder.roster.learn(tx, "vm", sign_card(other.key, card))
    with Transaction() as tx, pytest.raises(BadCard, match="under the name"):
        holder.roster.learn(tx, "desk", sign_card(holder.key, card))
    with Transaction() as tx:
        assert holder.roster.learn(tx, "vm", sign_card(holder.key, card)), "control: signed by ours, under its own name"


def test_what_is_known_comes_back_when_a_change_is_undone(holder, laptop):
    laptop.ask()
    holder.accept("laptop")
    tx = Transaction()
    holder.admissions.revoke(tx, holder.own, "laptop")
    assert holder.roster.card("laptop") is None
    tx.undo()
    assert holder.roster.card("laptop") is not None


def test_a_node_without_the_mesh_key_signs_nothing(holder):
    from msgspec.structs import replace

    with pytest.raises(Conflict, match="does not hold the mesh key"):
        mesh_secret(replace(holder.own, mesh_secret=None))


def _keys(holder):
    return _public(keys_of(holder.own))


def _public(keys):
    return dict(zip(("sign", "box", "bus"), keys.public, strict=True))
