"""TLS to a broker: its certificate must be one that we trust, for the name that the URL has.

Loaded for `https://` only: `ssl` costs more to import than a helper takes to run.
"""

from __future__ import annotations

import os
import ssl

from bascule.local_client.exits import BadAnswer, ConnectionLost, Stranger, WrongUsage

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    import socket

CA_VARIABLE = "BRIDGE_BROKER_CA"


def secured(sock: socket.socket, name: str, where: str) -> ssl.SSLSocket:
    """The socket after the handshake; whatever is wrong with the other end, nothing was sent."""
    context = _context()
    try:
        return context.wrap_socket(sock, server_hostname=name)
    except ssl.SSLCertVerificationError as fault:
        raise Stranger(
            f"the certificate of {where} is not trusted ({fault.verify_message}): nothing was sent",
            f"set {CA_VARIABLE} to the PEM file of its certificate, or of the authority that signed it",
        ) from None
    except ssl.SSLError as fault:
        raise BadAnswer(
            f"{where} does not speak TLS as it should ({fault.reason or fault}): nothing was sent",
            "is it an http:// address?",
        ) from None
    except OSError as fault:
        raise ConnectionLost(f"the TLS handshake with {where} broke: {fault}", "try again in a moment") from None


def _context() -> ssl.SSLContext:
    """The system's authorities, or only those of the file that the user names."""
    path = os.environ.get(CA_VARIABLE)
    try:
        return ssl.create_default_context(cafile=path or None)
    except (OSError, ssl.SSLError) as fault:
        raise WrongUsage(
            f"{CA_VARIABLE} is {path!r}, which cannot be used: {fault}", "name a PEM file with certificates"
        ) from None
