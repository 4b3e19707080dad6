"""Letters between two nodes that are awake are not signed one by one: their key was."""

import pytest
from machines import Machines

from bascule.mesh.cards import Keys, bytes_of
from bascule.mesh.envelope import BadEnvelope, Pair
from bascule.mesh.protocol import BODY


def _pair(own: str, keys: Keys, peer: str, peer_keys: Keys) -> Pair:
    return Pair(
        own=own,
        sign=keys.sign,
        box=keys.box,
        peer=peer,
        peer_sign=bytes_of(peer_keys.public[0]),
        peer_box=bytes_of(peer_keys.public[1]),
    )


def _acquainted(a: Pair, b: Pair, started: int = 1) -> None:
    """As two signed letters each would make them."""
    for _ in range(2):
        b.learn(started, a.own_half, a.peer_half)
        a.learn(started, b.own_half, b.peer_half)


@pytest.fixture
def keys() -> tuple[Keys, Keys]:
    return Keys.new(), Keys.new()


@pytest.fixture
def two(keys: tuple[Keys, Keys]) -> tuple[Pair, Pair]:
    return _pair("a", keys[0], "b", keys[1]), _pair("b", keys[1], "a", keys[0])


# -- envelopes --


def test_a_session_begins_when_the_other_side_is_known_to_hold_our_half(two: tuple[Pair, Pair]) -> None:
    a, b = two
    a.learn(1, b.own_half, b.peer_half)
    assert not a.in_session
    b.learn(1, a.own_half, a.peer_half)
    # `a` has said that it holds b's half; `b` has not said so yet.
    assert b.in_session
    assert not a.in_session
    assert a.open(b.seal_in_session(b"words")) == (b"words", False)
    # Whoever makes such a letter holds both halves.
    assert a.in_session
    assert b.open(a.seal_in_session(b"more words")) == (b"more words", False)
    assert b.open(a.seal(b"signed words")) == (b"signed words", True)


@pytest.mark.req("MESH-M-5")
def test_a_letter_of_a_session_is_good_for_nobody_else(keys: tuple[Keys, Keys], two: tuple[Pair, Pair]) -> None:
    a, b = two
    _acquainted(a, b)
    letter = a.seal_in_session(b"words")
    with pytest.raises(BadEnvelope):
        a.open(letter)
    third = Keys.new()
    c, a_to_c = _pair("c", third, "a", keys[0]), _pair("a", keys[0], "c", third)
    _acquainted(c, a_to_c)
    with pytest.raises(BadEnvelope):
        c.open(letter)
    with pytest.raises(BadEnvelope):
        b.open(letter[:-1] + bytes([letter[-1] ^ 1]))


@pytest.mark.req("MESH-TRUST-4")
def test_stolen_keys_of_a_node_open_and_forge_no_letter_of_its_sessions(
    keys: tuple[Keys, Keys], two: tuple[Pair, Pair]
) -> None:
    a, b = two
    _acquainted(a, b)
    thief = _pair("b", keys[1], "a", keys[0])
    with pytest.raises(BadEnvelope):
        thief.open(a.seal_in_session(b"words"))
    # With b's keys alone it can make what looks as if `a` had sent it, but for the signature.
    nonce = b"\0" * 12
    with pytest.raises(BadEnvelope, match="signature"):
        b.open(nonce + thief._cipher.encrypt(nonce, bytes(64) + b"forged", None))
    # The control: what was signed it can read.
    assert thief.open(a.seal(b"words")).body == b"words"


def test_an_earlier_life_does_not_take_the_place_of_a_later_one(
    keys: tuple[Keys, Keys], two: tuple[Pair, Pair]
) -> None:
    a, b = two
    later = _pair("b", keys[1], "a", keys[0])
    a.learn(1, b.own_half, a.own_half)
    a.learn(2, later.own_half, a.own_half)
    a.learn(1, b.own_half, a.own_half)
    assert a.peer_half == later.own_half
    later.learn(1, a.own_half, later.own_half)
    assert later.open(a.seal_in_session(b"words")).body == b"words"


@pytest.mark.parametrize(("half", "held"), [("ab" * 32, ""), ("", "")], ids=["its clock went back", "an older version"])
def test_nothing_is_sealed_for_a_session_that_the_other_side_may_not_know(
    two: tuple[Pair, Pair], half: str, held: str
) -> None:
    """Else our receipts would never be read there."""
    a, b = two
    _acquainted(a, b, started=5)
    assert a.in_session
    a.learn(4, half, held)
    assert not a.in_session
    # It was a letter that came late: whoever writes in the session knows it.
    a.open(b.seal_in_session(b"words"))
    assert a.in_session


@pytest.mark.parametrize("half", ["00" * 32, "01" + "00" * 31, ""])
def test_a_half_that_makes_no_secret_makes_no_session(two: tuple[Pair, Pair], half: str) -> None:
    a, _ = two
    a.learn(1, half, a.own_half)
    assert not a.in_session


