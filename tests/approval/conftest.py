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
