"""Door and token -> principal, the whole table.

| door | nothing presented | the local token | an agentToken | anything else |
|---|---|---|---|---|
| link, unix | local (the peer's uid is ours) | local | that agent | 401 |
| tcp | 401; local with `--auth off` | local | that agent | 401 |
| space | the space's agent | 403 | 403 | 403 |

A credential that is presented is judged: a wrong one is never a downgrade to what would have been
granted without it, or a stale token would silently turn an agent into `local`. Behind `space.sock` is code that
nobody vouches for: what it presents is not even compared, so that no answer says whether it was a token.
"""

from hmac import compare_digest
from typing import Literal

from bascule.foundation.errors import Forbidden, Unauthenticated
from bascule.kernel.call import LOCAL, Principal, agent_principal
from bascule.kernel.identity.tokens import MAX_TOKEN_CHARS, TokenBook, hash_token

Door = Literal["link", "unix", "tcp"]

_WHERE = (
    "local.token in the state directory (`bascule status` shows where) is the token for this machine's user, "
    "an agent's own is in tokens there: +ann.token is Ann's"
)


class WrongToken(Unauthenticated):
    """A token was presented and is not valid; the doors' throttle counts these."""


def identify(
    door: Door,
    authorization: str | None,
    tokens: TokenBook,
    local_token_hash: str,
    auth_on: bool,
    *,
    token: str | None = None,
) -> Principal:
    """Who came in. HTTP doors pass the `Authorization` header, the link passes `hello`'s bare `token`."""
    if authorization is not None:
        token = bearer_of(authorization)
    if token is None:
        if door == "tcp" and auth_on:
            raise Unauthenticated(
                "a token is needed on this address",
                hint=f"send `Authorization: Bearer <token>`: {_WHERE}; or use the unix socket http.sock, "
                "which knows you by your user id",
            )
        return LOCAL
    # Nothing is never a token, whatever was stored for an agent that has none.
    if 0 < len(token) <= MAX_TOKEN_CHARS:
        token_hash = hash_token(token)
        if compare_digest(token_hash, local_token_hash):
            return LOCAL
        handle = tokens.find_hash(token_hash)
        if handle is not None:
            return agent_principal(handle)
    raise WrongToken(
        "wrong token",
        hint=f"it may have been revoked, replaced or cut off: {_WHERE}",
    )


def identify_in_space(handle: str, *, presented: bool) -> Principal:
    """Every connection to a space's own socket is that space's agent."""
    if presented:
        raise Forbidden(
            f"this socket takes no token: every connection here is agent {handle}",
            hint="leave the Authorization header out",
        )
    return agent_principal(handle)


def bearer_of(authorization: str) -> str:
    # RFC 9110, 11.1: the scheme is compared without case and followed by one or more spaces.
    scheme, _, token = authorization.strip(" \t").partition(" ")
    token = token.strip(" \t")
    if scheme.lower() != "bearer" or not token:
        raise Unauthenticated(
            "the Authorization header is not `Bearer <token>`",
            hint=f"send `Authorization: Bearer <token>`: {_WHERE}",
        )
    return token
