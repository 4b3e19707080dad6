"""A daemon as users have it: its own process, a state directory of its own, real sockets."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, Self

import inside
from patience import PATIENCE
from ports import free_port


@contextlib.contextmanager
def short_dir() -> Iterator[str]:
    """pytest's own directories are too long for the path of a unix socket."""
    path = tempfile.mkdtemp(prefix="bsc-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def eventually(look: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What `look` says once it says something; for what another process does in its own time."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.005)
    return seen


class Living:
    """A running daemon; `stop` or `kill` ends it, and `start` may follow in the same directory."""

    def __init__(
        self,
        state: str,
        *,
        uid: int | None = None,
        constants: dict[str, Any] | None = None,
        bug: str = "",
        errors: str | None = None,
        **config: Any,
    ) -> None:
        self.state = state
        self.port = config.setdefault("port", free_port())
        # Who tests /mcp says so.
        config.setdefault("mcp", "off")
        # Whoever runs the tests does not want to hear of their questions.
        config.setdefault("announce", "off")
        output = {"state": state, "uid": uid, "constants": constants or {}, "bug": bug, "config": config}
        self._errors = errors or state + ".stderr"
        with open(self._errors, "wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", inside.DAEMON_PROGRAM, json.dumps(output)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd="/",
            )
        assert self.process.stdout is not None
        with self.process.stdout as ready_line:
            if ready_line.readline() != b"ready\n":
                code = self.process.wait(PATIENCE)
                raise AssertionError(f"the daemon ended with {code}: {self.terminal()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()

    @property
    def tcp(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def http_socket(self) -> str:
        return os.path.join(self.state, "http.sock")

    @property
    def link_socket(self) -> str:
        return os.path.join(self.state, "link.sock")

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return _text(os.path.join(self.state, "local.token"))

    def terminal(self) -> str:
        """What it wrote to standard error."""
        return _text(self._errors)

    def log(self) -> str:
        return _text(os.path.join(self.state, "log", "daemon.log"))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def run_command(
    *arguments: str, environment: dict[str, str] | None = None, seconds: float = PATIENCE
) -> "subprocess.CompletedProcess[str]":
    """`bascule ...` as its own process, with nothing of this shell's settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("BASCULE_", "BRIDGE_"))}
    # No settings of whoever runs the tests either.
    clean["BASCULE_CONFIG_DIR"] = "/nonexistent"
    return subprocess.run(
        [*inside.BASCULE, *arguments],
        env={**clean, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


class Ended(NamedTuple):
    code: int
    output: str


def forked(*arguments: str, environment: dict[str, str] | None = None, seconds: float = PATIENCE) -> Ended:
    """`bascule ...` in a fork of this process, which has it imported already: a tenth of the time of a new one."""
    main = inside.loaded_command()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if not child:
            _be_the_command(main, arguments, environment or {}, output.fileno())
        deadline = time.monotonic() + seconds
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise AssertionError(f"bascule {' '.join(arguments)} did not end")
            time.sleep(0.002)
        output.seek(0)
        return Ended(os.waitstatus_to_exitcode(ended[1]), output.read().decode(errors="replace"))


def _be_the_command(
    main: Callable[[tuple[str, ...]], int], arguments: tuple[str, ...], environment: dict[str, str], output: int
) -> NoReturn:
    code = 1
    try:
        for number in (1, 2):
            os.dup2(output, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os.environ.update({"BASCULE_CONFIG_DIR": "/nonexistent", **environment})
        code = main(arguments)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:  # noqa: BLE001 - what the interpreter would print and exit with
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
