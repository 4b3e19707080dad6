"""Sessions of the 2025 revisions: whose they are, how many an agent has, and which of them want to hear news.

The SDK keeps the sessions themselves and ends idle ones. It knows no owner but for the one it compares, so a client
that opens one per call would use up everybody's; here each agent has its own few, and the longest unused one goes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser

from bascule.kernel.call import Principal, agent_of
from bascule.kernel.gate import Gate
from bascule.surfaces.mcp.news import News
from bascule.surfaces.mcp.tool_lists import ToolLists

# Where calls of `/mcp` come in, for the log.
DOOR = "mcp"
# More clients than one agent has; each is a task and a few kilobytes for half an hour.
MAX_SESSIONS_PER_AGENT = 32

Notify = Callable[[], Awaitable[None]]


class Session:
    def __init__(self, session_id: str, principal: Principal, user: AuthenticatedUser) -> None:
        self.session_id = session_id
        self.principal = principal
        self.user = user
        # Requests being served: a session in use is not the one to end.
        self.requests = 0
        self.listening = False
        self.notify: Notify | None = None
        self.news: News | None = None
        self.notifying = False
        # Sends that the list of tools has changed; there once the client has listed.
        self.notify_tools: Notify | None = None
        self.unfollow: Callable[[], None] | None = None


class Sessions:
    def __init__(
        self,
        gate: Gate | None = None,
        *,
        per_agent: int = MAX_SESSIONS_PER_AGENT,
        on_left: Callable[[str], None] | None = None,
    ) -> None:
        self._gate = gate
        self._per_agent = per_agent
        # Called with the handle when a client has ended the last session of an agent.
        self._on_left = on_left
        self._of: dict[Principal, OrderedDict[str, Session]] = {}
        self.group: asyncio.TaskGroup | None = None
        self.lists: ToolLists | None = None

    def find(self, principal: Principal, session_id: str | None) -> Session | None:
        """The session, if it is this principal's; from now on the one used last."""
        mine = self._of.get(principal)
        if mine is None or session_id is None or session_id not in mine:
            return None
        mine.move_to_end(session_id)
        return mine[session_id]

    def opened(self, session: Session) -> Session | None:
        """Keep a new session; the answer is one that is over the limit and has to end."""
        mine = self._of.setdefault(session.principal, OrderedDict())
        mine[session.session_id] = session
        if len(mine) <= self._per_agent:
            return None
        return next((each for each in mine.values() if not each.requests), next(iter(mine.values())))

    def forget(self, session: Session) -> None:
        session.notify = session.notify_tools = None
        self._follow(session)
        mine = self._of.get(session.principal, OrderedDict())
        mine.pop(session.session_id, None)
        if not mine and self._of.pop(session.principal, None) is not None and self._on_left is not None:
            self._on_left(agent_of(session.principal) or "")

    def subscribe(self, session: Session, notify: Notify | None) -> None:
        """`notify` sends the news over the session; None ends the subscription."""
        session.notify = notify
        self._follow(session)

    def set_listening(self, session: Session, *, on: bool) -> None:
        """Whether a GET stands open that could carry the news: without one nothing is followed."""
        session.listening = on
        self._follow(session)

    def follow_tools(self, session: Session, notify: Notify) -> None:
        """`notify` says over the session that its list of tools has changed."""
        session.notify_tools = notify
        self._follow(session)

    def _follow_tools(self, session: Session) -> None:
        wanted = session.listening and session.notify_tools is not None
        if wanted and session.unfollow is None and self.lists is not None:
            session.unfollow = self.lists.follow(session.principal, lambda: self._start_notify_tools(session))
        elif not wanted and session.unfollow is not None:
            session.unfollow()
            session.unfollow = None

    def _start_notify_tools(self, session: Session) -> None:
        # A person accepts a policy now and then: these cannot pile up.
        if self.group is not None and session.notify_tools is not None:
            self.group.create_task(_call(session.notify_tools))

    def _follow(self, session: Session) -> None:
        self._follow_tools(session)
        wanted = session.listening and session.notify is not None
        if wanted and session.news is None and self._gate is not None:
            session.news = News(self._gate, session.principal, lambda: self._start_notify(session), door=DOOR)
        elif not wanted and session.news is not None:
            session.news.close()
            session.news = None

    def _start_notify(self, session: Session) -> None:
        # One at a time: a client that does not read would pile them up.
        if self.group is not None and session.notify is not None and not session.notifying:
            session.notifying = True
            self.group.create_task(self._send(session, session.notify))

    async def _send(self, session: Session, notify: Notify) -> None:
        try:
            await notify()
        finally:
            session.notifying = False


async def _call(notify: Notify) -> None:
    await notify()
