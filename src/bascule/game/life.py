"""One launch of a game, from start to end: its process, its token, and the connection that is kept up."""

import asyncio
import contextlib
import hmac
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from bascule import __version__
from bascule.foundation import paths
from bascule.foundation.clock import Clock
from bascule.foundation.deferred import within
from bascule.game.attaching import read_bridge_file, read_token
from bascule.game.link import Link
from bascule.game.ports import (
    Address,
    BridgeFile,
    ConnectFault,
    Connector,
    GameProcess,
    Launch,
    Launcher,
    LaunchFault,
)
from bascule.game.settings import GameSettings
from bascule.game.states import Turn
from bascule.kernel.event_ring import Fact
from bascule.kernel.journal_ports import Log
from gabp import messages
from gabp.errors import ErrorCode, GameError
from gabp.session import new_id

# A mod that accepts a connection and then says nothing is taken for gone; GABS waits as long.
HELLO_SECONDS = 30.0
# After the connection of a stdio game ended, its process gets so long to end too.
STDIO_GRACE_SECONDS = 5.0
# A mod that ends a session sooner than this after its welcome is not reached for again at once: it would go on like
# that without a pause.
SHORT_LIFE_SECONDS = 1.0
# A process that is not gone so long after SIGKILL hangs in the kernel.
KILL_SECONDS = 5.0


def _ignore(_fact: Fact) -> None: ...


class Machine(msgspec.Struct, frozen=True):
    """What a game needs of the machine, chosen where the daemon is composed."""

    connector: Connector
    launcher: Launcher
    bridge_file: BridgeFile
    clock: Clock
    log: Log
    # 100 ms doubling to 1 s, +-25 %.
    delays: Callable[[], Iterator[float]]
    # Of an attached game: the text of a file that nobody else can read.
    read_token: Callable[[str], str]
    # "The spec's path by default" (/tmp/gabp-<launchId>.sock).
    socket_dir: str = "/tmp"  # noqa: S108 - transport.md 8: the path mods look at; its name is a fresh UUID
    # Of facts for `events.all`.
    publish: Callable[[Fact], None] = _ignore


class Owner(Protocol):
    """The game this is a launch of."""

    def turn(self, turn: Turn, problem: str | None = None) -> None: ...

    def new_link(self) -> Link: ...

    async def discover(self, link: Link) -> None:
        """Once welcomed: what can be called and heard. GameError when the mod does not say."""

    def opened(self, link: Link) -> None: ...

    def dropped(self, why: str) -> None: ...


class _GaveUp(Exception):
    """Not reached; trying on is pointless until somebody asks for it."""


