"""How we log in to a server of NATS: with the bus key or the file of an operator, over TLS that trusts one certificate
or the system's authorities."""

import asyncio
import base64
import hashlib
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule import __version__
from bascule.mesh.machine import nkeys
from bascule.mesh.machine.connection import NatsConnection, ServerError
from bascule.mesh.ports import Fault

# NATS's own: what firewalls and people expect.
DEFAULT_PORT = 4222


class BusFault(Exception):
    """NATS did not do what it was asked to."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail


class Login(NamedTuple):
    """Where NATS is and who we are there."""

    # A node's name, or the text of an invited key.
    user: str
    bus: Ed25519PrivateKey
    servers: tuple[str, ...]
    # PEM of the one certificate that is believed; None: the system's authorities.
    certificate: str | None = None
    # A file of another operator's; None: the bus key.
    creds_file: str | None = None


async def connect(
    login: Login,
    server: str,
    *,
    on_error: Callable[[str], object],
    on_lost: Callable[[str], object],
    report: Callable[[str, BaseException], object],
) -> NatsConnection:
    """Raises `BusFault`."""
    jwt, key = credentials(login)

    def prove(nonce: str) -> dict[str, Any]:
        signature = base64.urlsafe_b64encode(key.sign(nonce.encode())).rstrip(b"=").decode()
        who = {"nkey": nkeys.user_text(key.public_key().public_bytes_raw())} if jwt is None else {"jwt": jwt.decode()}
        return {"name": login.user, "version": __version__, "sig": signature, **who}

    connection = NatsConnection(on_error, on_lost, report)
    try:
        address = urlsplit(server if "://" in server else f"nats://{server}")
        await connection.open(
            address.hostname or "",
            address.port or DEFAULT_PORT,
            tls=_tls(login, server),
            # Our own hub shows its certificate before anything else, so that a joiner can compare it.
            handshake_first=login.certificate is not None,
            login=prove,
        )
    except (OSError, ServerError, ValueError) as error:
        raise _explained(login, server, error) from None
    return connection


def credentials(login: Login) -> tuple[bytes | None, Ed25519PrivateKey]:
    """What an operator signed, if one did, and the key that logs in."""
    if login.creds_file is None:
        return None, login.bus
    try:
        with open(login.creds_file, encoding="ascii") as file:
            return nkeys.read_creds(file.read())
    except (OSError, ValueError, nkeys.BadCreds) as error:
        raise BusFault(Fault.REFUSED, f"{login.creds_file} cannot be used: {error}") from None


def _tls(login: Login, server: str) -> ssl.SSLContext | None:
    if login.certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The certificate itself is pinned: which name led to it does not matter.
        context.check_hostname = False
        context.load_verify_locations(cadata=login.certificate)
        return context
    return ssl.create_default_context() if server.startswith("tls://") else None


def _explained(login: Login, server: str, error: BaseException) -> BusFault:
    text = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        why = "it is not the one that this node trusts" if login.certificate else "the system does not trust it"
        return BusFault(
            Fault.REFUSED, f"{server} shows another certificate: {why} ({error.verify_message}); join again"
        )
    if "authorization" in text.lower() or "authentication" in text.lower():
        what = login.creds_file or "this node's key"
        return BusFault(
            Fault.REFUSED,
            f"{server} does not know {what}: it was revoked, or never accepted; join again, or ask its operator",
        )
    return BusFault(Fault.UNREACHABLE, f"{server} does not answer: {text}")


async def fetch_certificate(host: str, port: int, seconds: float = 10.0) -> tuple[str, str]:
    """The certificate that a hub shows, as PEM, and its SHA-256 in hex: for who knows which one it must be."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, OverflowError, ValueError) as error:
        # Also a port above 65535, or a name that is none: a join code may say anything.
        raise BusFault(Fault.UNREACHABLE, f"{host}:{port} does not answer: {str(error) or 'timed out'}") from None
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return ssl.DER_cert_to_PEM_cert(shown), hashlib.sha256(shown).hexdigest()
