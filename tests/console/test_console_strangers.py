"""A browser of another user is not served: whose socket it is says the kernel, whatever the headers say."""

import contextlib
import socket

import pytest
from living import Living
from pages import VISIT, Page
from strangers import as_nobody, only_root
from wires import request

pytestmark = only_root

# Believes everybody.
LEAVE_OUT = """
import bascule.daemon.lifecycle as lifecycle
lifecycle.is_our_end = lambda here, there: True
"""


def visited(host: str, port: int, data: bytes) -> str:
    """The first bytes that a browser gets; nothing when it is cut off."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as sock:
        sock.connect((host, port))
        sock.sendall(data)
        return sock.recv(1 << 16).decode("latin-1")[:12]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_another_users_browser_gets_no_byte_with_a_stolen_token_or_without(daemon, host):
    page = Page(daemon)
    visit = request("GET", "/", page.headers("GET", VISIT))
    # Cut off before it has sent, or after: either way nothing came.
    assert as_nobody(lambda: visited(host, page.port, visit)) in ("", "ConnectionResetError", "BrokenPipeError")
    assert visited(host, page.port, visit) == "HTTP/1.1 200"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_another_users_browser_is_served_where_nobody_asks_whose_it_is(state, host):
    with Living(state, console_port=0, bug=LEAVE_OUT) as daemon:
        page = Page(daemon)
        visit = request("GET", "/", page.headers("GET", VISIT))
        assert as_nobody(lambda: visited(host, page.port, visit)) == "HTTP/1.1 200"


# Overlooks every socket twice, as a table does that changes while it is read; or for ever.
OVERLOOK = """
import itertools
import bascule.daemon.lifecycle as lifecycle
looks, look = itertools.count(), lifecycle.is_our_end
lifecycle.is_our_end = lambda here, there: look(here, there) if next(looks) >= TIMES else None
"""


def test_our_own_browser_that_was_overlooked_is_found_at_another_look(state):
    with Living(state, console_port=0, bug=OVERLOOK.replace("TIMES", "2")) as daemon:
        page = Page(daemon)
        assert visited("127.0.0.1", page.port, request("GET", "/", page.headers("GET", VISIT))) == "HTTP/1.1 200"


def test_a_browser_that_nobody_has_seen_is_not_served(state):
    with Living(state, console_port=0, bug=OVERLOOK.replace("TIMES", "10**9")) as daemon:
        page = Page(daemon)
        answer = ""
        # Cut off before its request was read, or after.
        with contextlib.suppress(ConnectionResetError):
            answer = visited("127.0.0.1", page.port, request("GET", "/", page.headers("GET", VISIT)))
        assert answer == ""
