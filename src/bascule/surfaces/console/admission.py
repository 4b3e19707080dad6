"""In front of the console's door, before the body is read: is this our own page, and what has it shown?

A browser says where a request comes from, and a page cannot change that: Host (which name was typed), Origin and
Sec-Fetch-* (which page asks, and for what). All of it must fit, and what says nothing is refused; the token behind it
stops other programs. Whose program the browser is was asked of the kernel when it connected (`door`).

Refusals before the token is known are all alike: they tell a page nothing about what it got right.
"""

from collections.abc import Callable, Iterable

from bascule.foundation.clock import Clock
from bascule.foundation.errors import BasculeError, Forbidden, Misdirected, Overloaded, Unauthenticated
from bascule.kernel.call import BROWSER, ConsoleSession, Principal
from bascule.kernel.identity.sessions import Sessions
from bascule.kernel.identity.tokens import WrongTokenThrottle
from bascule.surfaces.http.exchange import Request

# What one request may say once, and what is judged by it.
_JUDGED = frozenset(
    {b"host", b"origin", b"authorization", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"bascule-proof"}
)
# How a page of ours loads its parts, and how it calls: never as a frame, a worker or a plug-in.
_PARTS = frozenset({b"script", b"style", b"image", b"font", b"empty"})
_CALLS = frozenset({b"cors", b"same-origin"})
# "none": no page had a hand in it.
_BY_THE_PERSON = frozenset({b"none", b"same-origin"})
_SCHEME = "bearer "

Judged = dict[bytes, bytes]


class ConsoleAdmission:
    """Who a request of the console's door comes from; each check is a method, so that a test can leave one out."""

    def __init__(
        self, sessions: Sessions, *, origins: Iterable[str], clock: Clock, on_wrong_token: Callable[[], None]
    ) -> None:
        self._sessions = sessions
        # By the Host that a browser sends for it.
        self._origins = {origin.partition("://")[2].encode(): origin.encode() for origin in origins}
        self._clock = clock
        self._on_wrong_token = on_wrong_token
        self._throttle = WrongTokenThrottle()

    def admit_shell(self, request: Request) -> bool:
        """The page itself: a person goes there from anywhere, and nothing in it is secret.

        True where the person went there themselves: from the address bar, a bookmark, another program, or our own page.
        """
        judged = self._judged(request)
        self._check_host(judged)
        self._check_origin(judged)
        self._check_navigation(judged)
        return judged.get(b"sec-fetch-site") in _BY_THE_PERSON

    def admit_part(self, request: Request) -> None:
        """A script or a style: for our own page alone."""
        judged = self._judged(request)
        self._check_host(judged)
        self._check_origin(judged)
        self._check_site(judged)
        self._check_part(judged)

    def admit(self, request: Request) -> Principal:
        """A call of our own page, with the session that it has shown."""
        judged = self._judged(request)
        self._check_host(judged)
        self._check_origin(judged)
        self._check_site(judged)
        self._check_call(judged)
        principal, request.session = self._identify(judged)
        return principal

    # -- where it comes from --

    def _judged(self, request: Request) -> Judged:
        judged: Judged = {}
        for name, value in request.headers:
            if name not in _JUDGED:
                continue
            if name in judged:
                # Which of two counts is nobody's to guess.
                raise _misdirected() if name == b"host" else _refused()
            judged[name] = value
        return judged

    def _check_host(self, judged: Judged) -> None:
        """A name that was rebound to this address, or the address itself, is another origin than ours."""
        if judged.get(b"host") not in self._origins:
            raise _misdirected()

    def _check_origin(self, judged: Judged) -> None:
        origin = judged.get(b"origin")
        if origin is not None and origin != self._origins.get(judged.get(b"host", b"")):
            raise _refused()

    def _check_navigation(self, judged: Judged) -> None:
        if (judged.get(b"sec-fetch-mode"), judged.get(b"sec-fetch-dest")) != (b"navigate", b"document"):
            raise _refused()

    def _check_site(self, judged: Judged) -> None:
        """Other ports of localhost are `same-site`: not ours."""
        if judged.get(b"sec-fetch-site") != b"same-origin":
            raise _refused()

    def _check_part(self, judged: Judged) -> None:
        if judged.get(b"sec-fetch-dest") not in _PARTS:
            raise _refused()

    def _check_call(self, judged: Judged) -> None:
        if judged.get(b"sec-fetch-mode") not in _CALLS or judged.get(b"sec-fetch-dest") != b"empty":
            raise _refused()

    # -- what it has shown --

    def _identify(self, judged: Judged) -> tuple[Principal, ConsoleSession | None]:
        authorization = judged.get(b"authorization")
        if authorization is None:
            return BROWSER, None
        text = authorization.decode("latin-1")
        token = text[len(_SCHEME) :].strip(" ") if text[: len(_SCHEME)].lower() == _SCHEME else ""
        session = self._sessions.find(token)
        if session is None:
            raise self._throttled()
        proof = judged.get(b"bascule-proof")
        shown = ConsoleSession(session.session_id, session.grade, proof.decode("latin-1") if proof else None)
        return session.principal, shown

    def _throttled(self) -> BasculeError:
        pause = self._throttle.failed(self._clock.monotonic())
        hint = "pair this page anew with `bascule console`, or sign in"
        if pause is None:
            # Only refusals with a reason are logged: a flood must not fill the disk.
            self._on_wrong_token()
            return Unauthenticated("this session of the console is over, or never was", hint=hint)
        return Overloaded("too many wrong tokens", hint=hint, retry_after=pause)


def _misdirected() -> Misdirected:
    return Misdirected("this Host is not served here", hint="open the console with `bascule console`")


def _refused() -> Forbidden:
    return Forbidden("only pages of the console are served here", hint="open it with `bascule console`")
