import os
import sys

import pytest

from bascule.kernel.identity import passphrase

# The daemon process and the wires to it are shared with the tests of the daemon itself.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "daemon"))


@pytest.fixture(autouse=True)
def _cheap_passphrases(monkeypatch):
    """A hash of our own in this process is made in a blink; daemons have the real one."""
    monkeypatch.setattr(passphrase, "SCRYPT_LOG_N", 4)


@pytest.fixture
def grove():
    """A house with trees and a person."""
    from felling import Grove

    grove = Grove()
    with grove.house:
        grove.set_person()
        yield grove


@pytest.fixture
def key(grove):
    """A key that is enrolled."""
    from console_page import Page

    from soft_key import SoftKey

    key = SoftKey()
    Page(grove).pair().enrol(key)
    return key


@pytest.fixture
def page(grove, key):
    """A tab of the console that this key has signed in."""
    from console_page import Page

    return Page(grove).sign_in(key)
