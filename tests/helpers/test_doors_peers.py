"""A token is sent to our own daemon only: another user's program in its place hears nothing."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from fake_http import FakeHttp, answer
from living import Living, short_dir
from strangers import (
    NOBODY,
    accept_and_bequeath,
    accept_and_vanish,
    bound,
    bound_at,
    only_root,
    relay_to,
    squatting,
    thieving,
)

from bascule.client import SyncClient
from bascule.foundation import paths
from bascule.foundation.errors import Forbidden
from bascule.local_client import choice, exits, http, peers, sock_diag
from bascule.local_client.link import LinkSocket
from bascule.programs.mcp_stdio.remote_mcp import RemoteMcp
from patience import PATIENCE
from ports import free_port

SECRET = "the-secret-of-jerry"
SEND = "import sys; from bascule.programs.helpers.commands import bridge_send; sys.exit(bridge_send())"
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"token": SECRET}}


@pytest.fixture
def loose() -> Iterator[str]:
    """A state directory that somebody made for us: open to all, but the token in it is really ours."""
    with short_dir() as folder:
        os.chmod(folder, 0o755)
        os.mkdir(f"{folder}/s")
        os.chmod(f"{folder}/s", 0o777)
        paths.write_private_file(paths.local_token_file(f"{folder}/s"), SECRET)
        yield f"{folder}/s"


def over_http(state: str) -> None:
    http.call(choice.find_door(state), "GET", "/status", token=SECRET, seconds=PATIENCE)


def over_link(state: str) -> None:
    link = LinkSocket(state)
    with contextlib.closing(link):
        link.send(HELLO)
        link._sock.setblocking(True)
        link._sock.recv(1)


def at_mcp(state: str) -> None:
    RemoteMcp(choice.find_door(state), SECRET, print).open()


@pytest.fixture(params=["netlink", "tables"])
def shown_by(request, monkeypatch):
    """Both ways in which the kernel shows whose a connection is; each without the other."""
    if request.param == "netlink":
        monkeypatch.setattr(peers, "_end_in_tables", lambda *_: None)
    else:
        # No protocol of netlink has this number.
        monkeypatch.setattr(sock_diag, "_NETLINK_SOCK_DIAG", 31)
    return request.param


UNIX = {"http.sock": over_http, "link.sock": over_link}
TCP = {"a helper": over_http, "bascule mcp": at_mcp}


@only_root
@pytest.mark.parametrize("name", UNIX)
def test_a_socket_of_another_user_is_told_nothing(loose, name):
    with squatting(lambda: bound_at(os.path.join(loose, name))) as squatter:
        with pytest.raises(exits.Stranger, match=f"is served by uid {NOBODY}, not by you") as refusal:
            UNIX[name](loose)
        assert squatter.received() == b""
    assert refusal.value.exit_code == exits.REFUSED


@only_root
@pytest.mark.parametrize("name", UNIX)
def test_a_socket_of_another_user_gets_the_token_when_its_owner_is_not_checked(loose, name, monkeypatch):
    monkeypatch.setattr(http, "check_peer", lambda *_: None)
    with squatting(lambda: bound_at(os.path.join(loose, name))) as squatter:
        UNIX[name](loose)
        assert SECRET.encode() in squatter.received()


@only_root
def test_the_python_client_asks_the_same_question(loose):
    with squatting(lambda: bound_at(paths.link_socket(loose))) as squatter:
        with pytest.raises(Forbidden, match=f"is served by uid {NOBODY}"):
            SyncClient.connect(state_dir=loose)
        assert squatter.received() == b""


@only_root
@pytest.mark.parametrize("who", TCP)
@pytest.mark.parametrize(
    ("url", "listens"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "0.0.0.0"), ("127.0.0.1", "::"), ("[::1]", "::1"), ("[::1]", "::")],
)
@pytest.mark.usefixtures("shown_by")
def test_a_port_of_another_user_is_told_nothing(loose, monkeypatch, who, url, listens):
    port = free_port()
    monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://{url}:{port}")
    with squatting(lambda: bound(listens, port)) as squatter:
        with pytest.raises(exits.Stranger, match=f":{port} is served by uid {NOBODY}, not by you"):
            TCP[who](loose)
        assert squatter.received() == b""


@only_root
@pytest.mark.parametrize("who", TCP)
@pytest.mark.parametrize("listens", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_port_of_our_own_is_told(loose, monkeypatch, who, listens):
    port = free_port()
    monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{port}")
    with squatting(lambda: bound(listens, port), uid=os.getuid()) as squatter:
        # What answers there is no Bascule, and is found out only afterwards.
        with contextlib.suppress(exits.BadAnswer):
            TCP[who](loose)
        assert SECRET.encode() in squatter.received()


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
            timeout=PATIENCE,
            check=False,
        )
        assert squatter.received() == b""
    assert done.returncode == exits.REFUSED, done
    assert f"http://127.0.0.1:{port} is served by uid {NOBODY}, not by you (uid 0): nothing was sent" in done.stderr
    assert "BRIDGE_BROKER_URL" in done.stderr


ROUNDS = 40
WAYS = {"vanishes": accept_and_vanish, "bequeaths": accept_and_bequeath}


def robbed(thief, host, rounds, monkeypatch, state):
    """How often the token was heard in so many rounds, and by what the others were ended."""
    received, ends = 0, set()
    for _ in range(rounds):
        monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://{host}:{thief.next_port()}")
        try:
            over_http(state)
        except exits.DoorError as fault:
            ends.add(type(fault))
        received += SECRET in thief.received()
    return received, ends


@only_root
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("url", "listens"), [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "::"), ("[::1]", "::1")])
def test_a_listener_that_is_gone_when_we_look_gets_no_token(loose, monkeypatch, way, url, listens):
    rounds = ROUNDS if listens == "127.0.0.1" else 5
    with thieving(listens, WAYS[way]) as thief:
        received, ends = robbed(thief, url, rounds, monkeypatch, loose)
    assert received == 0
    # On a machine so busy that the thief did not accept in time, that is what is said.
    assert exits.Stranger in ends <= {exits.Stranger, exits.ConnectionLost}


@only_root
@pytest.mark.parametrize("way", WAYS)
def test_a_listener_of_another_user_gets_the_token_when_the_connection_is_not_checked(loose, monkeypatch, way):
    monkeypatch.setattr(http, "check_peer", lambda *_: None)
    with thieving("127.0.0.1", WAYS[way]) as thief:
        assert robbed(thief, "127.0.0.1", 3, monkeypatch, loose) == (3, set())


@only_root
def test_a_relay_to_our_true_daemon_gets_no_token(daemon, loose, monkeypatch):
    with thieving("127.0.0.1", relay_to(daemon.port)) as relay:
        received, ends = robbed(relay, "127.0.0.1", 5, monkeypatch, loose)
        assert received == 0
        assert exits.Stranger in ends
        # The control: it hears the token, and answers as the daemon does.
        monkeypatch.setattr(http, "check_peer", lambda *_: None)
        assert robbed(relay, "127.0.0.1", 1, monkeypatch, loose) == (1, {exits.Refusal})


@only_root
def test_a_listener_that_never_accepts_gets_nothing(loose, monkeypatch):
    monkeypatch.setattr(http, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(http.connect, "__defaults__", (0.1,))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(exits.ConnectionLost, match=r"does not accept the connection, .* nothing was sent"):
            over_http(loose)
        with listener.accept()[0] as accepted:
            assert accepted.recv(1) == b""


@only_root
@pytest.mark.parametrize("stopped", ["cleanly", "killed"])
def test_a_wrapped_program_says_nothing_at_a_port_that_was_taken_while_the_daemon_was_down(monkeypatch, stopped):
    """Not even to a program of our own user: the token is the daemon's, and the daemon has a socket."""
    with short_dir() as folder:
        with Living(f"{folder}/s") as living:
            token = http.call(choice.own_door(living.state), "POST", "/agents/register", {"agentId": "Jerry"})[
                "agentToken"
            ]
            living.stop() if stopped == "cleanly" else living.kill()
        environment = {
            "BASCULE_STATE_DIR": living.state,
            "BRIDGE_BROKER_URL": f"http://{living.host}",
            "BRIDGE_AGENT_ID": "Jerry",
            "BRIDGE_AGENT_TOKEN": token,
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with squatting(lambda: bound("127.0.0.1", living.port), uid=os.getuid()) as squatter:
            with pytest.raises(exits.NotRunning, match="Bascule is not running"):
                http.call(choice.find_door(living.state), "GET", "/status", token=token)
            assert squatter.received() == b""


def test_no_stored_token_goes_to_a_port(state, keep_token, monkeypatch):
    """Whoever listens there: what lies in the state directory is for the sockets in it."""
    paths.write_private_file(paths.local_token_file(state), SECRET)
    keep_token("Jerry", SECRET)
    port = free_port()
    monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{port}")
    commands = [
        ("bridge_send", "Jerry", "x", "--no-wait", "--as", "Jerry"),
        ("bridge_reply", "t-1", "x", "--agent", "Jerry"),
        ("bridge_register", "--agent", "Jerry"),
        ("bridge_recv", "--agent", "Jerry", "--wait", "0"),
    ]
    with squatting(lambda: bound("127.0.0.1", port), uid=os.getuid()) as squatter:
        for name, *words in commands:
            code = f"import sys; from bascule.programs.helpers.commands import {name}; sys.exit({name}())"
            subprocess.run(
                [sys.executable, "-c", code, *words, "--state-dir", state],
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        received = squatter.received()
    assert received.count(b"HTTP/1.1") >= len(commands)
    assert SECRET.encode() not in received


@only_root
def test_another_users_listener_on_another_address_is_none_of_our_business():
    port = free_port()
    with (
        squatting(lambda: bound("127.0.0.2", port, share=False)),
        socket.create_server(("127.0.0.1", port)) as ours,
        socket.create_connection(ours.getsockname()) as sock,
        ours.accept()[0],
    ):
        peers.check_peer(sock, "here", 30)


@pytest.mark.usefixtures("shown_by")
@pytest.mark.parametrize(
    ("listens", "dials"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")]
)
def test_both_ends_of_a_connection_are_found_from_its_acceptance_to_its_end(listens, dials):
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    server = socket.create_server((listens, 0), family=family, dualstack_ipv6=listens == "::")
    with server, socket.create_connection((dials, server.getsockname()[1])) as caller:
        here, there = caller.getsockname()[:2], caller.getpeername()[:2]
        assert peers.end_of(there, here) == (os.getuid(), os.fstat(caller.fileno()).st_ino)
        # Nobody has it yet; and who listens there is not who accepts.
        assert peers.end_of(here, there) is None
        with server.accept()[0] as accepted:
            assert peers.end_of(here, there) == (os.getuid(), os.fstat(accepted.fileno()).st_ino)
            # Neither another connection to the same port nor another port of the same host.
            assert peers.end_of((here[0], here[1] ^ 1), there) is None
            assert peers.end_of(here, (there[0], 1)) is None
        assert peers.end_of(here, there) is None


def test_the_kernel_is_asked_for_one_connection_and_reads_no_table(monkeypatch):
    """The tables have every connection of the machine, and take as long."""
    monkeypatch.setattr(peers, "_read", lambda _: pytest.fail("a table was read"))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as caller:
        assert peers.far_end(caller) is None
        with server.accept()[0]:
            peers.check_peer(caller, "here", PATIENCE)


@pytest.mark.parametrize("cut", [0, 16, 40, 87])
def test_half_an_answer_of_netlink_names_nobody(cut):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as caller:
        ends = caller.getsockname(), caller.getpeername()
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, sock_diag._NETLINK_SOCK_DIAG) as link:
            link.connect((0, 0))
            link.send(sock_diag._question(*ends))
            whole = link.recv(4_096)
        ports = ends[0][1], ends[1][1]
        end = sock_diag._end(whole, *ports)
        assert (end.uid, end.inode) == (os.getuid(), os.fstat(caller.fileno()).st_ino)
        assert sock_diag._end(whole[:cut], *ports) is None
        # Of an error, another state, another question, other ports.
        for at in (4, 8, 17, 20, 22):
            changed = bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]])
            assert sock_diag._end(changed, *ports) is None


