"""In front of every route, before the body is read: is this caller at the right address, and who is it?

A web page reaches any port on loopback: by a rebound name, by `0.0.0.0`, by a form, an image, a script.
It cannot choose its Host and Origin freely, so those are checked first, on every route and every verb;
the token behind them stops other users of the machine.
"""

from collections.abc import Callable

from bascule import __version__
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.foundation.clock import Clock
from bascule.foundation.errors import (
    BasculeError,
    Forbidden,
    InvalidRequest,
    Misdirected,
    Overloaded,
    Unauthenticated,
    VersionMismatch,
)
from bascule.kernel.call import Principal, a2a_principal
from bascule.kernel.identity.principals import Door, WrongToken, bearer_of, identify, identify_in_space
from bascule.kernel.identity.tokens import TokenBook, WrongTokenThrottle
from bascule.kernel.link_protocol import mismatch_sentence
from bascule.surfaces.http.exchange import Request

# What a browser says about requests of no page at all: an address typed by the user.
_OWN_SITE = b"none"
_PROTOCOL = b"%d" % PROTOCOL_VERSION
# The headers that admission looks at.
_JUDGED = frozenset({b"host", b"authorization", b"origin", b"sec-fetch-site", b"bascule-protocol"})
_CREDENTIALS = frozenset({b"authorization", b"proxy-authorization"})


class Admission:
    """Decides who a request comes from, or refuses it. One per door."""

    def __init__(
        self,
        door: Door,
        *,
        hosts: frozenset[bytes],
        tokens: TokenBook,
        local_token_hash: str,
        auth_on: bool,
        clock: Clock,
        on_wrong_token: Callable[[Door], None],
    ) -> None:
        self._door = door
        self._hosts = hosts
        self._tokens = tokens
        self._local_token_hash = local_token_hash
        self._auth_on = auth_on
        self._clock = clock
        self._on_wrong_token = on_wrong_token
        self._throttle = WrongTokenThrottle()

    def admit(self, request: Request) -> Principal:
        # On the unix socket neither Host nor Origin mean anything: no browser gets there.
        authorization = _authorization(request, self._hosts if self._door == "tcp" else None)
        try:
            return identify(self._door, authorization, self._tokens, self._local_token_hash, self._auth_on)
        except WrongToken as error:
            raise self._throttled(error) from None

    def _throttled(self, error: WrongToken) -> BasculeError:
        pause = self._throttle.failed(self._clock.monotonic())
        if pause is None:
            # Only refusals with a reason are logged: a flood must not fill the disk.
            self._on_wrong_token(self._door)
            return error
        return Overloaded("too many wrong tokens", hint=error.hint, retry_after=pause)


class OutsideAdmission:
    """In front of the door for callers who are not on this machine: a token of theirs, or what is open to all."""

    def __init__(
        self,
        *,
        hosts: frozenset[bytes],
        client_of: Callable[[str], Principal | None],
        is_open: Callable[[str, bytes], bool],
        clock: Clock,
        on_wrong_token: Callable[[], None],
    ) -> None:
        self._hosts = hosts
        self._client_of = client_of
        self._is_open = is_open
        self._clock = clock
        self._on_wrong_token = on_wrong_token
        self._throttle = WrongTokenThrottle()

    def admit(self, request: Request) -> Principal:
        authorization = _authorization(request, self._hosts)
        if authorization is None and self._is_open(request.verb, request.path):
            return a2a_principal("")
        try:
            client = self._client_of(bearer_of(authorization or ""))
        except Unauthenticated:
            raise Unauthenticated(
                "a token is needed", hint="send `Authorization: Bearer <token>`: the owner of this agent makes one"
            ) from None
        if client is not None:
            return client
        pause = self._throttle.failed(self._clock.monotonic())
        if pause is not None:
            raise Overloaded("too many wrong tokens", retry_after=pause)
        self._on_wrong_token()
        raise WrongToken("wrong token", hint="it may have been revoked; ask the owner of this agent for another")


class SpaceAdmission:
    """In front of one space's own socket: there is one principal, whatever is sent."""

    def __init__(self, handle: str, may_connect: Callable[[str], bool]) -> None:
        self._handle = handle
        self._may_connect = may_connect

    def admit(self, request: Request) -> Principal:
        presented = False
        for name, value in request.headers:
            if name in _CREDENTIALS:
                presented = True
            elif name == b"bascule-protocol" and value != _PROTOCOL:
                raise _other_protocol(value)
        principal = identify_in_space(self._handle, presented=presented)
        if not self._may_connect(self._handle):
            raise Forbidden(
                f"agent {self._handle} was revoked by a person",
                hint="commands in this space can send no messages until it is closed and opened again",
            )
        return principal


def _authorization(request: Request, allowed: frozenset[bytes] | None) -> str | None:
    """The one Authorization header. `allowed`: what Host may say at a door that a browser can reach; None where none
    can."""
    hosts: list[bytes] = []
    authorization: str | None = None
    for name, value in request.headers:
        if name not in _JUDGED:
            continue
        if name == b"host":
            hosts.append(value)
        elif name == b"authorization":
            if authorization is not None:
                raise InvalidRequest("two Authorization headers", hint="send one")
            authorization = value.decode("latin-1")
        elif name == b"bascule-protocol":
            if value != _PROTOCOL:
                raise _other_protocol(value)
        elif allowed is not None and (name == b"origin" or value != _OWN_SITE):
            raise Forbidden(
                "requests from web pages are refused",
                hint="Bascule serves programs on this machine; use curl, a helper or the unix socket",
            )
    if allowed is not None and (len(hosts) != 1 or hosts[0] not in allowed):
        raise Misdirected(
            "this Host is not served here",
            hint="address the daemon as 127.0.0.1 with its port, as `bascule status` shows it",
        )
    return authorization


def _other_protocol(value: bytes) -> VersionMismatch:
    shown = f"with protocol {value[:20].decode('latin-1')!r}"
    return VersionMismatch(mismatch_sentence(shown, __version__))


def loopback_hosts(port: int) -> frozenset[bytes]:
    return frozenset(f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]"))
