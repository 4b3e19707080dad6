"""Answers to keyed calls whose client has not confirmed them yet."""

from collections import OrderedDict

# Answers kept for calls that come again. A client has a handful open when its connection breaks.
MAX_KEPT = 512
# A larger answer is not kept: the call is carried out again, and its id keeps it from acting twice.
MAX_KEPT_BYTES = 64 * 1024


class KeptAnswers:
    """By agent and call; the oldest goes first."""

    def __init__(self, most: int = MAX_KEPT, most_bytes: int = MAX_KEPT_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._answers: OrderedDict[tuple[str, str], bytes] = OrderedDict()

    def put(self, handle: str, call: str, answer: bytes) -> None:
        if len(answer) <= self._most_bytes:
            self._answers[handle, call] = answer
            if len(self._answers) > self._most:
                self._answers.popitem(last=False)

    def get(self, handle: str, call: str) -> bytes | None:
        return self._answers.get((handle, call))

    def drop(self, handle: str, call: str) -> None:
        self._answers.pop((handle, call), None)
