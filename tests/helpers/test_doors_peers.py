"""A token is sent to our own daemon only: another user's program in its place hears nothing."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from living import short_dir
from strangers import NOBODY, bound, bound_at, only_root, squatting

from bascule import places
from bascule.client import SyncClient
from bascule.doors import choice, exits, http, peers
from bascule.doors.link import LinkSocket
from bascule.errors import Forbidden
from bascule.shim.over_http import HttpSocket
from patience import PATIENCE
from ports import free_port

SECRET = "the-secret-of-jerry"
SEND = "import sys; from bascule.helpers.commands import bridge_send; sys.exit(bridge_send())"
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"token": SECRET}}


@pytest.fixture
def loose() -> Iterator[str]:
    """A state directory that somebody made for us: open to all, but the token in it is really ours."""
    with short_dir() as folder:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/s")
        os.chmod(f"{folder}/s", 0o777)
        places.write_private_file(places.local_token_file(f"{folder}/s"), SECRET)
        yield f"{folder}/s"


def over_http(state: str) -> None:
    http.call(choice.find_door(state), "GET", "/status", token=SECRET, seconds=PATIENCE)


def over_link(state: str) -> None:
    link = LinkSocket(state)
    with contextlib.closing(link):
        link.send(HELLO)
        link._sock.setblocking(True)
        link._sock.recv(1)


def by_shim_over_http(state: str) -> None:
    door = choice.find_door(state)
    with contextlib.closing(HttpSocket(door, state)) as sock:
        sock.send(HELLO)
        for _ in range(100):
            if sock.receive():
                return


UNIX = {"http.sock": over_http, "link.sock": over_link}
TCP = {"a helper": over_http, "the shim": by_shim_over_http}


@only_root
@pytest.mark.parametrize("name", UNIX)
def test_a_socket_of_another_user_is_told_nothing(loose, name):
    with squatting(lambda: bound_at(os.path.join(loose, name))) as squatter:
        with pytest.raises(exits.Stranger, match=f"is served by uid {NOBODY}, not by you") as refusal:
            UNIX[name](loose)
        assert squatter.heard() == b""
    assert refusal.value.exit_code == exits.REFUSED


@only_root
@pytest.mark.parametrize("name", UNIX)
def test_without_the_question_whose_it_is_the_socket_would_hear_the_token(loose, name, monkeypatch):
    monkeypatch.setattr(http, "check_peer", lambda *_: None)
    with squatting(lambda: bound_at(os.path.join(loose, name))) as squatter:
        UNIX[name](loose)
        assert SECRET.encode() in squatter.heard()


@only_root
def test_the_python_client_asks_the_same_question(loose):
    with squatting(lambda: bound_at(places.link_socket(loose))) as squatter:
        with pytest.raises(Forbidden, match=f"is served by uid {NOBODY}"):
            SyncClient.connect(state_dir=loose)
        assert squatter.heard() == b""


@only_root
@pytest.mark.parametrize("who", TCP)
@pytest.mark.parametrize(
    ("url", "listens"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "0.0.0.0"), ("127.0.0.1", "::"), ("[::1]", "::1"), ("[::1]", "::")],
)
def test_a_port_of_another_user_is_told_nothing(loose, monkeypatch, who, url, listens):
    port = free_port()
    monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://{url}:{port}")
    with squatting(lambda: bound(listens, port)) as squatter:
        with pytest.raises(exits.Stranger, match=f":{port} is served by uid {NOBODY}, not by you"):
            TCP[who](loose)
        assert squatter.heard() == b""


@only_root
@pytest.mark.parametrize("who", TCP)
@pytest.mark.parametrize("listens", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_port_of_our_own_is_told(loose, monkeypatch, who, listens):
    port = free_port()
    monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{port}")
    with squatting(lambda: bound(listens, port), uid=os.getuid()) as squatter:
        TCP[who](loose)
        assert SECRET.encode() in squatter.heard()


@only_root
def test_the_command_says_whose_program_it_found_and_sends_nothing(loose):
    port = free_port()
    environment = {**os.environ, "BASCULE_STATE_DIR": loose, "BRIDGE_BROKER_URL": f"http://127.0.0.1:{port}"}
    with squatting(lambda: bound("127.0.0.1", port)) as squatter:
        done = subprocess.run(
            [sys.executable, "-c", SEND, "Jerry", "hello"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert squatter.heard() == b""
    assert done.returncode == exits.REFUSED, done
    assert f"http://127.0.0.1:{port} is served by uid {NOBODY}, not by you (uid 0): nothing was sent" in done.stderr
    assert "BRIDGE_BROKER_URL" in done.stderr


@only_root
def test_another_users_listener_on_another_address_is_none_of_our_business():
    port = free_port()
    with (
        squatting(lambda: bound("127.0.0.2", port, share=False)),
        socket.create_server(("127.0.0.1", port)) as ours,
        socket.create_connection(ours.getsockname()) as sock,
    ):
        peers.check_peer(sock, "here")


def test_where_the_kernel_keeps_no_table_of_listeners_the_port_is_taken_on_trust(monkeypatch):
    monkeypatch.setattr(peers, "_TABLES", ("/nonexistent",))
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.create_connection(ours.getsockname()) as sock:
        assert peers._stranger_on(sock.getpeername()) is None
        peers.check_peer(sock, "here")
