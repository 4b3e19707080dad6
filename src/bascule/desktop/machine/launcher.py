"""Starts the desktop host as a child of the daemon: the `Launcher` and `Host` ports over `HostClient`."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bascule.desktop.capabilities import Trust
from bascule.desktop.machine.client import HostClient, HostLost
from bascule.desktop.ports import HostGone
from bascule.desktop.protocol import DEFAULT_TIMEOUT_MS
from bascule.desktop.rows import SESSION_VARIABLES
from bascule.foundation.emergency import EmergencyStop
from bascule.foundation.paths import UnsafePlace, make_private_dir

# What any program needs; of the rest of the daemon's environment the host sees nothing.
_PLAIN_VARIABLES: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH")

# Connecting takes a third of a second; after this a call hears from the host itself what is missing.
READY_SECONDS: Final = 10.0
READY_POLL_SECONDS: Final = 0.02


class ChildHost:
    def __init__(self, client: HostClient, emergency: EmergencyStop) -> None:
        self._client = client
        self._withdraw = emergency.add(client.stop_input)
        self.stop_keys: str | None = None

    @property
    def pid(self) -> int | None:
        return self._client.pid

    async def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        client: str,
        request_id: str | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        workspace: str | None = None,
    ) -> Any:
        try:
            return await self._client.call(
                method, params, client=client, request_id=request_id, timeout_ms=timeout_ms, workspace=workspace
            )
        except HostLost as error:
            raise HostGone(str(error)) from error

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
        try:
            return await self._client.confirmed(
                method, params, client=client, request_id=request_id, timeout_ms=timeout_ms, workspace=workspace
            )
        except HostLost as error:
            raise HostGone(str(error)) from error

    async def close(self) -> None:
        self._withdraw()
        await self._client.close()


class HostLauncher:
    """`root`: WORKSPACE_ROOT. `workspace`: beneath it, where evidence goes unless a call says otherwise."""

    def __init__(
        self,
        root: str,
        workspace: str,
        *,
        keep_out: Sequence[str] = (),
        trust: Trust = "checked",
        emergency: EmergencyStop | None = None,
    ) -> None:
        self._emergency = emergency or EmergencyStop()
        self._root = root
        self._workspace = workspace
        self._options = ["--trust", trust, *(word for pattern in keep_out for word in ("--keep-out", pattern))]

    def own_environment(self) -> Mapping[str, str]:
        return {name: os.environ[name] for name in SESSION_VARIABLES if name in os.environ}

    async def start(
        self, environment: Mapping[str, str], *, on_stopped: Callable[[], None], on_lost: Callable[[str], None]
    ) -> ChildHost:
        try:
            make_private_dir(self._workspace)
        except (UnsafePlace, OSError) as error:
            raise HostGone(f"the desktop host has no place for evidence: {error}") from error
        plain = {name: os.environ[name] for name in _PLAIN_VARIABLES if name in os.environ}
        try:
            client = await HostClient.spawn(
                self._root,
                self._workspace,
                options=self._options,
                environment={**plain, **environment},
                on_stopped=lambda _: on_stopped(),
                on_lost=on_lost,
            )
        except (HostLost, OSError) as error:
            raise HostGone(f"the desktop host could not be started: {error}") from error
        host = ChildHost(client, self._emergency)
        try:
            await _ready(host)
        except HostGone:
            await host.close()
            raise
        return host


async def _ready(host: ChildHost) -> None:
    """Connected to the desktop, or sure that it cannot be; the next call is not answered with `try again`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READY_SECONDS):
            while True:
                health = await host.call("desktop.health", client="daemon")
                host.stop_keys = health.stop_keys
                if "unknown" not in (health.permissions.accessibility, health.permissions.screen_recording):
                    return
                await asyncio.sleep(READY_POLL_SECONDS)
