"""`--auto-reply`: the program's answer to a message that was typed for it, found on its screen and sent back."""

import asyncio

from bascule.broker.protocol import InboxItem
from bascule.programs.wrap.answers import answer, has_printed
from bascule.programs.wrap.broker_link import BrokerLink
from bascule.programs.wrap.notifier import LOOK_SECONDS, Obstacle
from bascule.programs.wrap.profiles import Profile
from bascule.programs.wrap.screen import Transcript
from bascule.programs.wrap.session import Session

# Nothing came at all: the program swallowed the message, or works without a sign. The ticket's own deadline is the end.
MAX_ANSWER_SECONDS = 3600.0


class Answering:
    def __init__(
        self,
        post: BrokerLink,
        session: Session,
        transcript: Transcript,
        profile: Profile,
        obstacle: Obstacle,
        *,
        sentinel: str | None,
    ) -> None:
        self._post = post
        self._session = session
        self._transcript = transcript
        self._profile = profile
        self._obstacle = obstacle
        self._sentinel = sentinel

    async def before(self) -> list[str]:
        return await self._transcript.fresh()

    async def send(self, item: InboxItem, typed: str, before: list[str]) -> None:
        """Wait for the end of the answer, and reply with what is new on the screen."""
        if not item.expect_reply:
            return
        text = await self._wait_until_idle(before, typed)
        metadata = {"status": "completed", "by": "auto-reply"}
        if self._transcript.cut:
            metadata["truncated"] = "the beginning of a long answer is missing"
        await self._post.reply(item.ticket_id, text, metadata)

    async def _wait_until_idle(self, before: list[str], typed: str) -> str:
        """The answer is over when the program is quiet, and ready for the next line or has written the sentinel."""
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_ANSWER_SECONDS
        looked = -1
        text = ""
        while loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)
            quiet = loop.time() - self._session.output.last_output
            if quiet < self._profile.answer_quiet_seconds and not self._sentinel:
                continue
            if looked != self._session.output.count:
                looked = self._session.output.count
                after = await self._transcript.lines()
                text = answer(before, after, typed, self._profile, self._sentinel)
                if self._sentinel and has_printed(before, after, typed, self._sentinel):
                    return text
            if quiet >= self._profile.answer_quiet_seconds and self._obstacle() is None and not self._sentinel:
                return text
        return text
