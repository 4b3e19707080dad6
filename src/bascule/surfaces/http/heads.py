"""Heads that the parser takes and we refuse: each could mean something else to another reader. And refused bodies."""

from bascule.foundation.errors import InvalidRequest, TooLarge
from bascule.surfaces.http.exchange import Headers

CODING = b"transfer-encoding"
_VERSIONS = ("1.0", "1.1")
_BAD = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b"
)


def why_refused(target: bytes, version: str, codings: list[bytes]) -> str | None:
    """What is wrong with a head, or None.

    We stand behind no proxy, but somebody may put one there; a head that both read alike hides no second request.
    """
    if version not in _VERSIONS:
        return "Only HTTP/1.0 and HTTP/1.1 are spoken here."
    # RFC 9112, 3.2.2: the authority of an absolute target replaces Host, which is the one that the gate checks.
    if not target.startswith(b"/") or b"#" in target:
        return "The target must be a path."
    # RFC 9112, 6.1: a coding we do not undo must not be read as if it were none; HTTP/1.0 has none at all.
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked" or version == "1.0"):
        return "Transfer-Encoding must be chunked, once, in HTTP/1.1."
    return None


def has_body(headers: Headers) -> bool:
    return any(name == CODING or (name == b"content-length" and value != b"0") for name, value in headers)


def bad_head(reason: str) -> bytes:
    """The whole answer to one."""
    return _BAD % (len(reason), reason.encode("ascii"))


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes", hint="write the content to a file and send its path")


def too_slow(seconds: float) -> InvalidRequest:
    return InvalidRequest(f"the body did not arrive within {seconds:.0f} s")
