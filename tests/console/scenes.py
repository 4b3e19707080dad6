"""A daemon with a console, a person with a key, and an agent whose calls ask."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from browsing import Console, Faults, Key, enrolled, opened
from living_grove import PASSPHRASE, POLICY, Grove
from pages import Page as Spoken
from playwright.sync_api import Browser, BrowserContext
from wires import Answer, Caller, LinkWire, Wire, request

from inside import policy_digest
from soft_key import SoftKey

# Trees ask; what is written below keys/ asks, too, and so a run does.
ASKING = (
    POLICY
    + """
[[rule]]
name = "keys-ask"
decision = "ask"
reason = "keys are looked at first"
methods = ["workspace.*"]
paths = ["keys/**"]
"""
)
# Two pages within a minute are refused; tests open many.
AT_ONCE = {"bascule.admin.pairing.ALONE_SECONDS": 0.0}
# An agent that does not wait: its question stays, and it may come back.
NO_WAIT = {"approval_hold_ms": 1}


class Scene:
    """One daemon's life with its person and with Jerry."""

    def __init__(self, folder: str, *, policy: str = ASKING, **options: Any) -> None:
        self.grove = Grove(folder)
        self._policy = policy
        with open(f"{self.grove.config}/policy.toml", "w", encoding="utf-8") as file:
            file.write(policy)
        constants = AT_ONCE | options.pop("constants", {})
        self.options = {"console_port": 0, **options, "constants": constants}
        self.daemon = self.grove.live(**self.options)
        self.port = Spoken(self.daemon).port
        # Each sign-in and proof counts one on; a later tab's copy must not be behind.
        self._counters = itertools.count(1_000, 1_000)
        self.key = SoftKey()
        self._crowd: list[Caller] = []

    @property
    def origin(self) -> str:
        return f"http://localhost:{self.port}"

    def start_again(self) -> None:
        """The same state and ports, as `bascule up` after `down`."""
        self.options["console_port"] = self.port
        self.daemon = self.grove.live(**self.options | {"port": self.daemon.port})

    def people(self) -> "Scene":
        """A person with a passphrase and a key, and an agent."""
        with self.person(new=True):
            pass
        self.enrol(self.key)
        self.jerry = Caller(self.daemon).register("Jerry")
        return self

    def enrol(self, key: SoftKey) -> None:
        with self.person() as link:
            code = link.call("passkeys.invite")["code"]
        enrolled(Spoken(self.daemon).pair(), key, code)

    @contextlib.contextmanager
    def person(self, *, new: bool = False) -> Iterator[LinkWire]:
        with LinkWire(self.daemon.link_socket).hello() as link:
            if new:
                link.call("person.set", PASSPHRASE)
            link.call("person.unlock", PASSPHRASE)
            if new:
                link.call("policy.accept", {"digest": policy_digest(self._policy)})
            yield link

    # -- browsers --

    @contextlib.contextmanager
    def browser(self, browser: Browser, **options: Any) -> Iterator[tuple[BrowserContext, Faults]]:
        """Nothing but our own address may be asked for anything."""
        with opened(browser, **options) as (context, faults):
            yield context, faults
            foreign = [url for url in faults.requests if not url.startswith((f"{self.origin}/", f"blob:{self.origin}"))]
            assert not foreign, foreign

    def tab(self, context: BrowserContext, path: str = "approvals") -> Console:
        """A tab with the person's key; not signed in."""
        console = Console(context, self.origin)
        console.key = Key(console.page).take(self.key, counter=next(self._counters))
        return console.go(path)

    def signed_in(self, context: BrowserContext, path: str = "approvals") -> Console:
        return self.tab(context, path).sign_in_by_key().is_live()

    def local(self) -> Caller:
        return Caller(self.daemon)

    def project(self) -> str:
        """A folder that agents may work in."""
        folder = f"{self.grove.folder}/project"
        os.makedirs(folder, exist_ok=True)
        return folder

    # -- questions --

    def crowd(self, size: int) -> list[Caller]:
        """So many more agents: each may have 32 questions waiting."""
        found = len(self._crowd)
        self._crowd += [self.local().register(f"Crowd{number}") for number in range(found, size)]
        return self._crowd[:size]

    def asks(self, path: str, who: Caller | None = None) -> str:
        """Jerry asks, or another one, and does not wait; the id."""
        answer = (who or self.jerry).post("/trees", {"path": path})
        assert answer.status == 202, answer
        approval_id: str = answer.error["details"]["approvalId"]
        return approval_id

    def clear(self) -> None:
        """Nothing waits any more."""
        with self.person() as link:
            while waiting := link.call("approvals.list", {"limit": 1_000}):
                for each in waiting:
                    link.call("approvals.decide", {"approvalId": each["approvalId"], "decision": "denied"})

    @contextlib.contextmanager
    def asking(self, path: str) -> Iterator["Waiting"]:
        """Jerry asks and waits for the answer."""
        with Wire(self.daemon.tcp) as wire:
            headers = [*self.jerry.headers, ("Content-Type", "application/json")]
            wire.send(request("POST", "/trees", headers, b'{"path": "%s"}' % path.encode()))
            yield Waiting(wire)

    def state(self, approval_id: str) -> str:
        with LinkWire(self.daemon.link_socket).hello() as link:
            state: str = link.call("approvals.show", {"approvalId": approval_id})["state"]
        return state

    def verified(self) -> dict[str, Any]:
        with LinkWire(self.daemon.link_socket).hello() as link:
            result: dict[str, Any] = link.call("ledger.verify")
        assert result["faults"] == []
        return result


class Waiting:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def answer(self) -> Answer:
        return self._wire.answer("POST")
