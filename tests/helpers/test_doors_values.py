"""Ids, numbers and JSON as the helpers read and write them."""

import re
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation import agreement, ids
from bascule.local_client import exits, values

LIKELY = st.text(st.sampled_from("aZ09._-/ \n\x00é"), max_size=140)


@given(LIKELY | st.sampled_from([".", "..", "local", "person", "a" * 64, "a" * 65, "a" * 128, "a" * 129, ""]))
def test_the_patterns_in_schemas_take_what_is_an_id(text):
    named = re.match(ids.AGENT_ID_PATTERN, text) is not None
    assert agreement.is_agent_id(text) == (named and text not in agreement.RESERVED_AGENT_IDS)
    numbered = re.match(ids.TICKET_ID_PATTERN, text) is not None
    assert agreement.is_ticket_id(text) == (numbered and text not in (".", ".."))


@pytest.mark.parametrize("text", [".", "..", "local", "person", "register", "", "a b", "a" * 65])
def test_a_handle_that_the_daemon_would_refuse_is_not_sent(text):
    with pytest.raises(exits.WrongUsage, match="is not a handle"):
        values.agent_id(text)


@pytest.mark.parametrize(
    "new_ticket_id",
    [values.new_ticket_id, lambda: ids.new_ticket_id(time.time_ns() // 1_000_000)],
    ids=["helpers", "daemon"],
)
def test_a_new_ticket_id_is_a_uuid_in_the_order_of_time(new_ticket_id):
    before = time.time_ns() // 1_000_000
    made = [new_ticket_id() for _ in range(100)]
    after = time.time_ns() // 1_000_000
    assert len(set(made)) == 100
    assert all(str(uuid.UUID(text)) == text and uuid.UUID(text).version == 7 for text in made)
    assert all(uuid.UUID(text).variant == uuid.RFC_4122 for text in made)
    stamps = [uuid.UUID(text).int >> 80 for text in made]
    assert stamps == sorted(stamps)
    assert before <= stamps[0] <= stamps[-1] <= after


def test_an_error_of_the_link_has_the_status_that_http_would_give_it():
    assert (exits.status_of("not_found"), exits.status_of("approval_required")) == (404, 202)
    assert exits.status_of("of another daemon") == 500


def test_every_exit_code_is_explained():
    numbers = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert numbers == set(exits.EXIT_CODES)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "", "[" * 100_000])
def test_what_is_not_json_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"."):
        values.decode(text)


def test_bytes_that_are_not_utf8_are_a_value_error():
    with pytest.raises(ValueError, match="utf-8"):
        values.decode(b'"\xff"')


def test_an_infinite_number_is_not_sent():
    with pytest.raises(exits.WrongUsage):
        values.encode({"x": float("inf")})


@pytest.mark.parametrize("text", ["1e999", "[-1e400]", '{"a":1.8e308}'])
def test_a_number_that_no_double_holds_is_not_read_as_an_infinity(text):
    with pytest.raises(ValueError, match="too large"):
        values.decode(text)


def test_what_is_nested_too_deeply_to_be_written_is_a_clear_error():
    value: list[object] = []
    for _ in range(5_000):
        value = [value]
    with pytest.raises(exits.WrongUsage, match="written as JSON"):
        values.encode(value)
