"""Agent cards of others: where they may be, what of them is used, and what makes one another card. No I/O.

Everything here comes from a stranger's server.
"""

import ipaddress
from typing import Annotated, Any, NamedTuple
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from bascule.a2a.protocol import MAX_DESCRIPTION_CHARS, MAX_SKILL_CHARS, MAX_SKILLS, MAX_URL_CHARS
from bascule.foundation.errors import InvalidRequest, PeerFailed
from bascule.foundation.text import one_line
from bascule.wire.canonical import NotCanonical, canonical, digest
from gabp import codec

# On a card: a message id that comes again from one client is the same message, so that it may be sent again when it is
# not known whether it arrived.
ONCE = "urn:bascule:a2a:message-id-once"
# Where a card is, below the address of its agent.
WELL_KNOWN = "/.well-known/agent-card.json"
# Larger cards than that are not read: an agent with hundreds of skills fits.
MAX_CARD_BYTES = 256 * 1024
MAX_TITLE_CHARS = 100
_MAX_INTERFACES = 32
# In the order we like them.
_BINDINGS = ("JSONRPC", "HTTP+JSON")


class BadUrl(InvalidRequest):
    """Not an address that anything is sent to."""


class BadCard(PeerFailed):
    """Not an agent card, or one that cannot be used."""


class Chosen(NamedTuple):
    """What of a card is kept and used."""

    # Canonical, without signatures: these differ each time that some servers sign.
    text: str
    digest: str
    title: str
    description: str
    skills: list[str]
    endpoint: str
    protocol: str
    binding: str
    once: bool


class _Interface(msgspec.Struct, rename="camel"):
    url: Annotated[str, Meta(max_length=MAX_URL_CHARS)] = ""
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: str = ""
    # Of 0.3.
    transport: str = ""


class _Extension(msgspec.Struct):
    uri: str = ""


class _Capabilities(msgspec.Struct, rename="camel"):
    extensions: list[_Extension] = []


class _Skill(msgspec.Struct):
    name: str = ""


class _Card(msgspec.Struct, rename="camel"):
    """Both versions; fields that we do not use may be anything."""

    name: Annotated[str, Meta(min_length=1)]
    description: str = ""
    supported_interfaces: Annotated[list[_Interface], Meta(max_length=_MAX_INTERFACES)] | None = None
    skills: list[_Skill] = []
    capabilities: _Capabilities = msgspec.field(default_factory=_Capabilities)
    # Of 0.3.
    url: Annotated[str, Meta(max_length=MAX_URL_CHARS)] = ""
    preferred_transport: str = "JSONRPC"
    protocol_version: str = "0.3.0"
    additional_interfaces: Annotated[list[_Interface], Meta(max_length=_MAX_INTERFACES)] = []

    def interfaces(self) -> list[_Interface]:
        if self.supported_interfaces is not None:
            return self.supported_interfaces
        first = _Interface(url=self.url, protocol_binding=self.preferred_transport)
        others = [_Interface(url=each.url, protocol_binding=each.transport) for each in self.additional_interfaces]
        version = self.protocol_version
        return [_Interface(url=each.url, protocol_binding=each.protocol_binding, protocol_version=version)
                for each in (first, *others)]  # fmt: skip


_ANY: codec.Decoder[dict[str, Any]] = codec.Decoder(dict[str, Any])


def card_url(text: str) -> str:
    """Where the card is: the address itself if it names a JSON file, else the well-known path below it."""
    url = check_url(text)
    path = url.path if url.path.endswith(".json") else url.path.rstrip("/") + WELL_KNOWN
    return urlunsplit((url.scheme, url.netloc, path, "", ""))


def check_url(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise BadUrl(f"{one_line(text, 100)} is not a URL", hint="write https://agents.example.org") from None
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise BadUrl(f"{one_line(text, 100)} is not a URL", hint="encode special characters as %XX")
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise BadUrl(f"{one_line(text, 100)} is not a web address", hint="write https://agents.example.org")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise BadUrl("the address has a user, a query or a fragment", hint="a token goes into a file: --token-file")
    if url.scheme == "http" and not _is_loopback(url.hostname):
        raise BadUrl(
            f"{url.hostname} is not on this machine, and http is not private", hint="use https; http is for loopback"
        )
    return url


def read_card(data: bytes, origin: str) -> Chosen:
    """`origin` is the address of the card: nothing is sent anywhere else, whatever the card says."""
    try:
        raw = _ANY.decode(data)
        card = codec.convert(raw, _Card)
    except codec.BadJson as error:
        raise BadCard(f"not an agent card: {error.message}") from None
    raw.pop("signatures", None)
    try:
        text, short = canonical(raw).decode(), digest(raw)
    except NotCanonical as error:
        raise BadCard(f"not an agent card: {error}") from None
    interface, version = _choose(card, urlsplit(origin))
    return Chosen(
        text=text,
        digest=short,
        title=one_line(card.name, MAX_TITLE_CHARS),
        description=one_line(card.description, MAX_DESCRIPTION_CHARS),
        skills=[one_line(skill.name, MAX_SKILL_CHARS) for skill in card.skills[:MAX_SKILLS]],
        endpoint=interface.url,
        protocol=version,
        binding=interface.protocol_binding,
        once=any(each.uri == ONCE for each in card.capabilities.extensions),
    )


def _choose(card: _Card, origin: SplitResult) -> tuple[_Interface, str]:
    """The newest version first, then the binding."""
    elsewhere = False
    for wanted in ("1.0", "0.3"):
        for binding in _BINDINGS:
            for each in card.interfaces():
                if each.protocol_binding != binding or each.tenant or not _speaks(each.protocol_version, wanted):
                    continue
                try:
                    url = check_url(each.url)
                except BadUrl:
                    elsewhere = True
                    continue
                if _place(url) == _place(origin):
                    return each, wanted
                elsewhere = True
    if elsewhere:
        raise BadCard(
            "the card sends messages to another address than its own",
            hint=f"an agent is asked where its card is ({origin.scheme}://{origin.netloc}); ask its owner",
        )
    raise BadCard(
        "the card offers no interface that is spoken here",
        hint="JSONRPC or HTTP+JSON in protocol 1.0 or 0.3, without a tenant",
    )


def _speaks(version: str, wanted: str) -> bool:
    # Patch versions do not matter; no version is 0.3, as the header's absence is.
    return (version or "0.3") == wanted or version.startswith(wanted + ".")


def _place(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
