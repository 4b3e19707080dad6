"""What the desktop bridge needs from the outside."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from bascule.desktop.protocol import DEFAULT_TIMEOUT_MS


class HostGone(Exception):
    """The host has ended, or says what cannot be understood. Whether the last act happened is not known."""


class Host(Protocol):
    """One life of the desktop host. Results are the contract's types; refusals are `DesktopError`."""

    @property
    def pid(self) -> int | None: ...

    # What the person can press to stop everything, as the host found when it started.
    stop_keys: str | None

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        client: str,
        request_id: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        workspace: str | None = None,
    ) -> Any: ...

    async def confirmed(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client: str,
        request_id: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        workspace: str | None = None,
    ) -> Any:
        """Issue a token for exactly this, and use it: the person has been asked where that is needed."""

    async def close(self) -> None:
        """It ends, by force if it does not by itself."""


class Launcher(Protocol):
    async def start(
        self, environment: Mapping[str, str], *, on_stopped: Callable[[], None], on_lost: Callable[[str], None]
    ) -> Host:
        """A host of this session. `on_stopped`: a person pressed the keys that stop everything. Raises HostGone."""

    def own_environment(self) -> Mapping[str, str]:
        """Of the session that the daemon itself was started in."""


class Workspaces(Protocol):
    def place(self, named: str | None, /) -> str:
        """Where evidence of a call goes; Forbidden where it may not."""


class Programs(Protocol):
    def __call__(self, pid: int, /) -> str | None:
        """The file of the program that runs as `pid`."""


class EvidenceGone(Exception):
    """There is no such execution or picture, or it is not as the host leaves them."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of evidence. What its files say is as an agent may have changed it, and not made visible."""

    execution_id: str
    workspace: str
    day: str
    method: str | None = None
    app: str | None = None
    at: str | None = None
    client: str | None = None
    effect: str | None = None
    error: str | None = None
    # Names and sizes.
    files: list[tuple[str, int]] = []


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    about: Execution
    # JSON as the files have it; None where there is none.
    result: Any
    trace: list[Any]
    tree: Any
    # Files that are too large, or not JSON.
    left_out: list[str]
    # Files that are not as the host left them.
    changed: list[str]


class EvidenceReader(Protocol):
    """Blocking. `workspaces` beside our own; those where no evidence can be are left out."""

    def newest(self, workspaces: Sequence[str], before: str | None, limit: int, /) -> list[Execution]: ...

    def show(self, workspaces: Sequence[str], execution_id: str, /) -> Shown: ...

    def picture(self, workspaces: Sequence[str], execution_id: str, name: str, /) -> bytes:
        """A PNG."""
