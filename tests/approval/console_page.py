"""A page of the console in a house with trees: it pairs, signs in, proves calls and makes them."""

from typing import Any

from felling import PASSPHRASE, Grove

from bascule.kernel.call import BROWSER, ConsoleSession, Grade
from bascule.testing.fakes import FakeConnection
from soft_key import ORIGIN, SoftKey


class Page:
    """One tab. Without a session it is `browser`."""

    def __init__(self, grove: Grove) -> None:
        self.house = grove.house
        self.sessions = grove.house.life.sessions
        self.sessions.origins = (ORIGIN,)
        self.token: str | None = None

    def pair(self) -> "Page":
        self.token, _ = self.sessions.open(Grade.PAIRED)
        return self

    @property
    def session_id(self) -> str:
        assert self.token is not None
        session = self.sessions.find(self.token)
        assert session is not None, "this session is over"
        return session.session_id

    def call(self, method: str, params: dict[str, Any] | None = None, *, proof: str | None = None) -> Any:
        if self.token is None:
            return self.house.call(BROWSER, method, params)
        session = self.sessions.find(self.token)
        assert session is not None, "this session is over"
        at = ConsoleSession(session.session_id, session.grade, proof)
        return self.house.call(session.principal, method, params, session=at)

    # -- the person --

    def challenge(self, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        if not calls:
            return self.call("person.challenge", {"purpose": "sign-in"})
        asked = [{"method": method, "params": params} for method, params in calls]
        return self.call("person.challenge", {"purpose": "calls", "calls": asked})

    def answer(self, challenge: dict[str, Any], key: SoftKey) -> dict[str, Any]:
        assertion = key.get(challenge["challenge"])
        return self.call("person.prove", {"challengeId": challenge["challengeId"], "assertion": assertion})

    def type_passphrase(self, challenge: dict[str, Any], passphrase: str = PASSPHRASE["passphrase"]) -> dict[str, Any]:
        return self.call("person.prove", {"challengeId": challenge["challengeId"], "passphrase": passphrase})

    def sign_in(self, key: SoftKey | None = None) -> "Page":
        challenge = self.challenge()
        answer = self.type_passphrase(challenge) if key is None else self.answer(challenge, key)
        self.token = answer["token"]
        return self

    def prove(self, key: SoftKey, *calls: tuple[str, dict[str, Any]]) -> str:
        return self.answer(self.challenge(*calls), key)["proofId"]

    def act(self, key: SoftKey, method: str, params: dict[str, Any]) -> Any:
        return self.call(method, params, proof=self.prove(key, (method, params)))

    # -- enrolling --

    def enrol(self, key: SoftKey, name: str = "ring") -> str:
        code = invited(self.house)
        begun = self.call("passkeys.begin", {"code": code, "name": name})
        return self.finish(begun, key)

    def finish(self, begun: dict[str, Any], key: SoftKey) -> str:
        made = key.create(begun["options"]["challenge"])
        following = self.call("passkeys.finish", {"challengeId": begun["challengeId"], **made})
        return self.confirm(following, key)["passkeyId"]

    def confirm(self, following: dict[str, Any], key: SoftKey) -> dict[str, Any]:
        assertion = key.get(following["challenge"])
        return self.call("passkeys.confirm", {"challengeId": following["challengeId"], "assertion": assertion})


def invited(house: Any) -> str:
    """The code that `bascule person passkey add` shows."""
    return house.call("person", "passkeys.invite", connection=FakeConnection(house.clock))["code"]


def asked(grove: Grove, path: str = "oak") -> str:
    """A question of Jerry's."""
    grove.house.begin("agent:Jerry", "tree.cut", {"path": path})
    return grove.house.call("local", "approvals.list")[-1]["approvalId"]


def approves(approval_id: str, **more: Any) -> dict[str, Any]:
    return {"approvalId": approval_id, "decision": "approved", **more}
