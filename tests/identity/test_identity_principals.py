"""The table of doors: every door, every credential, auth on and off."""

import os
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bascule.foundation import paths
from bascule.foundation.errors import Unauthenticated
from bascule.foundation.ids import new_token
from bascule.kernel.call import LOCAL, agent_principal
from bascule.kernel.identity.principals import WrongToken, identify
from bascule.kernel.identity.tokens import MAX_TOKEN_CHARS, TokenBook, WrongTokenThrottle, hash_token

# Fixed, because they stand in the names of tests, which must be the same in every process that runs some.
LOCAL_TOKEN, JERRYS, STALE = "L" * 43, "J" * 43, "S" * 43
LOCAL_HASH = hash_token(LOCAL_TOKEN)
DOORS = ("link", "unix", "tcp")
JERRY = agent_principal("Jerry")


def book():
    tokens = TokenBook()
    tokens.add("Jerry", hash_token(STALE))
    tokens.add("Jerry", hash_token(JERRYS))
    return tokens


def come_in(door, token, *, auth_on=True, tokens=None):
    """As each door presents it: the link bare, HTTP in a header."""
    tokens = book() if tokens is None else tokens
    if door == "link":
        return identify(door, None, tokens, LOCAL_HASH, auth_on, token=token)
    header = None if token is None else f"Bearer {token}"
    return identify(door, header, tokens, LOCAL_HASH, auth_on)


EVERYWHERE = list(product(DOORS, [True, False]))


@pytest.mark.parametrize(
    ("door", "auth_on"), [("link", True), ("link", False), ("unix", True), ("unix", False), ("tcp", False)]
)
def test_a_caller_without_a_token_is_local_where_the_door_vouches_for_the_user(door, auth_on):
    assert come_in(door, None, auth_on=auth_on) == LOCAL


def test_a_tcp_caller_without_a_token_learns_where_the_token_is():
    with pytest.raises(Unauthenticated) as caught:
        come_in("tcp", None)
    assert caught.value.status == 401
    assert not isinstance(caught.value, WrongToken)
    for place in ("local.token", os.path.basename(paths.token_file("/s", "Ann")), "http.sock"):
        assert place in caught.value.hint


@pytest.mark.parametrize(("door", "auth_on"), EVERYWHERE)
def test_the_local_token_is_local_at_every_door(door, auth_on):
    assert come_in(door, LOCAL_TOKEN, auth_on=auth_on) == LOCAL


@pytest.mark.parametrize(("door", "auth_on"), EVERYWHERE)
def test_an_agent_token_is_that_agent_at_every_door(door, auth_on):
    assert come_in(door, JERRYS, auth_on=auth_on) == JERRY


WRONG = {
    "unknown": new_token(),
    "replaced": STALE,
    "cut off": JERRYS[:-1],
    "longer": JERRYS + "A",
    "in other case": JERRYS.swapcase(),
    "the stored hash": hash_token(JERRYS),
    "the local hash": LOCAL_HASH,
    "a handle": "Jerry",
    "a principal": "local",
    "the person": "person",
    "two tokens": f"{JERRYS} {LOCAL_TOKEN}",
    "beyond ASCII": "\u00fc\u4e16",
    "half a surrogate pair": "\ud800",
    "too long": "x" * (MAX_TOKEN_CHARS + 1),
}


@pytest.mark.parametrize("token", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize(("door", "auth_on"), EVERYWHERE)
def test_a_wrong_token_is_refused_and_never_a_downgrade(door, auth_on, token):
    with pytest.raises(WrongToken) as caught:
        come_in(door, token, auth_on=auth_on)
    assert caught.value.status == 401
    assert caught.value.code == "unauthenticated"
    assert os.path.basename(paths.token_file("/s", "Ann")) in caught.value.hint
    assert token not in caught.value.message + caught.value.hint or token in ("local", "person")


def test_an_empty_token_on_the_link_is_a_wrong_one_even_if_its_hash_was_stored():
    tokens = book()
    tokens.add("Tom", hash_token(""))
    assert tokens.find("") is None
    for local_hash in (LOCAL_HASH, hash_token("")):
        with pytest.raises(WrongToken):
            identify("link", None, tokens, local_hash, True, token="")


MALFORMED = [
    "",
    " ",
    "Bearer",
    "Bearer ",
    "Bearer\t",
    "Basic amVycnk6eA==",
    JERRYS,
    f"Token {JERRYS}",
    f"Bearer{JERRYS}",
]


@pytest.mark.parametrize("header", MALFORMED)
@pytest.mark.parametrize(("door", "auth_on"), list(product(["unix", "tcp"], [True, False])))
def test_a_header_that_is_not_a_bearer_is_refused_at_every_door(door, auth_on, header):
    with pytest.raises(Unauthenticated) as caught:
        identify(door, header, book(), LOCAL_HASH, auth_on)
    assert "Bearer <token>" in caught.value.message


@pytest.mark.parametrize("header", [f"bearer {JERRYS}", f"BEARER {JERRYS}", f"Bearer   {JERRYS}", f" Bearer {JERRYS} "])
def test_the_scheme_is_compared_without_case_and_spaces_around_do_not_count(header):
    assert identify("tcp", header, book(), LOCAL_HASH, True) == JERRY


def test_a_revoked_agent_is_nobody():
    tokens = book()
    tokens.remove("Jerry")
    with pytest.raises(WrongToken):
        come_in("unix", JERRYS, tokens=tokens)


@given(st.sampled_from(["unix", "tcp"]), st.text(), st.booleans())
def test_no_header_anyone_can_make_up_lets_them_in(door, header, auth_on):
    with pytest.raises(Unauthenticated):
        identify(door, header, book(), LOCAL_HASH, auth_on)


def test_while_a_door_is_flooded_with_wrong_tokens_a_right_one_is_served():
    tokens, throttle = book(), WrongTokenThrottle()
    refused = throttled = 0
    for number in range(10_000):
        try:
            come_in("tcp", f"guess-{number}", tokens=tokens)
        except WrongToken:
            refused += 1
            throttled += throttle.failed(0.0) is not None
        if number % 1_000 == 0:
            assert come_in("tcp", JERRYS, tokens=tokens) == JERRY
    assert refused == 10_000
    assert throttled >= 9_900