def test_a_session_that_was_given_up_begins_again_with_a_letter_of_either_kind(two: tuple[Pair, Pair]) -> None:
    a, b = two
    _acquainted(a, b)
    a.end_session()
    assert not a.in_session
    a.learn(1, b.own_half, b.peer_half)
    assert a.in_session
    a.end_session()
    a.open(b.seal_in_session(b"words"))
    assert a.in_session


def test_nothing_is_sealed_for_a_session_once_the_other_side_says_that_it_holds_an_earlier_half(
    keys: tuple[Keys, Keys], two: tuple[Pair, Pair]
) -> None:
    earlier, b = two
    b.learn(1, earlier.own_half, "")
    held = b.peer_half
    a = _pair("a", keys[0], "b", keys[1])
    _acquainted(a, b, started=2)
    assert a.in_session
    # Before it had any half of ours it said so; such a letter may come late, and says nothing.
    a.learn(2, b.own_half, "")
    assert a.in_session
    a.learn(2, b.own_half, held)
    assert not a.in_session


# -- machines --


def _ask_and_answer(pair: Machines, ticket: str) -> None:
    pair["laptop"].send("Ada", "Jerry@desk", "why?", ticketId=ticket)
    pair.settle()
    (message,) = pair["desk"].take("Jerry")
    pair["desk"].reply("Jerry", message["ticketId"], "so")
    pair.settle()
    assert pair["laptop"].show(ticket)["response"] == "so"


def test_machines_that_know_each_other_sign_no_letters(pair: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    signed: list[bytes] = []
    seal = Pair.seal

    def counting(self: Pair, body: bytes) -> bytes:
        signed.append(body)
        return seal(self, body)

    monkeypatch.setattr(Pair, "seal", counting)
    _ask_and_answer(pair, "one")
    signed.clear()
    _ask_and_answer(pair, "two")
    assert signed == []


@pytest.mark.parametrize("who", ["laptop", "desk"])
def test_a_machine_that_was_started_again_gets_every_letter(pair: Machines, who: str) -> None:
    _ask_and_answer(pair, "one")
    pair[who].crash()
    # Before it is heard of: the letter is of a session that it has forgotten.
    pair["laptop"].send("Ada", "Jerry@desk", "why?", ticketId="two")
    pair.settle()
    (message,) = pair["desk"].take("Jerry")
    pair["desk"].reply("Jerry", message["ticketId"], "so")
    pair.advance(5)
    pair.settle()
    assert pair["laptop"].show("two")["response"] == "so"
    _ask_and_answer(pair, "three")
    assert pair["laptop"].engine.nodes.get("desk").pair.in_session
    assert pair["desk"].engine.nodes.get("laptop").pair.in_session


def test_a_letter_in_a_mailbox_is_signed_and_opens_in_a_later_life(pair: Machines) -> None:
    _ask_and_answer(pair, "one")
    desk = pair["desk"]
    desk.house.run(desk.post.disconnect)
    pair.advance(120)
    pair["laptop"].send("Ada", "Jerry@desk", "why?", ticketId="two")
    pair.advance(5)
    desk.crash()
    pair.settle()
    (message,) = desk.take("Jerry")
    assert message["payload"] == "why?"


def test_a_letter_of_an_earlier_life_that_comes_late_keeps_no_receipt_away(pair: Machines) -> None:
    """Found by the simulation: the machine that had waited took the half of that life, and the other one, which only
    had receipts to send, went on with the session of this life."""
    laptop, desk = pair["laptop"], pair["desk"]
    late = next(each for each in pair.bus.letters if (each.src, each.dest) == ("laptop", "desk"))
    laptop.crash()
    pair.settle()
    _ask_and_answer(pair, "one")
    desk.send("Jerry", "Ada@laptop", "and you?", ticketId="two")
    desk.house.advance(0)
    # What is under way is lost, so that after a second the session is given up.
    pair.bus.moving.clear()
    pair.advance(2)
    pair.bus.moving.clear()
    pair.bus.slip_in(late, mailed=True)
    pair.settle()
    pair.advance(60)
    pair.settle()
    assert [each["payload"] for each in laptop.take("Ada")] == ["and you?"]
    assert desk.show("two")["delivery"]["state"] == "arrived"
    assert not desk.mesh.state.out.rows


def test_halves_are_hex_of_their_length_or_the_letter_does_not_count() -> None:
    body = b'{"v":1,"half":"%b","anchor":[0,""],"items":[]}'
    assert BODY.decode(body % (b"ab" * 32)).half == "ab" * 32
    for half in (b"ab", b"zz" * 32, b"ab" * 33):
        with pytest.raises(Exception, match="half"):
            BODY.decode(body % half)
