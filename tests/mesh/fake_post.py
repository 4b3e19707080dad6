"""A post in memory that does to letters whatever a test, or chance, wants: the bus of many houses."""

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from bascule.foundation.deferred import Deferred
from bascule.mesh.ports import Board, Fault, NotMailed, PostState, Reader


@dataclass
class Letter:
    dest: str
    src: str
    data: bytes
    # Of the mailbox; None for one that goes directly.
    number: int | None = None


@dataclass
class Bus:
    """What NATS is between nodes. Nothing moves by itself: whoever has the bus brings what is `moving`."""

    chances: Random | None = None
    # Of letters that go directly.
    drop: float = 0.0
    double: float = 0.0
    posts: dict[str, "FakePost"] = field(default_factory=dict)
    # Letters and board values on their way, in the order they were given.
    moving: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    mailboxes: dict[str, list[Letter]] = field(default_factory=dict)
    boards: dict[tuple[Board, str], bytes] = field(default_factory=dict)
    creation: int = 1
    numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    # The server is away: nothing is taken and nothing is brought.
    down: bool = False
    # Everything that was ever given to it, for tests that look or send it again.
    letters: list[Letter] = field(default_factory=list)
    # By their SHA-256: who made them, and for whom.
    made: dict[str, tuple[str, str]] = field(default_factory=dict)

    def _chance(self, probability: float) -> bool:
        return self.chances is not None and self.chances.random() < probability

    def _note(self, letter: Letter) -> None:
        self.letters.append(letter)
        self.made[hashlib.sha256(letter.data).hexdigest()] = (letter.src, letter.dest)

    def send(self, letter: Letter) -> None:
        self._note(letter)
        if self._chance(self.drop):
            return
        for _ in range(2 if self._chance(self.double) else 1):
            self.moving.append((letter.dest, lambda: self._bring(letter)))

    def mail(self, dest: str, src: str, data: bytes) -> None:
        letter = Letter(dest, src, data, next(self.numbers))
        self._note(letter)
        self.put_into_mailbox(letter)

    def put_into_mailbox(self, letter: Letter) -> None:
        self.mailboxes.setdefault(letter.dest, []).append(letter)
        self.moving.append((letter.dest, lambda: self._bring(letter)))

    def slip_in(self, letter: Letter, *, mailed: bool) -> None:
        """As somebody does who can write to the server: who it says made it did not, or not now, or not for whom it
        goes to."""
        if mailed:
            self.put_into_mailbox(Letter(letter.dest, letter.src, letter.data, next(self.numbers)))
        else:
            direct = Letter(letter.dest, letter.src, letter.data)
            self.moving.append((letter.dest, lambda: self._bring(direct)))

    def _bring(self, letter: Letter) -> None:
        post = self.posts.get(letter.dest)
        if post is None or post.reader is None:
            return
        if letter.number is None:
            post.reader.live(letter.src, letter.data)
        elif letter in self.mailboxes.get(letter.dest, ()):
            post.reader.mailed(letter.src, letter.data, letter.number)

    def put(self, board: Board, key: str, value: bytes) -> None:
        self.boards[board, key] = value
        for name in list(self.posts):
            self.moving.append((name, lambda name=name: self._show(name, board, key)))

    def _show(self, name: str, board: Board, key: str) -> None:
        """Whatever is there now: a watcher never sees an older value after a newer one."""
        post, value = self.posts.get(name), self.boards.get((board, key))
        if post is not None and post.reader is not None and value is not None:
            post.reader.posted(board, key, value, 0)

    def wipe(self) -> None:
        """All storage of NATS is gone; nodes find an empty stream of another creation, and put their values again."""
        self.mailboxes.clear()
        self.boards.clear()
        self.creation += 1


class FakePost:
    max_bytes = 2 * 1024 * 1024

    def __init__(self, bus: Bus, node: str) -> None:
        self.bus = bus
        self.node = node
        self.reader: Reader | None = None
        self.state = PostState(open=False, fault=Fault.UNREACHABLE)
        self._values: dict[tuple[Board, str], bytes] = {}

    async def open(self, reader: Reader) -> None:
        self.open_now(reader)

    def open_now(self, reader: Reader) -> None:
        self.reader = reader
        self.bus.posts[self.node] = self
        self.connect()

    def connect(self) -> None:
        """For the first time, or after a pause: what is in the mailbox behind the cursor comes."""
        if self.reader is None or self.bus.down:
            return
        self.state = PostState(open=True)
        read = self.reader.opened(str(self.bus.creation))
        for letter in self.bus.mailboxes.get(self.node, ()):
            if letter.number is not None and letter.number > read:
                self.bus.moving.append((self.node, lambda letter=letter: self.bus._bring(letter)))
        for (board, key), value in self.bus.boards.items():
            self.reader.posted(board, key, value, 0)
        for (board, key), value in self._values.items():
            self.bus.put(board, key, value)

    def disconnect(self) -> None:
        self.state = PostState(open=False, fault=Fault.UNREACHABLE)
        if self.reader is not None:
            self.reader.closed()

    def send(self, dest: str, data: bytes) -> bool:
        if not self.state.open:
            return False
        self.bus.send(Letter(dest, self.node, data))
        return True

    def mail(self, dest: str, data: bytes) -> Deferred[None]:
        answer: Deferred[None] = Deferred()
        if self.state.open:
            self.bus.mail(dest, self.node, data)
            answer.set_result(None)
        else:
            answer.set_exception(NotMailed(Fault.UNREACHABLE, "away"))
        return answer

    def put(self, board: Board, key: str, value: bytes) -> None:
        self._values[board, key] = value
        if self.state.open:
            self.bus.put(board, key, value)

    async def close(self) -> None:
        self.state = PostState(open=False)
        self.reader = None
        if self.bus.posts.get(self.node) is self:
            del self.bus.posts[self.node]
