"""What the game bridge needs of the machine: processes, byte connections, the configuration file mods read."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

Transport = Literal["tcp", "pipe", "stdio"]
# With launches by a bridge the environment names the port; a mod that reads only bridge.json needs that file to itself.
Discovery = Literal["environment", "file"]

# A mod that does not read while this much waits for it is stuck; the session ends, and is made anew.
MAX_UNSENT_BYTES = 16 * 1024 * 1024

OnData = Callable[[bytes], None]
# With the reason, or None when the peer closed in good order.
OnLost = Callable[[Exception | None], None]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    transport: Transport
    # A port, a path, nothing for stdio.
    where: str = ""


class ConnectFault(Exception):
    """No connection; the message says why. `fatal`: trying again will not help. `refused`: nobody listens there."""

    def __init__(self, message: str, *, fatal: bool = False, refused: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.fatal = fatal
        self.refused = refused


class Wire(Protocol):
    """An open byte connection to a mod."""

    def send(self, data: bytes) -> None:
        """Buffered, bounded: a mod that does not read is cut off, and `on_lost` told."""

    def close(self) -> None: ...

    def peer_pid(self) -> int | None:
        """Whose process is at the other end, where that can be told."""


class Connector(Protocol):
    async def connect(
        self, address: Address, on_data: OnData, on_lost: OnLost, *, max_unsent_bytes: int = MAX_UNSENT_BYTES
    ) -> Wire:
        """Only to a listener of our own user: what it is sent first is the token."""

    def free_port(self) -> int: ...

    def forget(self, address: Address) -> None:
        """Nobody listens there any more: a game that was killed leaves its socket's name behind."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A process to start, with everything about it decided."""

    game_id: str
    launch_id: str
    argv: tuple[str, ...]
    cwd: str | None
    # All of it: nothing is inherited beside.
    env: Mapping[str, str]
    # Its stdin and stdout are the connection.
    stdio: bool = False
    # Its stdin, stdout and stderr are a terminal of its own.
    terminal: bool = False
    # Of what is sent to it over stdio and not read.
    max_unsent_bytes: int = MAX_UNSENT_BYTES
    # Not to be seen in what it prints.
    secret: str = ""


class LaunchFault(Exception):
    """The process could not be started; the message says why and what to look at."""


class GameProcess(Protocol):
    """Everything that a launch started, launchers and what they left running alike."""

    pid: int

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""

    @property
    def handed_on(self) -> bool:
        """What was started first has ended well, and others run on."""

    def output(self) -> str:
        """The last of what it printed, made visible."""

    def wire(self, on_data: OnData, on_lost: OnLost) -> Wire:
        """The stdio connection, once."""

    async def wait(self) -> int:
        """Until nothing of it is left; the exit code of what was started first."""

    def terminate(self) -> None:
        """Ask all of it to end."""

    def kill(self) -> None: ...


class Launcher(Protocol):
    async def launch(self, launch: Launch) -> GameProcess: ...

    def adopt(self, pid: int, before: GameProcess) -> GameProcess | None:
        """A process of the same user that a launcher (`before`, which is gone) handed the game to. None: it is gone."""

    def base_environment(self) -> dict[str, str]:
        """What every game gets: the daemon's own, without its secrets."""


class BridgeFile(Protocol):
    """`bridge.json`: the newest launch, for mods that did not get the environment."""

    def sweep(self) -> None:
        """At the start: take away what a bridge that was killed left there."""

    async def publish(
        self, launch_id: str, game_id: str, token: str, address: Address, *, alone: bool, seconds: float
    ) -> None:
        """With `alone` it is kept until `welcomed`; another such launch waits, at most so long (TimeoutError)."""

    def started(self, launch_id: str, pid: int) -> None: ...

    def welcomed(self, launch_id: str) -> None: ...

    def withdraw(self, launch_id: str) -> None: ...


class SettingsFile(Protocol):
    def read(self) -> tuple[object, bytes | None]:
        """A stamp that changes with the file, and its text; None when there is no file."""
