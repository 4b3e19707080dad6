"""Clients that write to a daemon until it can no longer answer, and remember every acknowledgement they got."""

import contextlib
import itertools
import os
import threading
from typing import Any

from wires import LinkWire

from bascule.foundation import paths
from patience import PATIENCE

# Requests on their way at once, per client: one group commit then holds several of each kind.
WINDOW = 8


class Book:
    """What was acknowledged, by everybody, over all lives of the daemon."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.payloads: dict[str, str] = {}
        self.acked: set[str] = set()
        self.replies: dict[str, str] = {}
        # "on", "going" while the power is being cut, "off".
        self.power = "on"
        # Answered with anything but a success or 507; there must be none.
        self.strange: list[Any] = []
        # How many messages and tokens were looked for before.
        self._seen = (0, 0)

    @property
    def count(self) -> int:
        return len(self.tokens) + len(self.payloads) + len(self.acked) + len(self.replies)

    def counts(self, sent: str) -> bool:
        """Whether a success that is heard now must last; `sent`: the power when it was asked for.

        With the power a machine is gone; ours goes on, and its kernel has a fault that no power cut has: an fsync into
        new blocks that is under way while ext4 shuts down may answer with success, and its bytes are not there
        afterwards. What was asked for after the cut has no such excuse.
        """
        return self.power == "on" or sent == "off"

    def missing(self, state: str, link_socket: str, *, of_last_life: bool = False) -> list[str]:
        """A sentence for each acknowledged effect that the daemon does not show."""
        skip = self._seen if of_last_life else (0, 0)
        self._seen = (len(self.payloads), len(self.tokens))
        payloads = dict(itertools.islice(self.payloads.items(), skip[0], None))
        tokens = dict(itertools.islice(self.tokens.items(), skip[1], None))
        missing = []
        with LinkWire(link_socket) as link:
            link.hello()
            names = list(payloads)
            shown: dict[str, dict[str, Any]] = {}
            for start in range(0, len(names), 200):
                page = names[start : start + 200]
                asked = [(name, link.request("tickets.show", {"ticketId": name})) for name in page]
                shown |= {name: link.answer(id_).get("result", {}) for name, id_ in asked}
        for name, payload in payloads.items():
            ticket = shown[name]
            if ticket.get("payload") != payload:
                missing.append(f"message {name}: {ticket}")
            elif name in self.replies and [each["payload"] for each in ticket.get("replies", ())] != [
                self.replies[name]
            ]:
                missing.append(f"reply to {name}: {ticket}")
            elif name in self.acked and ticket["status"] == "pending":
                missing.append(f"acknowledgement of {name}: {ticket}")
        for handle, token in tokens.items():
            with LinkWire(link_socket) as link:
                if "result" not in link.answer(link.request("hello", {"protocol": 1, "version": "t", "token": token})):
                    missing.append(f"token of {handle}")
            with contextlib.suppress(FileNotFoundError), open(paths.token_file(state, handle)) as file:
                if file.read().strip() == token:
                    continue
            missing.append(f"token file of {handle}")
        return missing


class Writers:
    """Threads, each with an agent of its own: register, send, acknowledge, reply, and again."""

    def __init__(self, link_socket: str, book: Book, life: int, clients: int = 3) -> None:
        self._socket = link_socket
        self._book = book
        self._goal = threading.Condition()
        self._threads = [threading.Thread(target=self._run, args=(f"a{life}-{each}",)) for each in range(clients)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int, seconds: float = PATIENCE) -> None:
        with self._goal:
            self._goal.wait_for(lambda: self._book.count >= count or not self._alive(), seconds)
        assert self._book.count >= count, f"only {self._book.count} of {count} acknowledged"

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not self._alive()

    def _alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, handle: str) -> None:
        # Whatever ends the connection ends the client: what it was told before that is in the book.
        with contextlib.suppress(OSError, AssertionError), LinkWire(self._socket) as local:
            local.hello()
            sent = self._book.power
            token = local.call("agents.register", {"agentId": handle})["agentToken"]
            if self._book.counts(sent):
                self._book.tokens[handle] = token
            with LinkWire(self._socket) as agent:
                agent.hello(token)
                number = 0
                while self._round(local, agent, handle, number):
                    number += 1
        with self._goal:
            self._goal.notify_all()

    def _round(self, local: LinkWire, agent: LinkWire, handle: str, number: int) -> bool:
        book = self._book
        names = [f"{handle}.{number}.{each}" for each in range(WINDOW)]
        # Some messages span pages of the database, so that a commit is more than one page.
        payloads = {name: f"{name} {os.urandom(20).hex()}{'x' * (len(name) % 3 * 3_000)}" for name in names}
        power = book.power
        sent = [
            (name, local.request("messages.send", {"agentId": handle, "payload": payloads[name], "ticketId": name}))
            for name in names
        ]
        for name, id_ in sent:
            if self._acknowledged(local.answer(id_)) and book.counts(power):
                book.payloads[name] = payloads[name]
        taken = agent.call("inbox.take", {"agentId": handle, "waitMs": 0, "max": WINDOW})
        if taken is None:
            return False
        half = WINDOW // 2
        power = book.power
        names = [message["ticketId"] for message in taken["messages"]]
        acks = [(name, agent.request("inbox.ack", {"agentId": handle, "ticketIds": [name]})) for name in names[:half]]
        replies = {name: f"answer to {name} {os.urandom(8).hex()}" for name in names[half:]}
        posts = [
            (name, agent.request("replies.post", {"ticketId": name, "payload": text})) for name, text in replies.items()
        ]
        went_well = True
        for name, id_ in acks:
            went_well &= (stored := self._acknowledged(agent.answer(id_)))
            if stored and book.counts(power):
                book.acked.add(name)
        for name, id_ in posts:
            went_well &= (stored := self._acknowledged(agent.answer(id_)))
            if stored and book.counts(power):
                book.replies[name] = replies[name]
        with self._goal:
            self._goal.notify_all()
        return went_well

    def _acknowledged(self, answer: dict[str, Any]) -> bool:
        if "result" in answer:
            return True
        if answer["error"]["data"]["code"] != "storage_full":
            self._book.strange.append(answer["error"])
        return False
