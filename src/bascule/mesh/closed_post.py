"""The post of a node that has none: what is said waits in the outbox."""

from bascule.foundation.deferred import Deferred
from bascule.mesh.ports import Board, Fault, NotMailed, PostState, Reader


class ClosedPost:
    state = PostState(open=False, fault=Fault.UNREACHABLE, detail="not connected yet")
    # Nothing is sent; what the server takes is known when there is one.
    max_bytes = 2 * 1024 * 1024

    async def open(self, reader: Reader) -> None:
        """It stays closed."""

    def send(self, dest: str, data: bytes) -> bool:
        return False

    def mail(self, dest: str, data: bytes) -> Deferred[None]:
        answer: Deferred[None] = Deferred()
        answer.set_exception(NotMailed(Fault.UNREACHABLE, self.state.detail))
        return answer

    def put(self, board: Board, key: str, value: bytes) -> None:
        """Put again by the engine when there is a post."""

    async def close(self) -> None:
        """There is nothing to close."""


CLOSED = ClosedPost()
