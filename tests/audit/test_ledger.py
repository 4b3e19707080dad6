"""The chain: any single change to a kept ledger is found."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bascule.kernel.journal_ports import LedgerRow
from bascule.kernel.ledger import GENESIS, Anchor, Chain, Record, Segment, Verifier, link, read_record
from bascule.testing.house import House

RECORDS = 12


def build(count=RECORDS, *, chain=None):
    chain = chain or Chain(None)
    return [
        chain.append(
            at=1_760_947_200_000 + number,
            principal="agent:Jerry",
            method="messages.send",
            outcome="ok",
            subject=f"t{number}",
            rule="message" if number % 2 else None,
            details={"bytes": number, "to": "Spöck"} if number % 3 else None,
        )
        for number in range(count)
    ]


def anchor(row, why="stop"):
    return Anchor(seq=row.seq, head=row.hash.hex(), at=0, why=why)


def faults(rows, *, segments=(), anchors=(), page=5):
    verifier = Verifier(list(segments), list(anchors))
    for start in range(0, len(rows), page):
        verifier.feed(rows[start : start + page])
    verifier.finish()
    return verifier.faults


def segment(rows):
    """What the journal keeps of a closed stretch."""
    return Segment(first=rows[0].seq, last=rows[-1].seq, before="", head=rows[-1].hash.hex(), closed_at=0)


# -- the chain --


def test_each_record_follows_from_the_one_before_it():
    rows = build()
    assert [row.seq for row in rows] == list(range(1, RECORDS + 1))
    assert rows[0].hash == link(GENESIS, rows[0].body)
    for before, after in pairwise(rows):
        assert after.hash == link(before.hash, after.body)


def test_a_record_says_who_did_what_to_which_thing():
    row = build(2)[1]
    assert read_record(row) == Record(
        seq=2,
        at=1_760_947_200_001,
        principal="agent:Jerry",
        method="messages.send",
        outcome="ok",
        subject="t1",
        rule="message",
        details={"bytes": 1, "to": "Spöck"},
    )


def test_a_chain_goes_on_from_its_newest_record():
    rows = build(3)
    more = build(3, chain=Chain(rows[-1]))
    assert [row.seq for row in more] == [4, 5, 6]
    assert faults(rows + more) == []


def test_a_rewound_chain_forgets_what_never_was():
    chain = Chain(None)
    kept = build(2, chain=chain)
    build(3, chain=chain)
    chain.rewind(kept[-1].seq, kept[-1].hash)
    assert faults(kept + build(3, chain=chain)) == []


def test_an_untouched_chain_has_no_faults():
    rows = build()
    verifier = Verifier([], [anchor(row) for row in rows])
    verifier.feed(rows)
    verifier.finish()
    assert verifier.faults == []
    assert (verifier.first, verifier.last, verifier.count, verifier.head) == (1, RECORDS, RECORDS, rows[-1].hash)


def test_an_empty_ledger_has_no_faults():
    assert faults([]) == []


# -- tampering, one by one --


@pytest.mark.parametrize("field", ["hash", "body"])
def test_any_flipped_bit_is_found(field):
    rows = build(4)
    for place, row in enumerate(rows):
        good = getattr(row, field)
        for bit in range(8 * len(good)):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            changed = msgspec.structs.replace(row, **{field: bytes(bad)})
            assert faults([*rows[:place], changed, *rows[place + 1 :]]), (place, field, bit)


@pytest.mark.parametrize("place", range(RECORDS - 1))
def test_any_record_that_is_missing_is_found(place):
    rows = build()
    assert faults(rows[:place] + rows[place + 1 :])


@pytest.mark.parametrize("place", range(RECORDS - 1))
def test_a_missing_record_is_found_when_the_rest_was_renumbered(place):
    rows = build()
    left = rows[:place] + rows[place + 1 :]
    assert faults([LedgerRow(number, row.hash, row.body) for number, row in enumerate(left, 1)])


def test_a_missing_stretch_is_named():
    rows = build()
    assert faults(rows[:3] + rows[6:])[0] == "records 4 to 6 are gone"


@pytest.mark.parametrize("one", range(RECORDS))
def test_any_two_records_that_changed_places_are_found(one):
    rows = build()
    for other in range(one + 1, RECORDS):
        moved = list(rows)
        moved[one], moved[other] = moved[other], moved[one]
        assert faults(moved)
        assert faults([LedgerRow(number, row.hash, row.body) for number, row in enumerate(moved, 1)])


@pytest.mark.parametrize("place", range(RECORDS))
def test_a_record_put_between_is_found(place):
    rows = build()
    before = rows[place - 1].hash if place else GENESIS
    body = msgspec.json.encode(Record(seq=place + 1, at=0, principal="local", method="x", outcome="ok"))
    forged = [*rows[:place], LedgerRow(place + 1, link(before, body), body), *rows[place:]]
    assert faults(forged)
    assert faults([LedgerRow(number, row.hash, row.body) for number, row in enumerate(forged, 1)])


def test_a_record_rewritten_with_a_fitting_hash_breaks_the_next_one():
    rows = build()
    body = rows[4].body.replace(b"Jerry", b"Spock")
    rows[4] = LedgerRow(5, link(rows[3].hash, body), body)
    assert faults(rows) == ["record 6 does not follow from the one before it: changed, moved or replaced"]


def test_a_record_that_cannot_be_read_is_found_even_when_its_hash_fits():
    rows = build(3)
    body = b"not json"
    rows[2] = LedgerRow(3, link(rows[1].hash, body), body)
    assert faults(rows) == ["record 3 cannot be read"]


def test_a_record_that_calls_itself_otherwise_is_found_even_when_its_hash_fits():
    rows = build(3)
    rows[2] = LedgerRow(3, link(rows[1].hash, rows[0].body), rows[0].body)
    assert faults(rows) == ["record 3 calls itself 1: moved"]


# -- anchors --


@pytest.mark.parametrize("left", range(RECORDS))
def test_an_end_that_was_cut_off_behind_the_last_anchor_is_found(left):
    rows = build()
    anchors = [anchor(rows[3]), anchor(rows[-1])]
    (fault,) = faults(rows[:left], anchors=anchors)[-1:]
    assert fault == f"the ledger ends at record {left}, but record {RECORDS} was anchored: the end was cut off"


def test_a_chain_rewritten_from_the_start_does_not_fit_its_anchors():
    rows = build()
    chain = Chain(None)
    chain.append(at=0, principal="x", method="x", outcome="ok", subject=None, rule=None, details=None)
    forged = [LedgerRow(1, chain.head, link(b"", b"")), *build(RECORDS - 1, chain=chain)]
    assert any("anchored (start)" in fault for fault in faults(forged, anchors=[anchor(rows[5], "start")]))


def test_two_anchors_of_one_record_must_agree():
    rows = build()
    other = msgspec.structs.replace(anchor(rows[2]), head="00" * 32)
    assert faults(rows, anchors=[anchor(rows[2]), other]) == ["record 3 is not the one that was anchored (stop)"]


def test_the_end_is_anchored_each_minute_in_which_it_grew():
    with House() as house:
        house.register("Jerry")
        house.advance(61)
        first = [each for each in house.anchors.anchors if each.why == "time"]
        assert [each.seq for each in first] == [house.ledger()[-1]["seq"]]
        house.advance(600)
        assert [each for each in house.anchors.anchors if each.why == "time"] == first, "nothing happened"


def test_an_anchor_of_the_empty_ledger_asks_for_nothing():
    assert faults(build(), anchors=[Anchor(seq=0, head=GENESIS.hex(), at=0, why="start")]) == []


# -- segments and retention --


def test_records_dropped_by_the_segment_leave_a_chain_that_verifies():
    rows = build(15)
    segments = [segment(rows[:5]), segment(rows[5:10]), segment(rows[10:])]
    for dropped in (0, 5, 10):
        verifier = Verifier(segments, [anchor(rows[3]), anchor(rows[-1])])
        verifier.feed(rows[dropped:])
        verifier.finish()
        assert (verifier.faults, verifier.first) == ([], dropped + 1)


def test_records_dropped_without_a_segment_are_a_fault():
    rows = build()
    assert faults(rows[5:]) == ["records before 6 are gone and no closed segment explains it"]
    assert faults(rows[4:], segments=[segment(rows[:5])])


def test_a_change_right_behind_a_dropped_segment_is_found():
    rows = build(10)
    changed = msgspec.structs.replace(rows[5], body=rows[5].body.replace(b"Jerry", b"Spock"))
    assert faults([changed, *rows[6:]], segments=[segment(rows[:5])])


def test_a_ledger_that_is_gone_altogether_behind_its_segments_is_a_fault():
    rows = build(10)
    assert faults([], segments=[segment(rows[:5]), segment(rows[5:])]) == ["records after 10 are gone"]


def test_faults_of_a_destroyed_ledger_are_bounded():
    rows = [LedgerRow(number, bytes(32), b"x") for number in range(1, 1_000)]
    assert len(faults(rows)) == Verifier.MAX_FAULTS


# -- any tampering --


@st.composite
def tampered(draw):
    count = draw(st.integers(2, 25))
    rows = build(count)
    bad = list(rows)
    place = draw(st.integers(0, count - 1))
    other = draw(st.integers(0, count - 1).filter(lambda each: each != place))
    how = draw(st.sampled_from(["flip", "delete", "swap", "repeat", "insert", "cut", "replace", "hash"]))
    match how:
        case "flip":
            field = draw(st.sampled_from(["hash", "body"]))
            data = bytearray(getattr(rows[place], field))
            data[draw(st.integers(0, len(data) - 1))] ^= draw(st.integers(1, 255))
            bad[place] = msgspec.structs.replace(rows[place], **{field: bytes(data)})
        case "delete":
            del bad[place]
        case "swap":
            bad[place], bad[other] = bad[other], bad[place]
        case "repeat":
            bad.insert(other, rows[place])
        case "insert":
            bad.insert(place, LedgerRow(rows[place].seq, draw(st.binary(min_size=32, max_size=32)), b"{}"))
        case "cut":
            del bad[place:]
        case "replace":
            body = rows[place].body.replace(b"Jerry", b"Spock")
            previous = rows[place - 1].hash if place else GENESIS
            bad[place] = LedgerRow(rows[place].seq, link(previous, body), body)
        case "hash":
            bad[place] = msgspec.structs.replace(rows[place], hash=rows[other].hash)
    if draw(st.booleans()):
        # Whoever moves rows in a table may also number them anew.
        bad = [LedgerRow(number, row.hash, row.body) for number, row in enumerate(bad, 1)]
    return rows, bad


@settings(max_examples=400)
@given(tampered(), st.integers(1, 30))
def test_every_tampering_with_an_anchored_ledger_is_found_however_it_is_read(pair, page):
    rows, bad = pair
    anchors = [anchor(rows[-1])]
    assert faults(rows, anchors=anchors, page=page) == []
    if bad != rows:
        assert faults(bad, anchors=anchors, page=page)
