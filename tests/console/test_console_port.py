"""The console's port is ours at both addresses, or there is no console and everybody is told why."""

import errno
import os
import socket

import pytest
from living import Living, eventually, run_command, short_dir
from pages import VISIT, Page
from strangers import NOBODY, bound, only_root, squatting
from wires import Wire, request

from bascule.daemon import console_port as port_module
from bascule.daemon.console_port import PortHeld, bind_console, extra_origins, wanted_port
from bascule.foundation import paths
from bascule.kernel.settings import BadConfig
from ports import free_port

HOSTS = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


def listening(host: str, port: int) -> socket.socket:
    sock = socket.socket(HOSTS[host])
    # `free_port` keeps the port for us.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.listen()
    return sock


def status(daemon: Living) -> dict[str, object]:
    with Wire(daemon.http_socket) as wire:
        found: dict[str, object] = wire.ask("GET", "/status", []).json
    return found


@pytest.mark.parametrize("host", HOSTS)
def test_both_addresses_lead_to_the_console(daemon, host):
    page = Page(daemon)
    with socket.socket(HOSTS[host]) as sock:
        sock.connect((host, page.port))
        sock.sendall(request("GET", "/", page.headers("GET", VISIT)))
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("host", HOSTS)
def test_a_program_at_one_address_keeps_the_console_away(state, host):
    port = free_port()
    with listening(host, port), Living(state, console_port=port) as daemon:
        shown = status(daemon)
        assert "console" not in shown["doors"]
        assert f":{port} cannot be ours" in str(shown["consoleProblem"])
        # Ours is the process that holds it, and its name is known.
        assert f"process {os.getpid()} " in str(shown["consoleProblem"])
        # Written by a thread of its own.
        eventually(lambda: '"no_console"' in daemon.log(), "the log names it")
        other = next(each for each in HOSTS if each != host)
        # Nothing of us is left at the other address, where a browser might find it.
        with listening(other, port):
            pass
        assert "cannot be ours" in run_command("status", "--state-dir", state).stdout
        doctor = run_command("doctor", "--state-dir", state).stdout
        assert "cannot be ours" in doctor
        assert "console_port" in doctor


@only_root
def test_a_squatter_of_another_user_on_the_other_address_is_named_and_gets_nothing(state):
    port = free_port()
    with squatting(lambda: bound("::1", port)) as squatter, Living(state, console_port=port) as daemon:
        assert f"a program of uid {NOBODY}" in str(status(daemon)["consoleProblem"])
        assert squatter.received() == b""


def test_where_only_one_address_was_asked_for_a_squatter_takes_the_other(monkeypatch):
    """The control: what happens without the guard."""
    monkeypatch.setattr(port_module, "HOSTS", ("127.0.0.1",))
    port = free_port()
    with listening("::1", port):
        console = bind_console(port)
        for sock in console.sockets:
            sock.close()
    assert console.port == port


def test_a_machine_without_ipv6_has_a_console_on_the_one_address(monkeypatch):
    listen = port_module._listen

    def without_ipv6(host: str, port: int) -> socket.socket:
        if ":" in host:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return listen(host, port)

    monkeypatch.setattr(port_module, "_listen", without_ipv6)
    console = bind_console(0)
    assert [sock.family for sock in console.sockets] == [socket.AF_INET]
    console.sockets[0].close()


def test_any_port_is_one_that_is_free_at_both_addresses():
    console = bind_console(0)
    assert {sock.getsockname()[1] for sock in console.sockets} == {console.port}
    with pytest.raises(PortHeld):
        bind_console(console.port)
    for sock in console.sockets:
        sock.close()


def test_up_says_in_the_background_too_that_there_is_no_console():
    with short_dir() as folder, listening("::1", port := free_port()):
        options = ("--state-dir", f"{folder}/s", "--port", "0", "--durability", "memory")
        try:
            up = run_command("up", "-d", *options, "--console-port", str(port))
            assert up.returncode == 0
            assert "no console" in up.stderr
            assert str(port) in up.stderr
        finally:
            run_command("down", "--state-dir", f"{folder}/s")


# -- which daemon has one --------------------------------------------------------------------------


def test_a_daemon_beside_the_users_own_has_no_console_unless_it_asks(state):
    with Living(state) as daemon:
        shown = status(daemon)
    assert "console" not in shown["doors"]
    assert "consoleProblem" not in shown


def test_the_users_own_daemon_has_it_on_5051():
    assert wanted_port(None, paths.default_state_dir()) == 5051
    assert wanted_port(None, "/elsewhere") is None
    assert wanted_port("off", paths.default_state_dir()) is None


@pytest.mark.parametrize(("setting", "port"), [(0, 0), ("0", 0), (5052, 5052), ("5052", 5052)])
def test_a_port_that_is_set_counts_everywhere(setting, port):
    assert wanted_port(setting, "/elsewhere") == port


@pytest.mark.parametrize("setting", ["on", "", "-1", -1, 65_536, "5051x", "0x13bb"])
def test_a_port_that_is_none_is_refused(setting):
    with pytest.raises(BadConfig):
        wanted_port(setting, "/elsewhere")


def test_further_origins_are_of_localhost_alone():
    assert extra_origins(None) == ()
    assert extra_origins(" http://localhost:6051, http://localhost:6052 ") == (
        "http://localhost:6051",
        "http://localhost:6052",
    )


@pytest.mark.parametrize(
    "setting",
    [
        "http://evil.test:6051",
        "http://127.0.0.1:6051",
        "https://localhost:6051",
        "http://localhost",
        "http://localhost:6051/",
        "http://a@localhost:6051",
        "localhost:6051",
    ],
)
def test_another_origin_is_refused(setting):
    with pytest.raises(BadConfig):
        extra_origins(f"http://localhost:6050,{setting}")
