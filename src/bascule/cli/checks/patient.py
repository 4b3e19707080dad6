"""What is looked at, with its limits, and what a check may answer."""

import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bascule import __version__
from bascule.foundation.agreement import PROTOCOL_VERSION
from bascule.local_client.exits import ConnectionLost, DoorError, Refusal, status_of
from bascule.local_client.link import LinkSocket

if TYPE_CHECKING:
    from bascule.kernel import settings as kernel_settings

# A local socket answers at once; a daemon that needs longer than this is stuck.
ANSWER_SECONDS = 5.0
# Room for the write-ahead log, a day of ledger and the log files before the daemon stops taking messages.
MIN_FREE_BYTES = 100 * 1000 * 1000
# A Python process with our packages takes some 50 MB; the same again for messages in flight.
MIN_MEMORY_BYTES = 128 * 1000 * 1000
# Every answer to a send waits for one: slower than this and people feel it.
SLOW_SYNC_SECONDS = 0.05


class Mark(StrEnum):
    OK = "ok"
    # Neither good nor bad: the daemon is not running, an optional program is there.
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


class Verdict(NamedTuple):
    """What is so, and what to do about it."""

    mark: Mark
    what: str
    fix: str = ""


def ok(what: str) -> Verdict:
    return Verdict(Mark.OK, what)


def info(what: str, fix: str = "") -> Verdict:
    return Verdict(Mark.INFO, what, fix)


def warn(what: str, fix: str) -> Verdict:
    return Verdict(Mark.WARN, what, fix)


def fail(what: str, fix: str) -> Verdict:
    return Verdict(Mark.FAIL, what, fix)


@dataclass(frozen=True, slots=True)
class Daemon:
    """What the running daemon said about itself."""

    version: str
    protocol: int
    status: dict[str, Any]
    person_is_set: bool
    # What `policy.show` says; empty from a daemon that does not know the question.
    policy: dict[str, Any] = field(default_factory=dict)


@dataclass
class Patient:
    """What the checks look at; the limits are here so that a test can set them."""

    state: str
    # None: what the running daemon says, else the settings.
    port: int | None = None
    path: str = ""
    config_dir: str | None = None
    config_file: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable
    answer_seconds: float = ANSWER_SECONDS
    min_free_bytes: int = MIN_FREE_BYTES
    min_memory_bytes: int = MIN_MEMORY_BYTES
    slow_sync_seconds: float = SLOW_SYNC_SECONDS

    @cached_property
    def daemon(self) -> Daemon | DoorError:
        try:
            return ask_daemon(self.state, self.answer_seconds)
        except DoorError as error:
            return error

    def ask(self, method: str) -> Any:
        """What the running daemon answers; empty where none runs, or where it does not know the question."""
        if not isinstance(self.daemon, Daemon):
            return {}
        try:
            with _talking(self.state, self.answer_seconds) as request:
                request("hello", {"protocol": PROTOCOL_VERSION, "version": __version__})
                return request(method, {})
        except DoorError:
            return {}

    @cached_property
    def settings(self) -> "kernel_settings.Config | kernel_settings.BadConfig | None":
        """None when nobody said where they are, or a package is missing, which is a finding of its own."""
        if self.config_dir is None:
            return None
        try:
            from bascule.daemon import config
            from bascule.kernel.settings import BadConfig
        except ImportError:
            return None
        try:
            return config.load(self.config_dir, self.environment, file=self.config_file)
        except BadConfig as error:
            return error

    @cached_property
    def nearest(self) -> Path:
        """The state directory, or the part of its path that exists already."""
        folder = Path(self.state)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return folder


class Check(NamedTuple):
    """One line of the report."""

    name: str
    look: Callable[[Patient], Verdict]


def ask_daemon(state: str, seconds: float) -> Daemon:
    with _talking(state, seconds) as request:
        hello = request("hello", {"protocol": PROTOCOL_VERSION, "version": __version__})
        status = request("daemon.status", {})
        person = request("person.status", {})
        try:
            policy = request("policy.show", {})
        except Refusal:
            policy = {}
    return Daemon(
        version=str(hello.get("version")),
        protocol=hello.get("protocol", 0),
        status=status,
        person_is_set=bool(person.get("set")),
        policy=policy,
    )


@contextmanager
def _talking(state: str, seconds: float) -> Iterator[Callable[[str, dict[str, Any]], Any]]:
    """Questions over one connection, which have this long together."""
    link = LinkSocket(state)
    deadline = time.monotonic() + seconds
    numbers = count(1)
    try:
        yield lambda method, params: _request(link, deadline, next(numbers), method, params)
    finally:
        link.close()


def _request(link: LinkSocket, deadline: float, number: int, method: str, params: dict[str, Any]) -> Any:
    link.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    while (left := deadline - time.monotonic()) > 0:
        select.select([link], [link] if link.unsent else [], [], left)
        link.flush()
        for message in link.receive():
            if message.get("id") != number:
                continue
            if isinstance(error := message.get("error"), dict):
                data = error.get("data") or {"message": error.get("message")}
                raise Refusal(status_of(str(data.get("code"))), data)
            result = message.get("result")
            return result if isinstance(result, dict | list) else {}
    raise ConnectionLost(
        f"the daemon took the connection and did not answer `{method}`",
        "read its log with `bridgectl tail logs`; restart it with `bascule down && bascule up -d`",
    )
