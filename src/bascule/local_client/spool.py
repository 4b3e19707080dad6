"""The way out of a shell without sockets: request files in a directory that `bridge-wrap` looks after.

The wrapper runs outside the agent's sandbox and the directory lies where the sandbox lets files be written
(`BRIDGE_SPOOL`). A request is one file: a line with an HMAC under the agent's token, then JSON. The token itself is
never written there. The answer is a file of the same form. Names are drawn by lot and bound by the HMAC, so that one
request cannot be passed off as another.
"""

from __future__ import annotations

import os
import time

from bascule.local_client.exits import BadAnswer, ConnectionLost, NotRunning, Refusal
from bascule.local_client.values import decode, encode

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any

REQUEST, ANSWER = ".req", ".ans"
# A payload of 1 MiB whose every byte is escaped, and the rest of the request.
MAX_FILE_BYTES = 8 * 1024 * 1024
# A request is answered within seconds of being written, or its writer is gone.
MAX_AGE_SECONDS = 60.0
# How often the answer is looked for; the wrapper looks at its own pace.
_LOOK_SECONDS = 0.03
_MAC_CHARS = 64
_PURPOSE = b"bascule-spool-1\n"
_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def directory() -> str | None:
    """Where requests go, when this shell was told."""
    path = os.environ.get("BRIDGE_SPOOL")
    return path if path and os.path.isdir(path) else None


def sealed(token: str, name: str, value: Any) -> bytes:
    body = encode(value)
    return _mac(token, name, body) + b"\n" + body


def unsealed(token: str, name: str, data: bytes) -> Any:
    """The value, if its writer has the token; anything else is a ValueError."""
    import hmac  # noqa: PLC0415 - only where there are no sockets

    mac, _, body = data.partition(b"\n")
    if len(mac) != _MAC_CHARS or not hmac.compare_digest(mac, _mac(token, name, body)):
        raise ValueError("it was not written with the agent's token")
    return decode(body)


def _mac(token: str, name: str, body: bytes) -> bytes:
    import hmac  # noqa: PLC0415 - only where there are no sockets

    return hmac.new(token.encode(), _PURPOSE + name.encode() + b"\n" + body, "sha256").hexdigest().encode()


def write(folder: int, name: str, data: bytes) -> None:
    """A whole file at once, in the directory that is open as `folder`; nothing that lies there is written through."""
    temporary = f".{os.urandom(8).hex()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=folder)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def read(folder: int, name: str) -> bytes:
    """A plain file of ours; a link, a pipe, somebody else's file or one that is too large is a ValueError."""
    import stat  # noqa: PLC0415 - only where there are no sockets

    try:
        descriptor = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise ValueError(f"it cannot be read: {fault.strerror}") from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid():
            raise ValueError("it is not a plain file of this user")
        if facts.st_size > MAX_FILE_BYTES:
            raise ValueError(f"it is larger than {MAX_FILE_BYTES} bytes")
        pieces = []
        left = MAX_FILE_BYTES
        while left and (piece := os.read(descriptor, min(left, 256 * 1024))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def call(path: str, verb: str, where: str, body: Any, *, token: str, seconds: float) -> Any:
    """As `local_client.http.call`, through the directory `path`."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name = os.urandom(16).hex()
        request = {"verb": verb, "path": where, "body": body, "at": time.time(), "seconds": seconds}
        write(folder, name + REQUEST, sealed(token, name, request))
        return _answer(_awaited(folder, name, token, seconds))
    finally:
        os.close(folder)


def _awaited(folder: int, name: str, token: str, seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            data = read(folder, name + ANSWER)
        except FileNotFoundError:
            pass
        else:
            os.unlink(name + ANSWER, dir_fd=folder)
            try:
                return unsealed(token, name, data)
            except ValueError as fault:
                raise BadAnswer(f"the answer in the spool is not bridge-wrap's: {fault}") from None
        if time.monotonic() > deadline:
            _take_back(folder, name)
            raise ConnectionLost(
                "bridge-wrap did not answer through the spool; whether it acted is unknown",
                "is the wrapper of this session still running? BRIDGE_SPOOL names its directory",
            )
        time.sleep(_LOOK_SECONDS)


def _take_back(folder: int, name: str) -> None:
    try:
        os.unlink(name + REQUEST, dir_fd=folder)
    except OSError:
        # Taken; the answer finds nobody.
        return


def _answer(answer: Any) -> Any:
    if not isinstance(answer, dict):
        raise BadAnswer("the answer in the spool is not an object")
    if answer.get("fault") == "not running":
        raise NotRunning(str(answer.get("where")))
    if answer.get("fault"):
        raise ConnectionLost(str(answer["fault"]))
    status = answer.get("status")
    if not isinstance(status, int):
        raise BadAnswer("the answer in the spool has no status")
    if status >= 300:
        error = answer.get("body")
        retry_after = answer.get("retryAfter")
        raise Refusal(status, error if isinstance(error, dict) else {}, retry_after)
    return answer.get("body")
