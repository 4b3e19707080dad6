"""What happens beside person and program while the program runs: heartbeats, bells, deliveries, the spool."""

import argparse
import asyncio

from bascule.broker.protocol import InboxWatchResult
from bascule.terminals import text
from bascule.wrap.answering import Answering
from bascule.wrap.bellman import Bellman, Rung
from bascule.wrap.delivering import Delivery
from bascule.wrap.moments import reason_to_wait
from bascule.wrap.post import Post
from bascule.wrap.profiles import Profile
from bascule.wrap.session import Session
from bascule.wrap.spool import Spool
from bascule.wrap.turns import Turns


class Served:
    def __init__(
        self,
        session: Session,
        post: Post,
        profile: Profile,
        *,
        turns: Turns,
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
        bellman = Bellman(self._post, self.obstacle, self._ring, hooked=lambda: self._turns.now() is not None)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._post.beat())
            group.create_task(bellman.run())
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
