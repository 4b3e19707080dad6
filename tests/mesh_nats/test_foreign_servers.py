"""Servers that somebody else runs: signed claims instead of a list of keys, and TLS of an authority."""

import asyncio
import base64
import hashlib
import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.mesh.cards import Keys
from bascule.mesh.machine import layout, nkeys
from bascule.mesh.machine.login import BusFault, Login
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.machine.set_up import set_up
from bascule.mesh.ports import Fault
from certificates import certificate_in
from nats_servers import AUTHORITY, Recorder, Server, cluster
from nats_stories import run
from patience import PATIENCE
from ports import free_port

_OPERATOR, _ACCOUNT, _USER = 14 << 3, 0, 20 << 3
_NO_LIMIT = {"subs": -1, "data": -1, "payload": -1}


def named(prefix: int, key: Ed25519PrivateKey) -> str:
    return nkeys._encode(bytes([prefix]) + key.public_key().public_bytes_raw())


def plain(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def claim(issuer: tuple[int, Ed25519PrivateKey], subject: str, name: str, nats: dict) -> str:
    """As the tools of an operator sign it."""
    body = {"iat": 1_700_000_000, "iss": named(*issuer), "name": name, "sub": subject, "nats": {**nats, "version": 2}}
    digest = hashlib.new("sha512_256", json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    text = f"{plain(json.dumps({'typ': 'JWT', 'alg': 'ed25519-nkey'}).encode())}.{plain(json.dumps(body).encode())}"
    return f"{text}.{plain(issuer[1].sign(text.encode()))}"


class Operator:
    """One account, whose nodes have a file each."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.operator, self.account = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        limits = {
            **_NO_LIMIT,
            "imports": -1,
            "exports": -1,
            "wildcards": True,
            "conn": -1,
            "leaf": -1,
            "mem_storage": -1,
            "disk_storage": -1,
            "streams": -1,
            "consumer": -1,
        }
        issuer = (_OPERATOR, self.operator)
        account = named(_ACCOUNT, self.account)
        # The server's own, without which it has no JetStream.
        system = named(_ACCOUNT, Ed25519PrivateKey.generate())
        config = {
            "host": "127.0.0.1",
            "port": free_port(),
            "operator": claim(issuer, named(*issuer), "team", {"type": "operator"}),
            "resolver": "MEMORY",
            "resolver_preload": {
                account: claim(issuer, account, "mesh", {"type": "account", "limits": limits}),
                system: claim(issuer, system, "SYS", {"type": "account"}),
            },
            "system_account": system,
            "jetstream": {"store_dir": str(folder / "store")},
        }
        self.server = Server(folder, config, config["port"])

    def creds(self, node: str, permissions: layout.Permissions) -> str:
        key = Ed25519PrivateKey.generate()
        seed = nkeys._encode(bytes([(18 << 3) | (_USER >> 5), (_USER & 31) << 3]) + key.private_bytes_raw())
        allowed = {
            "pub": {"allow": permissions.publish},
            "sub": {"allow": permissions.subscribe},
            "type": "user",
            **_NO_LIMIT,
        }
        jwt = claim((_ACCOUNT, self.account), named(_USER, key), node, allowed)
        file = self.folder / f"{node}.creds"
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
        return str(file)


def test_a_file_of_an_operator_logs_in_with_what_it_allows(tmp_path):
    async def story():
        operator = Operator(tmp_path)
        files = {
            AUTHORITY: operator.creds(AUTHORITY, layout.authority_permissions(AUTHORITY)),
            "ada": operator.creds("ada", layout.node_permissions("ada")),
        }
        operator.server.start()
        try:
            urls = (operator.server.url,)
            await set_up(Login(AUTHORITY, Keys.new().bus, urls, creds_file=files[AUTHORITY]))
            # The node's own key is not asked for here.
            ada, reader = NatsPost("ada", Keys.new(), urls, creds_file=files["ada"]), Recorder()
            await ada.open(reader)
            await reader.until(lambda: reader.is_open)
            await ada.mail("ada", b"to myself")
            await reader.until(lambda: reader.mail)
            await ada.close()
            # One who calls itself otherwise than its file says is let in and may do nothing.
            eve, reader = NatsPost("eve", Keys.new(), urls, creds_file=files["ada"]), Recorder()
            await eve.open(reader)
            await reader.until(lambda: eve.state.fault is Fault.FORBIDDEN)
            await eve.close()
        finally:
            operator.server.kill()

    run(story)


@pytest.mark.parametrize("text", [None, "", "-----BEGIN NATS USER JWT-----\nx\n"])
def test_a_file_that_cannot_be_used_is_named(tmp_path, text):
    async def story():
        file = tmp_path / "ada.creds"
        if text is not None:
            file.write_text(text)
        with pytest.raises(BusFault, match=r"ada\.creds cannot be used") as refused:
            await set_up(Login("ada", Keys.new().bus, ("nats://127.0.0.1:1",), creds_file=str(file)))
        assert refused.value.fault is Fault.REFUSED

    run(story)


def test_tls_of_an_authority_that_the_system_trusts_begins_after_the_servers_greeting(tmp_path, monkeypatch):
    certificate, key = certificate_in(tmp_path)

    async def story():
        with cluster(tmp_path / "nats") as servers:
            server = servers.servers[0]
            server.kill()
            server.config["tls"] = {"cert_file": str(certificate), "key_file": str(key)}
            server.start()
            address = server.url.replace("nats://", "tls://")
            login = Login(AUTHORITY, servers.keys[AUTHORITY].bus, (address,))
            with pytest.raises(BusFault, match="the system does not trust it"):
                await set_up(login)
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            await set_up(login)
            # A server that wants TLS gets it, whatever the address says.
            await set_up(login._replace(servers=(server.url,)))

    run(story)


def test_where_tls_was_asked_for_nothing_is_said_in_the_clear():
    """A server in the middle greets without TLS, and would read who we are and all that follows."""

    async def story():
        received = []

        async def greet(reader, writer):
            writer.write(b'INFO {"version":"2.15.1","nonce":"x","max_payload":1024}\r\n')
            received.append(await reader.read(1_000))
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(BusFault, match="no TLS"):
                await set_up(Login("ada", Keys.new().bus, (f"tls://127.0.0.1:{port}",)))
            async with asyncio.timeout(PATIENCE):
                while not received:  # noqa: ASYNC110 - the server's side sets no event
                    await asyncio.sleep(0.01)
            assert received == [b""]
            # The control: without TLS in the address the login is received.
            with pytest.raises(BusFault):
                await set_up(Login("ada", Keys.new().bus, (f"nats://127.0.0.1:{port}",)))
            assert received[1].startswith(b"CONNECT ")

    run(story)


def test_something_that_is_not_nats_is_said_to_be_that():
    async def story():
        async def greet(_, writer):
            writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(BusFault, match="does not speak as NATS does"):
                await set_up(Login("ada", Keys.new().bus, (f"nats://127.0.0.1:{port}",)))

    run(story)
