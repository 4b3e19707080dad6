"""A page of the console spoken by hand: the headers that a browser sends, and each of them can be another."""

import hashlib
import json
import secrets
from typing import Any

from living import Living
from wires import Answer, LinkWire, Wire, request

from soft_key import SoftKey

# As Chromium sends them: a fetch of our own page, one of its scripts, and a person who goes to the address.
CALL = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
PART = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "script"}
VISIT = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def console_port(daemon: Living) -> int:
    with Wire(daemon.http_socket) as wire:
        return int(wire.ask("GET", "/status", []).json["doors"]["console"].rpartition(":")[2])


class Page:
    """One tab."""

    def __init__(self, daemon: Living, token: str | None = None) -> None:
        self.daemon = daemon
        self.port = console_port(daemon)
        self.token = token

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.port}"

    def headers(self, verb: str, fetch: dict[str, str] = CALL) -> list[tuple[str, str]]:
        sent = [("Host", f"localhost:{self.port}"), *fetch.items()]
        if verb != "GET":
            sent += [("Origin", self.origin), ("Content-Type", "application/json")]
        if self.token is not None:
            sent.append(("Authorization", f"Bearer {self.token}"))
        return sent

    def ask(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        fetch: dict[str, str] = CALL,
        more: dict[str, str] | None = None,
    ) -> Answer:
        headers = [*self.headers(verb, fetch), *(more or {}).items()]
        data = json.dumps({} if body is None else body).encode() if verb != "GET" else None
        return self.send(request(verb, path, headers, data), verb)

    def send(self, data: bytes, verb: str = "GET") -> Answer:
        with Wire(("127.0.0.1", self.port)) as wire:
            wire.send(data)
            return wire.answer(verb)

    def get(self, path: str, **more: Any) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    # -- pairing --

    def ask_to_pair(self) -> tuple[dict[str, Any], str]:
        """What the page is answered, and its secret."""
        secret = secrets.token_urlsafe(32)
        answer = self.post("/v1/console/pair", {"secretHash": hashlib.sha256(secret.encode()).hexdigest()})
        assert answer.status == 200, answer
        return answer.json, secret

    def claim(self, pairing: dict[str, Any], secret: str, wait_ms: int = 0) -> Answer:
        return self.post("/v1/console/claim", {"pairingId": pairing["pairingId"], "secret": secret, "waitMs": wait_ms})

    def pair(self) -> "Page":
        """From nothing to a session, with the terminal's part played by the link."""
        pairing, secret = self.ask_to_pair()
        with LinkWire(self.daemon.link_socket).hello() as link:
            assert link.call("console.pairings")[0]["digits"] == pairing["digits"]
            link.call("console.confirm", {"pairingId": pairing["pairingId"], "accept": True})
        answer = self.claim(pairing, secret)
        assert answer.status == 200, answer
        self.token = answer.json["token"]
        return self

    # -- passkeys --

    def ok(self, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.post(path, body, **more)
        assert answer.status == 200, answer
        return answer.json

    def enrol(self, code: str, key: SoftKey, name: str = "ring") -> str:
        """From the code of an invitation to a passkey that counts; its id."""
        key.origin = self.origin
        begun = self.ok("/v1/passkeys/begin", {"code": code, "name": name})
        made = {"challengeId": begun["challengeId"], **key.create(begun["options"]["challenge"])}
        passkey_id: str = self.ok("/v1/passkeys/confirm", signed(self.ok("/v1/passkeys/finish", made), key))[
            "passkeyId"
        ]
        return passkey_id

    def sign_in(self, key: SoftKey) -> Answer:
        challenge = self.ok("/v1/person/challenge", {"purpose": "sign-in"})
        answer = self.post("/v1/person/prove", signed(challenge, key))
        if answer.status == 200:
            self.token = answer.json["token"]
        return answer

    def challenge(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        calls = [{"method": method, "params": params}]
        asked: dict[str, Any] = self.ok("/v1/person/challenge", {"purpose": "calls", "calls": calls})
        return asked

    def prove(self, challenge: dict[str, Any], key: SoftKey) -> str:
        proof_id: str = self.ok("/v1/person/prove", signed(challenge, key))["proofId"]
        return proof_id


def signed(challenge: dict[str, Any], key: SoftKey) -> dict[str, Any]:
    """The answer of a key to a challenge, as a page sends it."""
    return {"challengeId": challenge["challengeId"], "assertion": key.get(challenge["challenge"])}
