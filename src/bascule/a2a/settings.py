"""What its user may set about A2A."""

import ipaddress
import ssl
from collections.abc import Sequence
from importlib.util import find_spec
from urllib.parse import urlsplit

from bascule.kernel.settings import BadConfig, Settings

OFF = "off"
LOOPBACK = "127.0.0.1"
_MAX_PORT = 65_535
INSTALL = "pip install 'bascule[a2a]'"


class A2aSettings(Settings, frozen=True, kw_only=True):
    # Port at which clients beyond A2A reach published agents; "off" for none, 0 for any that is free.
    a2a_port: int | str = OFF
    # The address of that port. Another one than 127.0.0.1 needs `a2a_tls_cert`; behind a proxy of your own it stays.
    a2a_listen: str = LOOPBACK
    # What others call that port, for agent cards: https://agents.example.org behind a proxy, which passes this Host on.
    a2a_url: str | None = None
    # Certificate and key (PEM files) to serve it with TLS; both or neither.
    a2a_tls_cert: str | None = None
    a2a_tls_key: str | None = None

    @property
    def port(self) -> int | None:
        """None: off."""
        if self.a2a_port == OFF:
            return None
        try:
            port = int(self.a2a_port)
        except ValueError:
            port = -1
        if not 0 <= port <= _MAX_PORT:
            raise BadConfig(
                f"a2a_port = {self.a2a_port!r} is not a port",
                hint="a number up to 65535, 0 for any that is free, or off",
            )
        return port

    def check(self, _ours: Sequence[str], /) -> None:
        if self.port is None:
            return
        if find_spec("a2a") is None:
            raise BadConfig("a2a_port is set, and the a2a-sdk is not installed", hint=INSTALL)
        try:
            address = ipaddress.ip_address(self.a2a_listen)
        except ValueError:
            raise BadConfig(
                f"a2a_listen = {self.a2a_listen!r} is not an address", hint="an IP address of this machine"
            ) from None
        if not address.is_loopback and self.a2a_tls_cert is None:
            raise BadConfig(
                f"a2a_listen = {self.a2a_listen} without TLS would send tokens in the clear",
                hint="set a2a_tls_cert and a2a_tls_key; or leave a2a_listen out, let a proxy of yours serve TLS and "
                "pass requests on, and set a2a_url",
            )
        if self.a2a_url is not None:
            self._check_url(self.a2a_url)
        self._check_tls()

    def _check_url(self, text: str) -> None:
        url = urlsplit(text)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment or url.username:
            raise BadConfig(f"a2a_url = {text!r} is not the address of a door", hint="write https://agents.example.org")

    def _check_tls(self) -> None:
        if (self.a2a_tls_cert is None) != (self.a2a_tls_key is None):
            raise BadConfig("a2a_tls_cert and a2a_tls_key go together", hint="set both or neither")
        if self.a2a_tls_cert is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.a2a_tls_cert, self.a2a_tls_key)
        except (OSError, ssl.SSLError) as error:
            raise BadConfig(
                f"{self.a2a_tls_cert} and {self.a2a_tls_key} cannot be used for TLS: {error}",
                hint="a2a_tls_cert is a PEM certificate, a2a_tls_key its private key",
            ) from error
