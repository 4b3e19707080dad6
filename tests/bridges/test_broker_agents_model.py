"""Handles and tokens against a plain model, on every store: one principal per handle, and an old token never again."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from on_disk import OnDisk

from bascule.broker.limits import BrokerLimits
from bascule.foundation import paths
from bascule.foundation.errors import BasculeError, Internal
from bascule.kernel.identity.principals import WrongToken, identify
from bascule.kernel.identity.tokens import hash_token

LONG = bool(os.environ.get("BASCULE_LONG"))
STORIES = {"memory": 15, "fsync": 3, "relaxed": 4}
# As in ticket_model.py: no two are due at one moment, for acts happen on whole quarters of a second.
SILENCE, TAKEOVER, RETENTION, SWEEP = 20_003, 50_017, 300_029, 60_000
MAX_AGENTS = 3
LOCAL_TOKEN = "the token of this machine's user"
# Two that a file system without large and small letters would take for one.
HANDLES = ["Ada", "ada", "Bob", "Cleo"]

handles = st.sampled_from(HANDLES)


@dataclass
class Agent:
    token: str | None
    seen: int
    stored: int
    connections: list[object] = field(default_factory=list)
    gone: bool = False
    # Not seen since the last restart.
    unsure: bool = False


class Book:
    """Who is who."""

    def __init__(self):
        self.now = 0
        self.sweep_at = SWEEP
        self.agents: dict[str, Agent] = {}
        # Every token that ever was.
        self.issued: list[str] = []

    def owner(self, token):
        return next((handle for handle, each in self.agents.items() if each.token == token), None)

    def online(self, agent):
        if agent.connections and not agent.gone:
            return True
        return not agent.gone and agent.token is not None and self.now - agent.seen < SILENCE

    def status(self, agent):
        if not self.online(agent):
            return "offline"
        return "unknown" if agent.unsure else "online"

    def touch(self, handle):
        if handle in self.agents:
            agent = self.agents[handle]
            agent.seen, agent.gone, agent.unsure = self.now, False, False

    def claim(self, principal, handle, *, exclusive):
        """How the caller comes to the handle, or the code of the refusal."""
        old = self.agents.get(handle)
        own = principal == f"agent:{handle}"
        if exclusive and own and old is not None and old.connections:
            return "conflict"
        if old is None and any(
            other != handle and other.lower() == handle.lower() and agent.token is not None and not self.silent(agent)
            for other, agent in self.agents.items()
        ):
            return "conflict"
        if old is None:
            return "new" if len(self.agents) < MAX_AGENTS else "overloaded"
        if own:
            return "reconnect"
        if old.token is None or principal == "person" or self.silent(old):
            return "takeover"
        return "conflict"

    def silent(self, agent):
        return self.now - agent.seen >= TAKEOVER and not agent.connections

    def registered(self, handle, how, token):
        if how == "reconnect":
            agent = self.agents[handle]
        else:
            agent = self.agents[handle] = Agent(token, self.now, self.now)
            self.issued.append(token)
        agent.stored = self.now
        self.touch(handle)

    def revoked(self, handle):
        agent = self.agents[handle]
        agent.token, agent.gone = None, True
        agent.connections.clear()

    def advance(self, ms):
        until = self.now + ms
        while self.sweep_at <= until:
            self.now, self.sweep_at = self.sweep_at, self.sweep_at + SWEEP
            self.store_presence()
            for handle, agent in list(self.agents.items()):
                if not self.online(agent) and self.now - agent.seen >= RETENTION:
                    del self.agents[handle]
        self.now = until

    def store_presence(self):
        for agent in self.agents.values():
            agent.stored = agent.seen

    def restart(self, down, *, clean):
        if clean:
            self.store_presence()
        self.now += down
        self.sweep_at = self.now + SWEEP
        for agent in self.agents.values():
            agent.seen, agent.gone, agent.unsure = agent.stored, False, True
            agent.connections.clear()


class Handles(RuleBasedStateMachine):
    durability = "memory"
    book_type = Book

    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp(prefix="bsc-model-")
        limits = BrokerLimits(
            silence_ms=SILENCE, takeover_ms=TAKEOVER, agent_retention_ms=RETENTION, max_agents=MAX_AGENTS
        )
        self.house = OnDisk(self.folder, self.durability, limits=limits)
        self.book = self.book_type()

    def principal(self, token):
        """As the link door finds out; None for a token that is nobody's."""
        try:
            return identify("link", None, self.house.tokens, hash_token(LOCAL_TOKEN), auth_on=True, token=token)
        except WrongToken:
            return None

    def try_register(self, by, handle, **params):
        try:
            return self.house.call(by, "agents.register", {"agentId": handle, **params})
        except Internal:
            raise
        except BasculeError as refused:
            return refused.code

    def register_as(self, by, handle, *, exclusive):
        acting = by.removeprefix("agent:") if by.startswith("agent:") else None
        if acting is not None:
            self.book.touch(acting)
        how = self.book.claim(by, handle, exclusive=exclusive)
        answer = self.try_register(by, handle, exclusive=exclusive)
        if isinstance(answer, str):
            assert answer == how
            return
        token = answer.get("agentToken")
        assert (token is None) == (how == "reconnect") == answer.get("reconnected", False)
        assert how in ("new", "reconnect", "takeover")
        assert token is None or token not in self.book.issued
        self.book.registered(handle, how, token)

    @rule(handle=handles, by=st.sampled_from(["local", "local", "local", "person"]), exclusive=st.booleans())
    def register(self, handle, by, exclusive):
        self.register_as(by, handle, exclusive=exclusive)

    @rule(handle=handles, which=st.integers(0, 99), exclusive=st.booleans())
    def register_with_a_token(self, handle, which, exclusive):
        """The handle's own, an old one or another's."""
        if self.book.issued:
            token = self.book.issued[-1 - which % len(self.book.issued)]
            by = self.principal(token)
            assert by == (f"agent:{owner}" if (owner := self.book.owner(token)) else None)
            if by is not None:
                self.register_as(by, handle, exclusive=exclusive)

    @rule(handle=handles, exclusive=st.booleans())
    def come_back(self, handle, exclusive):
        agent = self.book.agents.get(handle)
        if agent is not None and agent.token is not None:
            assert self.principal(agent.token) == f"agent:{handle}"
            self.register_as(f"agent:{handle}", handle, exclusive=exclusive)

    @rule(handle=handles, by=st.sampled_from(["person", "person", "local", "agent:Ada"]))
    def revoke(self, handle, by):
        allowed, known = by == "person", handle in self.book.agents
        connections = list(self.book.agents[handle].connections) if known else []
        try:
            self.house.call(by, "agents.revoke", {"agentId": handle})
            code = "ok"
        except BasculeError as refused:
            code = refused.code
        assert code == ("forbidden" if not allowed else "ok" if known else "not_found")
        if code == "ok":
            assert all(each.dropped for each in connections)
            # As the door does when it closes them.
            for _ in connections:
                self.house.run(lambda: self.house.broker.agents.disconnected(handle))
            self.book.revoked(handle)

    @rule(handle=handles)
    def beat(self, handle):
        agent = self.book.agents.get(handle)
        if agent is not None and agent.token is not None:
            self.house.call(self.principal(agent.token), "agents.heartbeat", {"agentId": handle})
            self.book.touch(handle)

    @rule(handle=handles)
    def connect(self, handle):
        agent = self.book.agents.get(handle)
        if agent is not None and agent.token is not None:
            agent.connections.append(self.house.connect(handle))
            self.book.touch(handle)

    @rule(handle=handles)
    def disconnect(self, handle):
        agent = self.book.agents.get(handle)
        if agent is not None and agent.connections:
            self.house.disconnect(handle, agent.connections.pop())
            agent.gone = agent.gone or not agent.connections

    @rule(quarters=st.sampled_from([1, 80, 81, 200, 201, 240, 1_500]))
    def time_passes(self, quarters):
        self.book.advance(quarters * 250)
        self.house.advance(quarters / 4)

    @rule(clean=st.booleans(), quarters=st.sampled_from([0, 1, 100]))
    def restart(self, clean, quarters):
        self.book.restart(quarters * 250, clean=clean)
        self.house.restart(clean=clean, down_seconds=quarters / 4)

    @invariant()
    def every_token_ever_issued_means_what_the_book_says(self):
        for token in self.book.issued:
            owner = self.book.owner(token)
            assert self.principal(token) == (f"agent:{owner}" if owner else None)
        for wrong in ("", "x", LOCAL_TOKEN[:-1], "x" * 1_000):
            assert self.principal(wrong) is None
        assert self.principal(LOCAL_TOKEN) == "local"

    @invariant()
    def helpers_find_the_token_of_today_and_no_other(self):
        current = {handle: each.token for handle, each in self.book.agents.items() if each.token is not None}
        files = {paths.token_file(self.folder, handle): token for handle, token in current.items()}
        assert self.house.token_files() == files
        assert len(self.house.tokens) == len(current)

    @invariant()
    def the_list_shows_who_is_there(self):
        listed = {each["agentId"]: each["status"] for each in self.house.call("local", "agents.list")}
        assert listed == {name: self.book.status(each) for name, each in self.book.agents.items()}

    def teardown(self):
        try:
            assert self.house.call("local", "ledger.verify")["ok"]
            errors = [fields for event, fields in self.house.log if fields["level"] == "error"]
            assert errors == []
        finally:
            self.house.close()
            shutil.rmtree(self.folder)


