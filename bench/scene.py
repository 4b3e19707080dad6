"""What every contender is asked: the names, the payload, and how long anybody waits."""

from collections.abc import Awaitable, Callable

PAYLOAD_BYTES = 1024
PAYLOAD = "x" * PAYLOAD_BYTES
RECEIVER = "Jerry"
# The node of a mesh on which the receiver of a remote ask is.
FAR = "far"
# Nothing here takes a second; what does is stuck.
ANSWER_SECONDS = 30.0

# One ask, until its answer is there.
Ask = Callable[[], Awaitable[None]]
# Address of the server and the asker's own name.
Asker = Callable[[str, str], Awaitable[Ask]]
# Returns once it would answer.
Receiver = Callable[[str], Awaitable[None]]
