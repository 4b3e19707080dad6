"""What the desktop bridge needs from the outside."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

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
