"""The wrapper's end of the spool: takes request files out of the directory and asks the daemon for them.

A writer of the directory is inside the agent's sandbox; the wrapper is not. So nothing that lies there is
followed or trusted: files are opened in the directory that was made, never through a link, and act only with the
agent's own token, on the few paths that helpers use.
"""

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
import time
from typing import Any

from bascule.foundation.agreement import MAX_WAIT_MS
from bascule.local_client import choice, spool
from bascule.local_client.exits import DoorError, NotRunning, Refusal
from bascule.local_client.http import ANSWER_SECONDS, Door, call

# The directory is looked at this often: a helper waits a moment, an idle machine does not notice.
LOOK_SECONDS = 0.2
# Requests worked on at a time; a shell that writes more of them waits.
MAX_AT_ONCE = 16
# The directory's time may stand still while it changes, for as long as a tick of the file system's clock: a name that
# came after our look within the same tick would not be seen by its time. Ticks are 10 ms at the slowest.
RACY_NS = 100_000_000
# Files looked at per round: somebody who fills the directory fills their own.
MAX_PER_ROUND = 256

_TICKET = r"[A-Za-z0-9._-]{1,128}"
_QUERY = r"(\?[A-Za-z0-9=&%._+-]{0,512})?"
_NAME = re.compile(r"[0-9a-f]{32}")


def _allowed(handle: str) -> list[tuple[str, re.Pattern[str]]]:
    own = re.escape(handle)
    table = (
        ("POST", r"/replies"),
        ("GET", rf"/replies/{_TICKET}"),
        ("GET", rf"/tickets/{_TICKET}"),
        ("GET", rf"/agents/{own}/inbox(/watch)?"),
        ("POST", rf"/agents/{own}/inbox/ack"),
        ("POST", rf"/agents/{own}/heartbeat"),
        ("POST", r"/agents/[A-Za-z0-9._-]{1,64}/send"),
        ("GET", r"/agents"),
        ("GET", r"/status"),
    )
    return [(verb, re.compile(path + _QUERY)) for verb, path in table]


class Spool:
    def __init__(self, state: str, handle: str, parent: str | None = None) -> None:
        # Whatever BRIDGE_BROKER_URL says: the token is our daemon's.
        self._door = choice.own_door(state)
        self._handle = handle
        self._allowed = _allowed(handle)
        self.path = tempfile.mkdtemp(prefix="bascule-spool-", dir=parent)
        # From here on by descriptor: a directory put in this one's place is not ours.
        self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._seen = 0
        self._done: dict[str, float] = {}

    def close(self) -> None:
        os.close(self._folder)
        shutil.rmtree(self.path, ignore_errors=True)

    def put(self, name: str, data: bytes) -> str:
        """A file for the agent to read; its path."""
        spool.write(self._folder, name, data)
        return os.path.join(self.path, name)

    async def run(self) -> None:
        room = asyncio.Semaphore(MAX_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                for name in self._new():
                    await room.acquire()
                    task = group.create_task(self._serve(name))
                    task.add_done_callback(lambda _: room.release())
                await asyncio.sleep(LOOK_SECONDS)

    def _new(self) -> list[str]:
        """Names of requests that came since; files that are none are left alone."""
        changed = os.fstat(self._folder).st_mtime_ns
        if changed == self._seen:
            return []
        self._seen = changed if abs(time.time_ns() - changed) > RACY_NS else 0
        now = time.monotonic()
        self._done = {name: at for name, at in self._done.items() if now - at < 2 * spool.MAX_AGE_SECONDS}
        found = [name.removesuffix(spool.REQUEST) for name in os.listdir(self._folder) if name.endswith(spool.REQUEST)]
        if len(found) > MAX_PER_ROUND:
            self._seen = 0
        fresh = [name for name in found[:MAX_PER_ROUND] if _NAME.fullmatch(name) and name not in self._done]
        self._done.update(dict.fromkeys(fresh, now))
        return fresh

    async def _serve(self, name: str) -> None:
        try:
            data = spool.read(self._folder, name + spool.REQUEST)
            os.unlink(name + spool.REQUEST, dir_fd=self._folder)
            # Read for each request: it changes when the agent registers again.
            token = choice.stored_token(self._door, self._handle)
        except (DoorError, OSError, ValueError):
            # Also where others could have read the token: the request waits in vain, and bell and heartbeat go on.
            return
        if token is None:
            return
        try:
            request = spool.unsealed(token, name, data)
        except ValueError as fault:
            answer: dict[str, Any] = _refused(401, "unauthenticated", f"the request is refused: {fault}")
        else:
            try:
                answer = await self._asked(request, token)
            except (ValueError, OverflowError, RecursionError) as fault:
                # Whatever one request holds, the wrapper serves the next.
                answer = _refused(400, "invalid_request", f"the request cannot be passed on: {fault}")
        with contextlib.suppress(OSError):
            spool.write(self._folder, name + spool.ANSWER, spool.sealed(token, name, answer))

    async def _asked(self, request: Any, token: str) -> dict[str, Any]:
        verb, path = (request.get("verb"), request.get("path")) if isinstance(request, dict) else (None, None)
        if not isinstance(path, str) or not any(verb == each and way.fullmatch(path) for each, way in self._allowed):
            return _refused(403, "forbidden", f"{verb} {path} cannot be asked through the spool")
        if not abs(time.time() - _number(request.get("at"))) < spool.MAX_AGE_SECONDS:
            return _refused(409, "conflict", "the request is too old")
        seconds = min(max(_number(request.get("seconds")), 1.0), MAX_WAIT_MS / 1000 + ANSWER_SECONDS)
        return await asyncio.to_thread(_ask, self._door, (str(verb), path, request.get("body")), token, seconds)


def _ask(door: Door, asked: tuple[str, str, Any], token: str, seconds: float) -> dict[str, Any]:
    try:
        return {"status": 200, "body": call(door, *asked, token=token, seconds=seconds)}
    except Refusal as fault:
        error = {"code": fault.code, "message": fault.message, "hint": fault.hint, "details": fault.details}
        return {"status": fault.status, "body": error, "retryAfter": fault.retry_after}
    except NotRunning:
        return {"fault": "not running", "where": door.where}
    except DoorError as fault:
        return {"fault": fault.message}


def _refused(status: int, code: str, message: str) -> dict[str, Any]:
    return {"status": status, "body": {"code": code, "message": message}}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
