"""Who a client is to the daemon: nobody in particular, an agent by its stored token, or one it registers."""

from collections.abc import Iterable
from typing import Any

from bascule import __version__
from bascule.broker.protocol import AgentsListParams, AgentView, RegisterParams, RegisterResult
from bascule.client.durations import Duration, milliseconds
from bascule.client.faults import ConnectionLost, OutcomeUnknown
from bascule.client.steps import Program, Request
from bascule.foundation import paths
from bascule.foundation.agreement import PROTOCOL_VERSION, is_agent_id
from bascule.foundation.errors import BasculeError, InvalidRequest, Unauthenticated, VersionMismatch
from bascule.kernel.call import Principal, agent_of
from bascule.kernel.link_protocol import HelloParams, HelloResult, mismatch_sentence

# The daemon answers a hello from memory; one that does not is not running as it should.
HELLO_SECONDS = 5.0


class Identity:
    """The handle, its token, and how a connection comes to act as it."""

    def __init__(
        self, state: str, agent_id: str | None, token: str | None, registration: RegisterParams | None
    ) -> None:
        if agent_id is not None and not is_agent_id(agent_id):
            raise InvalidRequest(f"{agent_id!r} is not a handle", hint="1 to 64 of A-Z a-z 0-9 . _ -")
        self._state = state
        self._agent_id = agent_id
        self._token = token
        # What to register with, again if the daemon has forgotten us.
        self._registration = registration
        self._known = False
        # As the daemon says it; set by every hello.
        self.principal = Principal("")

    @property
    def agent_id(self) -> str | None:
        """The handle this client acts as, as the daemon says."""
        return agent_of(self.principal)

    def introduce(self) -> Program[None]:
        """The first frames of every connection."""
        if self._known:
            yield from self._come_back()
        elif self._registration is not None:
            yield from self._claim(self._registration)
        else:
            yield from self._present(self._token or self._stored())
        self._known = True

    def become(self, registration: RegisterParams) -> Program[RegisterResult]:
        """Act as another agent from now on; if that is refused, stay who we are."""
        before = (self._agent_id, self._token, self._registration)
        try:
            if registration.agent_id != self._agent_id:
                self._token = None
            self._agent_id = registration.agent_id
            return (yield from self._claim(registration))
        except ConnectionLost as lost:
            self._agent_id, self._token, self._registration = before
            raise OutcomeUnknown(
                f"the daemon went away while {registration.agent_id} was being registered",
                hint="register it again: if it worked, its token is stored and is used",
            ) from lost
        except BasculeError:
            self._agent_id, self._token, self._registration = before
            yield from self._hello(self._token)
            raise

    def _claim(self, registration: RegisterParams) -> Program[RegisterResult]:
        stored = None if self._token else _stored_token(self._state, registration.agent_id)
        yield from self._present(self._token or stored, stale_ok=stored is not None)
        result: RegisterResult = yield Request("agents.register", registration, RegisterResult)
        if result.agent_token is not None:
            yield from self._present(result.agent_token)
        self._agent_id, self._registration = registration.agent_id, registration
        return result

    def _come_back(self) -> Program[None]:
        if self._registration is None:
            yield from self._hello(self._token)
            return
        yield from self._hello(None)
        try:
            yield from self._hello(self._token)
        except Unauthenticated:
            # With durability `memory` a restarted daemon knows nobody, and who registered here registers again.
            # One that knows the handle has revoked the token or given the handle away: that is not ours to undo.
            agents: list[AgentView] = yield Request("agents.list", AgentsListParams(), list[AgentView])
            if any(agent.agent_id == self._registration.agent_id for agent in agents):
                raise
            self._token = None
            yield from self._claim(self._registration)

    def _present(self, token: str | None, *, stale_ok: bool = False) -> Program[None]:
        if stale_ok:
            # A wrong token ends a connection that is nobody's yet.
            yield from self._hello(None)
        try:
            yield from self._hello(token)
        except Unauthenticated:
            # A file of an older life; without its token the daemon says whether the handle is free. A token that
            # somebody gave us is never left out: that would be another identity than they asked for.
            if not stale_ok:
                raise
            token = None
        self._token = token

    def _hello(self, token: str | None) -> Program[None]:
        params = HelloParams(protocol=PROTOCOL_VERSION, version=__version__, token=token)
        result: HelloResult = yield Request("hello", params, HelloResult, within=HELLO_SECONDS)
        if result.protocol != PROTOCOL_VERSION:
            raise VersionMismatch(mismatch_sentence(__version__, result.version))
        self.principal = Principal(result.principal)

    def _stored(self) -> str | None:
        if self._agent_id is None:
            return None
        token = _stored_token(self._state, self._agent_id)
        if token is None:
            raise Unauthenticated(
                f"there is no token of {self._agent_id} in {self._state}",
                hint=f"connect with register=True, or register it with `bridge-register --agent {self._agent_id}`",
            )
        return token


def registration(
    agent_id: str,
    type_: str,
    metadata: dict[str, Any] | None,
    heartbeat: Duration | None,
    *,
    exclusive: bool,
    groups: Iterable[str] | None = None,
) -> RegisterParams:
    return RegisterParams(
        agent_id=agent_id,
        type=type_,
        metadata=metadata or {},
        heartbeat_interval_ms=milliseconds(heartbeat),
        exclusive=exclusive,
        groups=None if groups is None else list(groups),
    )


def _stored_token(state: str, agent_id: str) -> str | None:
    """What the daemon wrote when the handle was registered."""
    if not is_agent_id(agent_id):
        raise InvalidRequest(f"{agent_id!r} is not a handle", hint="1 to 64 of A-Z a-z 0-9 . _ -")
    try:
        return paths.read_private_file(paths.token_file(state, agent_id)).strip() or None
    except FileNotFoundError:
        return None
    except paths.UnsafePlace as error:
        raise Unauthenticated(str(error)) from error
