"""What happens beside person and program while the program runs: heartbeats, bells, deliveries, the spool."""

import argparse
import asyncio

from bascule.broker.protocol import InboxWatchResult
from bascule.programs.wrap.answering import Answering
from bascule.programs.wrap.broker_link import BrokerLink
from bascule.programs.wrap.delivering import Delivery
from bascule.programs.wrap.notifier import Notifier, Rung
from bascule.programs.wrap.profiles import Profile
from bascule.programs.wrap.readiness import reason_to_wait
from bascule.programs.wrap.session import Session
from bascule.programs.wrap.spool import Spool
from bascule.programs.wrap.turn_state import TurnState
from bascule.terminals import text


class Supervisor:
    def __init__(
        self,
        session: Session,
        post: BrokerLink,
        profile: Profile,
        *,
        turns: TurnState,
        spool: Spool | None,
        options: argparse.Namespace,
    ) -> None:
        self._session = session
        self._post = post
        self._profile = profile
        self._turns = turns
        self._spool = spool
        self._delivery: Delivery | None = None
        self._answering: Answering | None = None
        if options.deliver == "payload":
            self._delivery = Delivery(post, session, profile, spool=spool, auto_reply=options.auto_reply)
        if session.transcript is not None:
            self._answering = Answering(
                post, session, session.transcript, profile, self.obstacle, sentinel=options.sentinel
            )

    @property
    def handle(self) -> str:
        return self._post.handle

    async def run(self, *, joined: bool) -> None:
        if not joined:
            await self._post.join_sometime()
        self._turns.open()
        notifier = Notifier(self._post, self.obstacle, self._ring, hooked=lambda: self._turns.now() is not None)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._post.beat())
            group.create_task(notifier.run())
            if self._spool is not None:
                group.create_task(self._spool.run())

    def obstacle(self) -> str | None:
        return reason_to_wait(self._session.seen(self._turns.now()), self._profile)

    async def _ring(self, seen: InboxWatchResult) -> Rung:
        if self._delivery is not None:
            before = await self._answering.before() if self._answering is not None else []
            delivered = await self._delivery.deliver()
            if delivered is not None:
                if self._answering is not None:
                    await self._answering.send(*delivered, before)
                return Rung.DELIVERED
        line = self._profile.bell_line(self._post.bell_line(seen))
        # As a paste where the program takes them: its completions and shortcuts leave a paste alone.
        takes_pastes = self._session.output.takes_pastes
        await self._session.type(text.pasted(line) if takes_pastes else text.as_bytes(line))
        return Rung.RUNG
