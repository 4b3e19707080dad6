"""Request heads that the parser takes and we do not: each could mean something else to another reader.

We stand behind no proxy, but somebody may put one there; a head that both read alike hides no second request.
"""

_VERSIONS = ("1.0", "1.1")


def why_refused(target: bytes, version: str, headers: list[tuple[bytes, bytes]]) -> str | None:
    """What is wrong with a head, or None. Header names are in lower case."""
    if version not in _VERSIONS:
        return "Only HTTP/1.0 and HTTP/1.1 are spoken here."
    # RFC 9112, 3.2.2: the authority of an absolute target replaces Host, which is the one that the gate checks.
    if not target.startswith(b"/") or b"#" in target:
        return "The target must be a path."
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    # RFC 9112, 6.1: a coding we do not undo must not be read as if it were none; HTTP/1.0 has none at all.
    if codings and (len(codings) > 1 or codings[0].lower() != b"chunked" or version == "1.0"):
        return "Transfer-Encoding must be chunked, once, in HTTP/1.1."
    return None
