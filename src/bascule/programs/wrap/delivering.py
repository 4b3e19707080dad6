"""`--deliver payload`: the message itself, for programs that cannot fetch it."""

import contextlib
import re

import msgspec

from bascule.broker.protocol import InboxItem
from bascule.foundation.text import typeable, typeable_line
from bascule.programs.helpers.terminal import describe_sender, payload_text
from bascule.programs.wrap.broker_link import BrokerLink
from bascule.programs.wrap.profiles import Profile
from bascule.programs.wrap.session import Session
from bascule.programs.wrap.spool import Spool
from bascule.terminals.text import as_bytes, pasted

# Programs hold a paste in an input box; of a longer message only the place is typed.
MAX_TYPED_BYTES = 128 * 1024


def introduced(item: InboxItem, handle: str, *, auto_reply: bool) -> str:
    """The message under lines that say whose it is; nothing in it can stand above them."""
    lines = [f"message for {handle} from {describe_sender(item.from_)}", f"ticket: {item.ticket_id}"]
    if item.expect_reply and auto_reply:
        lines.append("your next answer is sent back as the reply")
    elif item.expect_reply:
        lines.append(f'reply with: bridge-reply {item.ticket_id} "your answer"')
    else:
        lines.append("no reply is expected")
    header = "\n".join(f"[bascule] {typeable_line(line)}" for line in lines)
    return f"{header}\n{'-' * 40}\n{payload_text(item.payload)}"


def typed_text(item: InboxItem, handle: str, profile: Profile, *, auto_reply: bool = False) -> str:
    """What is put into the program's input: for a shell or a REPL the payload alone, or it would read our lines too."""
    body = introduced(item, handle, auto_reply=auto_reply) if profile.header else payload_text(item.payload)
    # A newline at the end would be an empty line, or an Enter of its own.
    return re.sub(r"\s+\Z", "", typeable(body))


class Delivery:
    """Types one message at a time, each under a lease until the program has it."""

    def __init__(
        self,
        post: BrokerLink,
        session: Session,
        profile: Profile,
        *,
        spool: Spool | None = None,
        auto_reply: bool = False,
    ) -> None:
        self._post = post
        self._session = session
        self._profile = profile
        # Where messages are put that are too long to be typed.
        self._spool = spool
        self._auto_reply = auto_reply

    async def deliver(self) -> tuple[InboxItem, str] | None:
        """The message, and what was typed of it; None when the program cannot take one now."""
        if not self._session.output.takes_pastes:
            # Each line of it would be read as a line of its own: only the bell is typed.
            return None
        item = await self._post.take()
        if item is None:
            return None
        body = typed_text(item, self._post.handle, self._profile, auto_reply=self._auto_reply)
        if len(as_bytes(body)) > MAX_TYPED_BYTES:
            body = self._put_aside(item)
        if not self._session.output.takes_pastes:
            # It began to do something else while we asked. The lease brings the message back.
            return None
        await self._session.type(pasted(body))
        await self._post.ack(item.ticket_id)
        return item, body

    def _put_aside(self, item: InboxItem) -> str:
        whole = payload_text(item.payload)
        notice = f"(the message has {len(whole)} characters, too many to type: `bridgectl show {item.ticket_id}`)"
        if self._spool is not None:
            # A full disk, or a directory that the agent has removed, leaves the other way.
            with contextlib.suppress(OSError):
                where = self._spool.put(f"message-{item.ticket_id}.txt", as_bytes(whole))
                notice = f"(the message has {len(whole)} characters; it is in {where})"
        short = msgspec.structs.replace(item, payload=notice)
        return typed_text(short, self._post.handle, self._profile, auto_reply=self._auto_reply)