def test_where_the_kernel_shows_no_owners_a_message_is_sent_and_no_token(state, monkeypatch):
    monkeypatch.setattr(peers, "_TABLE4", f"{state}/none")
    with FakeHttp(("127.0.0.1", 0), [answer(200, [])]) as broker:
        monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{broker.port}")
        door = choice.find_door(state)
        with pytest.raises(exits.Stranger, match=r"does not say whose program .* is: the token was not sent"):
            http.call(door, "GET", "/agents", token=SECRET)
        assert http.call(door, "GET", "/agents") == []
    assert [got.bearer for got in broker.got] == [None]


def test_where_the_kernel_shows_no_owners_bascule_mcp_sends_no_token_either(state, monkeypatch):
    monkeypatch.setattr(peers, "_TABLE4", f"{state}/none")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("BRIDGE_BROKER_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(exits.Stranger, match="the token was not sent"):
            at_mcp(state)


def test_the_table_is_read_for_this_very_connection(tmp_path, monkeypatch):
    """Rows of listeners, of others' connections, of ends that nobody has accepted yet, and the one that counts."""

    class Connected:
        family = socket.AF_INET

        def getsockname(self):
            return ("127.0.0.1", 0xC000)

        def getpeername(self):
            return ("127.0.0.1", 0x1F90)

    def table(*rows):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        path.write_text("  sl  local_address rem_address   st\n" + "".join(f"   0: {row}\n" for row in rows))
        return str(path)

    here, there = ("0100007F", "0100007F") if sys.byteorder == "little" else ("7F000001", "7F000001")
    mapped = f"0000000000000000{'FFFF0000' if sys.byteorder == 'little' else '0000FFFF'}{here}"
    rest = "0:0 00:0 0 {uid} 0 {inode} 1"
    listener = f"{there}:1F90 00000000:0000 0A " + rest.format(uid=1, inode=11)
    ours = f"{here}:C000 {there}:1F90 01 " + rest.format(uid=2, inode=12)
    neighbour = f"{there}:1F90 {here}:C001 01 " + rest.format(uid=3, inode=13)
    closing = f"{there}:1F90 {here}:C000 04 " + rest.format(uid=4, inode=14)
    waiting = f"{there}:1F90 {here}:C000 01 " + rest.format(uid=0, inode=0)
    accepted = f"{there}:1F90 {here}:C000 01 " + rest.format(uid=1000, inode=15)
    by_six = f"{mapped}:1F90 {mapped}:C000 01 " + rest.format(uid=1001, inode=16)
    for four, six, end in (
        ((listener, ours, neighbour, closing), (), None),
        ((waiting,), (), None),
        ((listener, neighbour, accepted), (), (1000, 15)),
        ((), (by_six,), (1001, 16)),
        ((accepted,), (by_six,), None),
    ):
        monkeypatch.setattr(peers, "_TABLE4", table(*four))
        monkeypatch.setattr(peers, "_TABLE6", table(*six))
        assert peers.far_end(Connected()) == end
