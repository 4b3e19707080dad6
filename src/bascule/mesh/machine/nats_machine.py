"""What membership needs of this machine, over NATS: see `mesh.machine_ports`."""

import asyncio
import getpass
import hashlib
import os
import shutil
import socket
import stat
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.mesh.cards import bytes_of
from bascule.mesh.machine import layout, nkeys, set_up
from bascule.mesh.machine.hub import NatsHub
from bascule.mesh.machine.login import BusFault, Login, credentials, fetch_certificate
from bascule.mesh.machine.nats_post import NatsPost
from bascule.mesh.machine.nats_program import find_program
from bascule.mesh.machine_ports import JoinLogin, MemberHub, MemberPost, NotReached
from bascule.mesh.membership import keys_of
from bascule.mesh.ports import Hub
from bascule.mesh.records import Membership

T = TypeVar("T")
# A creds file is a page.
_MAX_CREDS_BYTES = 64 * 1024


class _Hub(NatsHub):
    """Says what went wrong in the words of the port."""

    async def start(self) -> None:
        await _reached(super().start())


class NatsMachine:
    """`folder`: private, and the mesh's alone."""

    def __init__(self, folder: str, report: Callable[[str, BaseException], object]) -> None:
        self._folder = folder
        self._report = report

    def missing(self, *, hub: bool) -> str | None:
        if hub:
            try:
                find_program()
            except BusFault as fault:
                return fault.detail
        return None

    def names(self) -> tuple[str, str]:
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            # A user without a name, as in some containers.
            user = f"uid {os.getuid()}"
        return socket.gethostname(), user

    def make_hub(self, own: Membership) -> MemberHub:
        assert own.hub_listen is not None
        return _Hub(
            self._hub_folder(own),
            node=own.node,
            bus_key=keys_of(own).public[2],
            listen=own.hub_listen,
            report=self._report,
        )

    async def remove_hub(self, own: Membership) -> None:
        await asyncio.to_thread(shutil.rmtree, self._hub_folder(own), ignore_errors=True)

    def _hub_folder(self, own: Membership) -> str:
        """One for each mesh: who was let into an earlier one is not known in the next."""
        name = hashlib.sha256(bytes_of(own.mesh_key)).hexdigest()[:16]
        return os.path.join(self._folder, f"hub-{name}")

    def make_post(self, own: Membership) -> MemberPost:
        return NatsPost(
            own.node,
            keys_of(own),
            own.servers,
            certificate=own.certificate,
            creds_file=own.creds_file,
            report=self._report,
        )

    async def set_up(self, own: Membership, hub: Hub | None) -> None:
        login = Login(own.node, keys_of(own).bus, own.servers, own.certificate, own.creds_file)
        room = hub.mail_bytes if isinstance(hub, NatsHub) else layout.DEFAULT_MAX_BYTES
        await _reached(set_up.set_up(login, replicas=own.replicas, max_bytes=room, report=self._report))

    async def fetch_certificate(self, host: str, port: int) -> tuple[str, str]:
        return await _reached(fetch_certificate(host, port))

    async def ask_to_join(self, login: JoinLogin, node: str, data: bytes, seconds: float) -> bytes:
        at = Login(node, login.bus, login.servers, login.certificate, login.creds_file)
        return await _reached(self._ask_to_join(at, node, data, seconds))

    async def _ask_to_join(self, at: Login, node: str, data: bytes, seconds: float) -> bytes:
        # Answers are sent to the inboxes of keys alone, so this is what an invited one is called. The key that logs in:
        # an operator can allow the inbox of the one in its creds file, and knows no other.
        _, key = credentials(at)
        at = at._replace(user=nkeys.user_text(_public(key)))
        return await set_up.ask_to_join(at, node, data, seconds, self._report)

    def creds_problem(self, path: str) -> str | None:
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_CREDS_BYTES:
                return "it is not a small file"
            if found.st_mode & 0o077:
                return f"others can read it: chmod 600 {path}"
            with open(path, encoding="ascii") as file:
                nkeys.read_creds(file.read())
        except (OSError, ValueError, nkeys.BadCreds) as error:
            return str(error)
        return None


async def _reached(work: Awaitable[T]) -> T:
    try:
        return await work
    except BusFault as fault:
        raise NotReached(fault.fault, fault.detail) from None


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()
