import os
import socket
import subprocess
import sys

import pytest

from bascule.transports.peercred import Peer, peer_of


def test_both_ends_of_a_pair_are_this_process():
    one, other = socket.socketpair()
    with one, other:
        assert peer_of(one) == peer_of(other) == Peer(os.getuid(), os.getpid())


@pytest.mark.skipif(os.getuid() != 0 and os.environ.get("CI") != "true", reason="only root can become another user")
def test_the_uid_is_the_one_the_peer_connected_with():
    path = f"\0bascule-test-peercred-{os.getpid()}"
    program = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534); "
        "sock = socket.socket(socket.AF_UNIX); sock.connect(chr(0) + sys.argv[1]); sock.recv(1)"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        with subprocess.Popen([sys.executable, "-c", program, path[1:]]) as child:
            connection, _ = listener.accept()
            with connection:
                assert peer_of(connection) == Peer(65534, child.pid)
    assert child.returncode == 0
