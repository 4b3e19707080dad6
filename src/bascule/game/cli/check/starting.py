"""The game under test: started as a bridge starts it, or running already."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import IO, Any, Final

from bascule.foundation import paths
from bascule.game.cli.check.peer import ANSWER_SECONDS, Failed, Peer, Seen, SocketStream, hello
from bascule.game.settings import GameSettings
from bascule.local_client.exits import WrongUsage
from gabp.messages import TOKEN_BYTES
from gabp.session import new_id

_POLL_SECONDS: Final = 0.05
# A game that does not end on SIGTERM is killed; a test of a mod does not wait for its saving.
_END_SECONDS: Final = 5.0


class PipeStream:
    """The standard input and output of a mod that is spoken to over them."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._to: IO[bytes] = process.stdin
        self._from: IO[bytes] = process.stdout

    def send(self, data: bytes) -> None:
        """A mod that does not read must not keep us: TimeoutError."""
        end = time.monotonic() + ANSWER_SECONDS
        os.set_blocking(self._to.fileno(), False)
        rest = memoryview(data)
        while rest:
            if not select.select([], [self._to], [], max(0.0, end - time.monotonic()))[1]:
                raise TimeoutError(f"it reads nothing for {ANSWER_SECONDS:g} s")
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(self._to.fileno(), rest) :]

    def receive(self, seconds: float) -> bytes:
        if not select.select([self._from], [], [], max(0.0, seconds))[0]:
            raise TimeoutError
        return os.read(self._from.fileno(), 1 << 16)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._to.close()
        _end(self._process)
        self._from.close()


class Subject:
    """Where the mod is, and what it takes to reach it. `connect` gives a new connection."""

    def __init__(self, game_id: str, settings: GameSettings, seen: Seen) -> None:
        self._game_id = game_id
        self._settings = settings
        self.seen = seen
        self.transport = settings.transport
        self.starts = settings.command is not None
        self.launch_id = new_id()
        self.token = os.urandom(TOKEN_BYTES).hex()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: str | None = None
        self._where = settings.address or ""
        self._ready = False

    def open(self) -> None:
        if not self.starts:
            self._read_token()
            return
        if self.transport == "tcp":
            self._where = _free_port()
        elif self.transport == "pipe":
            self._folder = tempfile.mkdtemp(prefix="gabp-")
            self._where = os.path.join(self._folder, "mod.sock")
        if self.transport != "stdio":
            self._process = self._start()

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def socket_path(self) -> str | None:
        return self._where if self.transport == "pipe" else None

    @property
    def port(self) -> int | None:
        return int(self._where) if self.transport == "tcp" else None

    @contextlib.contextmanager
    def connected(self) -> Iterator[Peer]:
        peer = self._peer()
        try:
            yield peer
        finally:
            peer.close()

    @contextlib.contextmanager
    def session(self) -> Iterator[tuple[Peer, dict[str, Any]]]:
        """A connection whose hello was welcomed, and the welcome."""
        with self.connected() as peer:
            yield peer, peer.call("session/hello", self.hello())

    def hello(self, **changed: Any) -> dict[str, Any]:
        return hello(self.token, self.launch_id, sys.platform) | changed

    def _peer(self) -> Peer:
        if self.transport == "stdio":
            return Peer(PipeStream(self._start(stdio=True)), self.seen)
        # Loading takes as long as games.toml allows; afterwards a connection is there at once.
        end = time.monotonic() + (ANSWER_SECONDS if self._ready else self._settings.startup_timeout)
        while True:
            sock = socket.socket(socket.AF_UNIX if self.transport == "pipe" else socket.AF_INET)
            try:
                sock.settimeout(ANSWER_SECONDS)
                sock.connect(self._where if self.transport == "pipe" else ("127.0.0.1", int(self._where)))
            except OSError as error:
                sock.close()
                self._check_running()
                if time.monotonic() > end:
                    where = self._where if self.transport == "pipe" else f"127.0.0.1:{self._where}"
                    raise Failed(f"the mod does not listen on {where}: {error.strerror or error}") from None
                time.sleep(_POLL_SECONDS)
                continue
            self._ready = True
            return Peer(SocketStream(sock), self.seen)

    def _check_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise Failed(f"the game ended with {self._process.returncode} before its mod listened")

    def _start(self, *, stdio: bool = False) -> "subprocess.Popen[bytes]":
        settings = self._settings
        assert settings.command is not None
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GABP_", "GABS_"))},
            **settings.env,
            "GABS_GAME_ID": self._game_id,
            "GABP_TOKEN": self.token,
            "GABP_TRANSPORT": self.transport,
        }
        if self.transport == "tcp":
            environment["GABP_SERVER_PORT"] = self._where
        if self._where:
            environment["GABP_ADDRESS"] = self._where
        pipe = subprocess.PIPE if stdio else subprocess.DEVNULL
        try:
            return subprocess.Popen(  # noqa: S603 - the person's own games.toml, run as they ask
                [paths.expand(settings.command), *settings.args],
                cwd=None if settings.cwd is None else paths.expand(settings.cwd),
                env=environment,
                stdin=pipe,
                stdout=pipe,
                # What the game prints beside it helps to see why it failed.
                stderr=None,
                start_new_session=True,
            )
        except OSError as error:
            raise WrongUsage(
                f"{settings.command} cannot be started: {error.strerror}", "mend `command` or `cwd` in games.toml"
            ) from error

    def _read_token(self) -> None:
        if self._settings.token_file is None:
            raise WrongUsage(
                "this game has no `command`, and its token is in no file",
                "give it `address` and `token_file` in games.toml, or pass --port and --token-file",
            )
        try:
            self.token = paths.read_private_file(paths.expand(self._settings.token_file)).strip()
        except (paths.UnsafePlace, OSError) as error:
            raise WrongUsage(f"the token cannot be read: {error}") from error


def _free_port() -> str:
    """The kernel's choice. Between this and the mod's own bind another program may take it: then the check says so."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def _end(process: "subprocess.Popen[bytes]") -> None:
    """It and all that it started in its own group: told to end, then killed, also when the first of them has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