def play(stories, *, derandomize=False, **how):
    choices = settings(
        max_examples=stories,
        stateful_step_count=50,
        deadline=None,
        database=None,
        derandomize=derandomize,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(type("Machine", (Handles,), how), settings=choices)


@pytest.mark.parametrize("durability", STORIES)
def test_handles_and_tokens_are_as_the_model_says(durability):
    play(STORIES[durability] * (20 if LONG else 1), durability=durability)


# -- a daemon that did this instead would be found out ---------------------------------------------


class OldTokensStayGood(Book):
    def owner(self, token):
        return super().owner(token) or ("Ada" if token in self.issued and "Ada" in self.agents else None)


class AnyoneMayTakeOver(Book):
    def silent(self, agent):
        return True


class NobodyMayTakeOver(Book):
    def silent(self, agent):
        return False


class ComingBackGivesANewToken(Book):
    def claim(self, principal, handle, *, exclusive):
        how = super().claim(principal, handle, exclusive=exclusive)
        return "takeover" if how == "reconnect" else how


class RevokingFreesNothing(Book):
    def revoked(self, handle):
        token = self.agents[handle].token
        super().revoked(handle)
        self.agents[handle].token = token


class AgentsAreKeptForEver(Book):
    def advance(self, ms):
        self.now += ms


class ACrashLosesTheNewest(Book):
    def restart(self, down, *, clean):
        super().restart(down, clean=clean)
        if not clean and self.agents:
            del self.agents[list(self.agents)[-1]]


@pytest.mark.parametrize("wrong", Book.__subclasses__(), ids=lambda wrong: wrong.__name__)
def test_a_daemon_that_did_otherwise_would_be_found_out(wrong):
    with pytest.raises(AssertionError):
        play(200, derandomize=True, book_type=wrong)
