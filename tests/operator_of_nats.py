"""An operator of NATS as a team has one: its servers know accounts and users by signed claims, and each node gets a
creds file. Claims are JWTs whose keys are Ed25519 in NATS's text form."""

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bascule.mesh.machine import nkeys
from bascule.mesh.machine.layout import Permissions

_PREFIX = {"operator": 14 << 3, "account": 0, "user": 20 << 3}
_SEED = 18 << 3
_NO_LIMITS = {"subs": -1, "data": -1, "payload": -1}


class Key:
    """One of an operator, an account or a user."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._key = Ed25519PrivateKey.generate()
        self.text = nkeys._encode(bytes([_PREFIX[kind]]) + self._key.public_key().public_bytes_raw())

    @property
    def seed(self) -> str:
        prefix = _PREFIX[self.kind]
        return nkeys._encode(bytes([_SEED | prefix >> 5, (prefix & 31) << 3]) + self._key.private_bytes_raw())

    def claim(self, about: "Key", name: str, nats: dict[str, Any]) -> str:
        """What the holder of this key says about another one."""
        body = {"iat": int(time.time()), "iss": self.text, "sub": about.text, "name": name}
        body["nats"] = {"version": 2, "type": about.kind, **nats}
        body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
        signed = ".".join(_base64(json.dumps(each).encode()) for each in ({"typ": "JWT", "alg": "ed25519-nkey"}, body))
        return f"{signed}.{_base64(self._key.sign(signed.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Operator:
    """One account for the mesh, and the one that every server needs for itself."""

    def __init__(self) -> None:
        self._key, self._system, self._mesh = Key("operator"), Key("account"), Key("account")
        self._users: dict[str, Key] = {}
        self._revoked: dict[str, int] = {}

    def config(self) -> dict[str, Any]:
        """For a server: whom it believes."""
        limits = {**_NO_LIMITS, "imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
        stores = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
        mesh = {"limits": {**limits, **stores}, "revocations": self._revoked}
        return {
            "operator": self._key.claim(self._key, "operator", {}),
            "system_account": self._system.text,
            "resolver": "MEMORY",
            "resolver_preload": {
                self._system.text: self._key.claim(self._system, "system", {"limits": limits}),
                self._mesh.text: self._key.claim(self._mesh, "mesh", mesh),
            },
        }

    def creds(
        self, folder: Path, node: str, may: Permissions | None = None, *, key: Key | None = None, **denied: str
    ) -> str:
        """Path of a creds file for a node. It may do what `may` says, or everything; `pub` and `sub`: a subject that it
        may not use."""
        user = self._users[node] = key or Key("user")
        subjects = {"pub": may.publish, "sub": may.subscribe} if may is not None else {}
        allowed = {
            way: ({"allow": subjects[way]} if way in subjects else {})
            | ({"deny": [denied[way]]} if way in denied else {})
            for way in ("pub", "sub")
        }
        # Of what it was asked, which may be anybody's.
        answers = {"resp": {"max": 1, "ttl": 60 * 10**9}} if may is not None and may.answer else {}
        jwt = self._mesh.claim(user, node, {**allowed, **answers, **_NO_LIMITS})
        path = folder / f"{node}.creds"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(
                f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
                f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
            )
        return str(path)

    def revoke(self, node: str) -> None:
        self._revoked[self._users[node].text] = int(time.time()) + 1
