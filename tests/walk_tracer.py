"""Counts, inside a daemon, the files and functions of the package that a request passes.

`install` runs in the daemon's process before it starts. A profile function sees every call of every thread, and notes
those of the package while a test has the recording on; the test switches it through a unix socket.
"""

import asyncio.runners
import contextlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

# What runs beside every request: the look at the loop's lag twice a second, the thread that writes the log.
_BACKGROUND = frozenset({"_probe_lag", "_drain"})
# Of the checkout: what a request passes.
SOURCES = ("src", "packages")
# Below it on the stack is how the daemon was started.
_EVENT_LOOP = asyncio.runners.__file__
_MAX_REPLY_BYTES = 1 << 24


class Hop(NamedTuple):
    """The first call of one function by another of the package; nobody called what the event loop calls."""

    at: int
    caller: str | None
    file: str
    function: str

    @property
    def is_between_files(self) -> bool:
        return self.caller is None or self.caller.partition(":")[0] != self.file


# -- in the daemon --------------------------------------------------------------------------------


class _Recorder:
    def __init__(self, root: str) -> None:
        self._root = root + os.sep
        self._sources = tuple(os.path.join(root, folder, "") for folder in SOURCES)
        self._hops: dict[tuple[CodeType | None, CodeType], int] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        hops = self._hops
        if hops is None or event != "call" or not self._is_ours(frame.f_code):
            return
        callers = list(self._callers(frame))
        if any(code.co_name in _BACKGROUND for code in (frame.f_code, *callers)):
            return
        # A coroutine that goes on is called again: the first time counts.
        hops.setdefault((callers[0] if callers else None, frame.f_code), time.monotonic_ns())

    def _callers(self, frame: FrameType) -> Iterator[CodeType]:
        above = frame.f_back
        while above is not None and above.f_code.co_filename != _EVENT_LOOP:
            if self._is_ours(above.f_code):
                yield above.f_code
            above = above.f_back

    def _is_ours(self, code: CodeType) -> bool:
        # Modules that are loaded late are no part of the way.
        return code.co_filename.startswith(self._sources) and code.co_name != "<module>"

    def begin(self) -> None:
        self._hops = {}

    def end(self) -> None:
        self._hops = None

    def hops(self) -> list[tuple[int, str | None, str, str]]:
        hops = self._hops or {}
        return [
            (at, caller and f"{self._file(caller)}:{caller.co_qualname}", self._file(code), code.co_qualname)
            for (caller, code), at in list(hops.items())
        ]

    def _file(self, code: CodeType) -> str:
        return code.co_filename.removeprefix(self._root)


def install(root: str, control: str) -> None:
    """Trace the packages of the checkout `root` for whoever connects to `control`."""
    recorder = _Recorder(root)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(control)
    listener.listen()

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                command = connection.recv(1)
                if command == b"b":
                    recorder.begin()
                hops = recorder.hops()
                if command == b"e":
                    recorder.end()
                connection.sendall(json.dumps(hops).encode())

    threading.Thread(target=serve, name="walks", daemon=True).start()
    threading.setprofile(recorder)
    sys.setprofile(recorder)


# -- in the test ----------------------------------------------------------------------------------


def program(root: str, control: str) -> str:
    """Lines for a daemon's start."""
    here = os.path.dirname(os.path.abspath(__file__))
    return (
        f"import sys; sys.path.append({here!r}); import walk_tracer; walk_tracer.install({root!r}, {control!r})\n"
        f"sys.path.remove({here!r})\n"
    )


class Control:
    def __init__(self, path: str) -> None:
        self._path = path

    def begin(self) -> None:
        self._ask(b"b")

    def end(self, before: int) -> list[Hop]:
        """What was called before this moment of the monotonic clock, in order."""
        return sorted(Hop(*hop) for hop in self._ask(b"e") if hop[0] < before)

    def has_passed(self, function: str) -> bool:
        """The recording goes on."""
        return any(hop[3] == function for hop in self._ask(b"l"))

    def _ask(self, what: bytes) -> Any:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(self._path)
            sock.sendall(what)
            with sock.makefile("rb") as reply:
                return json.loads(reply.read(_MAX_REPLY_BYTES))
