"""How we log in to a server of NATS. nats-py is imported when the first connection is made."""

import asyncio
import base64
import contextlib
import hashlib
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.mesh.machine import nkeys
from bascule.mesh.ports import Fault

if TYPE_CHECKING:
    from nats.aio.client import Client

INSTALL = "pip install 'bascule[mesh]'"
# Over a slow line a TLS handshake takes a second or two.
CONNECT_SECONDS = 5
# What nobody reads before a server is called frozen is found by heartbeats; this is for connections without one.
PING_SECONDS = 10
# Letters that wait to be written: beyond it the other end is stuck, and letters are refused.
MAX_UNSENT_BYTES = 8 * 1024 * 1024
# For the last bytes of a connection that is closed; a frozen server takes none.
CLOSE_SECONDS = 2.0


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
    on_error: Callable[[Exception], Awaitable[None]],
    on_closed: Callable[[], Awaitable[None]],
) -> "Client":
    """One connection that is not repaired: what it had to say to the server belongs to it. Raises `BusFault`."""
    try:
        from nats import errors  # noqa: PLC0415 - an extra: without it the daemon runs, and says what is missing
        from nats.aio.client import Client  # noqa: PLC0415 - same
    except ImportError:
        raise BusFault(Fault.MISSING, f"nats-py is not installed here: {INSTALL}, then restart the daemon") from None
    jwt, key = _credentials(login)
    seen: list[Exception] = []

    async def failed(error: Exception) -> None:
        seen.append(error)
        await on_error(error)

    def sign(nonce: str) -> bytes:
        return base64.b64encode(key.sign(nonce.encode()))

    client = Client()
    if jwt is None:
        # nats-py fills it from a seed, with a package that needs PyNaCl; there is no argument for it.
        client._public_nkey = nkeys.user_text(key.public_key().public_bytes_raw())  # noqa: SLF001 - said above
    try:
        async with asyncio.timeout(3 * CONNECT_SECONDS):
            await client.connect(
                [server],
                name=login.user,
                error_cb=failed,
                closed_cb=on_closed,
                allow_reconnect=False,
                # A second attempt, at once; 0 would be for ever.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=CONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=2,
                tls=_tls(login, server),
                # Our own hub shows its certificate before anything else, so that a joiner can compare it.
                tls_handshake_first=login.certificate is not None,
                signature_cb=sign,
                user_jwt_cb=None if jwt is None else lambda: jwt,
                pending_size=MAX_UNSENT_BYTES,
            )
    except (OSError, errors.Error, EOFError, ValueError) as error:
        await close(client)
        told = [each for each in (*seen, error) if not isinstance(each, errors.NoServersError)]
        raise _explained(login, server, told[-1] if told else error) from None
    except BaseException:
        await close(client)
        raise
    if not client.is_connected:
        await close(client)
        raise BusFault(Fault.UNREACHABLE, f"{server} closed the connection")
    return client


async def close(client: "Client") -> None:
    """Bounded: closing waits for bytes that a frozen server does not take."""
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await client.close()


def _credentials(login: Login) -> tuple[bytes | None, Ed25519PrivateKey]:
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
    except OSError as error:
        raise BusFault(Fault.UNREACHABLE, f"{host}:{port} does not answer: {error or 'in time'}") from None
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return ssl.DER_cert_to_PEM_cert(shown), hashlib.sha256(shown).hexdigest()