class Life:
    def __init__(self, game_id: str, settings: GameSettings, machine: Machine, owner: Owner) -> None:
        self.game_id = game_id
        self.settings = settings
        self.launch_id = new_id()
        self.process: GameProcess | None = None
        self.stopping = False
        self._link: Link | None = None
        # It was connected, or given up, or is told to end.
        self._news = asyncio.Event()
        self._was_connected = False
        # Why the last try to connect failed.
        self._failure: str | None = None
        # Until something else than "connection refused" comes.
        self._never_listened = True
        # Why nobody tries any more.
        self._given_up: str | None = None
        self._machine = machine
        self._owner = owner
        self._token = ""
        self._address = Address(transport="tcp")
        self._again = asyncio.Event()
        # The token that the mod refused last.
        self._refused_token: str | None = None

    @property
    def _reads_files(self) -> bool:
        """A file of its launcher says where it listens, and with which token; both change with every launch."""
        return self.settings.token_file is not None or self.settings.bridge_file is not None

    @property
    def attached(self) -> bool:
        return self.settings.command is None

    async def run(self) -> str | None:
        """Why it ended, unless it was told to. Cancelling it ends the process too."""
        try:
            await self._prepare()
            return await self._live_on()
        except LaunchFault as fault:
            return str(fault)
        except TimeoutError:
            return "another game's launch holds bridge.json; start this one when that one is connected"
        finally:
            self._owner.dropped("the game ended")
            self._machine.bridge_file.withdraw(self.launch_id)
            if self.process is not None and self.process.exit_code is None:
                self.process.kill()
                # Without it a process would be left to nobody; SIGKILL takes milliseconds.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KILL_SECONDS):
                        await self.process.wait()
            if not self.attached:
                self._machine.connector.forget(self._address)

    def connect_again(self) -> None:
        self._again.set()

    def end(self) -> None:
        """From now on its end is wanted."""
        self.stopping = True
        self._news.set()

    async def _live_on(self) -> str | None:
        if self.process is None:
            await self._keep_connected()
            return None
        async with asyncio.TaskGroup() as group:
            keeper = group.create_task(self._keep_connected())
            code = await self.process.wait()
            while code == 0 and await self._handed_over():
                code = await self.process.wait()
            keeper.cancel()
        if self.stopping:
            return None
        output = self.process.output().strip()
        before = f"{self._given_up}; " if self._given_up else ""
        return f"{before}it ended with {_ending(code)}" + (f"; it last printed:\n{output[-2000:]}" if output else "")

    async def _handed_over(self) -> bool:
        """Nothing that we started is left. A launcher may have handed the game to a program that ran before (Steam):
        then the game is whoever is at the other end of its connection."""
        assert self.process is not None
        # Such a mod never needed our environment, so it need not be a child of what we started, and may still load.
        while self._link is None and self.settings.discovery == "file" and not (self.stopping or self._given_up):
            if self._was_connected:
                return False
            self._news.clear()
            await self._news.wait()
        pid = None if self._link is None or self.stopping else self._link.peer_pid()
        adopted = None if pid is None else self._machine.launcher.adopt(pid, self.process)
        if adopted is None:
            return False
        self.process = adopted
        return True

    async def _prepare(self) -> None:
        settings, machine = self.settings, self._machine
        if self._reads_files:
            await self._read_files()
            return
        self._token = secrets.token_hex(messages.TOKEN_BYTES)
        self._address = self._new_address()
        if self._address.transport != "stdio":
            await machine.bridge_file.publish(
                self.launch_id,
                self.game_id,
                self._token,
                self._address,
                # A game we do not start gets no environment from us.
                alone=self.attached or settings.discovery == "file",
                seconds=settings.startup_timeout,
            )
        if not self.attached:
            self.process = await machine.launcher.launch(self._launch())
            machine.bridge_file.started(self.launch_id, self.process.pid)

    async def _read_files(self) -> None:
        """The program that starts it has made the token and says where it listens."""
        settings = self.settings
        name = "token_file" if settings.bridge_file is None else "bridge_file"
        path = settings.bridge_file or settings.token_file or ""
        try:
            text = await asyncio.to_thread(lambda: self._machine.read_token(paths.expand(path)))
            if settings.bridge_file is None:
                self._token = read_token(text)
                self._address = Address(transport=settings.transport, where=settings.address or "")
            else:
                self._token, self._address = read_bridge_file(text)
        except Exception as error:  # noqa: BLE001 - a missing, foreign or damaged file; each says so itself
            raise LaunchFault(f"{name} cannot be used: {error}") from None

    def _new_address(self) -> Address:
        match self.settings.transport:
            case "tcp":
                return Address(transport="tcp", where=str(self._machine.connector.free_port()))
            case "pipe":
                path = os.path.join(self._machine.socket_dir, f"gabp-{self.launch_id}.sock")
                if len(os.fsencode(path)) > paths.MAX_SOCKET_PATH_BYTES:
                    raise LaunchFault(f"{path} is too long for a socket; choose a shorter socket_dir")
                return Address(transport="pipe", where=path)
            case "stdio":
                return Address(transport="stdio")

    def _launch(self) -> Launch:
        settings = self.settings
        assert settings.command is not None
        env = {
            **({"TERM": "xterm-256color"} if settings.terminal else {}),
            **self._machine.launcher.base_environment(),
            **settings.env,
            "GABS_GAME_ID": self.game_id,
            "GABP_TOKEN": self._token,
            "GABP_TRANSPORT": self._address.transport,
        }
        if self._address.transport == "tcp":
            env["GABP_SERVER_PORT"] = self._address.where
        if self._address.where:
            env["GABP_ADDRESS"] = self._address.where
        return Launch(
            game_id=self.game_id,
            launch_id=self.launch_id,
            argv=(paths.expand(settings.command), *settings.args),
            cwd=None if settings.cwd is None else paths.expand(settings.cwd),
            env=env,
            stdio=self._address.transport == "stdio",
            terminal=settings.terminal,
            max_unsent_bytes=self.settings.max_unsent_bytes,
            secret=self._token,
        )

    # -- the connection --

    async def _keep_connected(self) -> None:
        """Until cancelled. The first connection has the startup timeout; later ones have all the time there is."""
        seconds: float | None = self.settings.startup_timeout
        while True:
            try:
                async with asyncio.timeout(seconds) as limit:
                    link = await self._connected(limit)
            except TimeoutError:
                await self._give_up(self._why_not_connected())
                continue
            except _GaveUp as gave_up:
                await self._give_up(str(gave_up))
                seconds = self.settings.startup_timeout
                continue
            self._link, self._was_connected = link, True
            self._news.set()
            began = asyncio.get_running_loop().time()
            why = await link.over
            self._link = None
            self._owner.dropped(why)
            seconds = None
            self._owner.turn(Turn.LOST, f"the connection was lost: {why}")
            if self._address.transport == "stdio":
                # Its only connection: a process that closed it is ending, or is no longer ours to talk to.
                await asyncio.sleep(STDIO_GRACE_SECONDS)
                await self._give_up("its stdin and stdout are closed; stop it and start it again")
            elif asyncio.get_running_loop().time() - began < SHORT_LIFE_SECONDS:
                await asyncio.sleep(next(iter(self._machine.delays())))

    def _why_not_connected(self) -> str:
        why = self._failure
        by_environment = self._address.transport == "tcp" and self.settings.discovery == "environment"
        if by_environment and self._never_listened and self.process is not None and not self._was_connected:
            why = (
                f"the game never listened on GABP_SERVER_PORT {self._address.where}: its mod did not load, or does not "
                'read the environment (then: discovery = "file")'
            )
        return f"not connected within {self.settings.startup_timeout:g} s" + (f": {why}" if why else "")

    async def _give_up(self, why: str) -> None:
        self._given_up = why
        self._news.set()
        self._owner.turn(Turn.GAVE_UP, why)
        self._again.clear()
        await self._again.wait()
        self._refused_token = None
        self._given_up = None
        self._owner.turn(Turn.CONNECT)

    async def _connected(self, limit: asyncio.Timeout) -> Link:
        """Tries until it is welcomed and knows what there is."""
        for delay in self._machine.delays():
            link = self._owner.new_link()
            try:
                await self._reread_token()
                await self._handshake(link)
                await self._owner.discover(link)
            except LaunchFault as fault:
                # Its launcher may be about to write it.
                self._failure = str(fault)
            except ConnectFault as fault:
                self._failure = fault.message
                self._never_listened &= fault.refused
                if fault.fatal:
                    raise _GaveUp(fault.message) from None
            except GameError as error:
                link.close("not welcomed")
                # It listens: what it answers is the reason.
                self._never_listened = False
                self._failure = f"the mod did not welcome us: {error}"
                if self._is_final(error):
                    raise _GaveUp(self._failure) from None
            except BaseException:
                link.close("given up")
                raise
            else:
                self._machine.bridge_file.welcomed(self.launch_id)
                self._owner.opened(link)
                return link
            if limit.when() is None and self.process is not None and self.process.handed_on:
                # What is left when its launcher is gone may be a helper of a game that has ended.
                limit.reschedule(asyncio.get_running_loop().time() + self.settings.startup_timeout)
            await asyncio.sleep(delay)
        raise _GaveUp("no more tries")

    async def _reread_token(self) -> None:
        if self._reads_files:
            await self._read_files()
            if self._refused_token is not None and hmac.compare_digest(self._token, self._refused_token):
                raise _GaveUp(self._failure or "its token was refused")

    def _is_final(self, error: GameError) -> bool:
        """The token of a launch will not get better, nor will a stdio game's only connection."""
        if self._address.transport == "stdio":
            return True
        if error.code != ErrorCode.AUTHENTICATION_FAILED:
            return False
        # One that was read from a file may be the last launch's: the file is read once more.
        self._refused_token = self._token
        return not self._reads_files

    async def _handshake(self, link: Link) -> None:
        if self._address.transport == "stdio":
            assert self.process is not None
            wire = self.process.wire(link.data, link.lost)
        else:
            wire = await self._machine.connector.connect(
                self._address, link.data, link.lost, max_unsent_bytes=self.settings.max_unsent_bytes
            )
        link.greet(
            wire,
            messages.HelloParams(
                token=self._token,
                bridge_version=__version__,
                platform=messages.platform_name(sys.platform),
                launch_id=self.launch_id,
                client_info=messages.ClientInfo(name="bascule", version=__version__),
            ),
        )
        if not await within(HELLO_SECONDS, link.welcome):
            raise GameError(ErrorCode.AUTHENTICATION_REQUIRED, f"no answer to hello within {HELLO_SECONDS:g} s")
        await link.welcome


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
