"""Started by a launcher, and hands what the launcher gave it to the test that started the launcher."""

import os
import socket
import sys

from bascule.desktop.kwin import LENDER

with socket.socket(fileno=int(sys.argv[1])) as test:
    socket.send_fds(test, [b"!"], [int(os.environ[LENDER])])
