"""What is said over a cell's control socket. What comes back is input like any other: bounded and checked."""

from typing import Any

import msgspec

from gabp import codec

# `ready` names a handful of files; nothing the spawner says is longer.
MAX_ANSWER_BYTES = 16 * 1024


class Ready(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # Device and inode of what was asked to be looked at, in order.
    seen: list[tuple[int, int]]


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # errno and file name when nothing could be started.
    fault: tuple[int, str] | None
    # As waitpid gives it.
    status: int
    # The `end` that was asked for, or the limit the spawner keeps.
    why: str | None
    # Processes that the command left running, and that were ended with it.
    left: int
    cpu: float
    # Whether the cell may be used again.
    clean: bool
    # Whether something on the way to a guarded file was moved or made anew.
    moved: bool


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ready: Ready | None = None
    ended: Ended | None = None
    # Every process of the command stands still (True), or goes on.
    paused: bool | None = None


ANSWER: codec.Decoder[Answer] = codec.Decoder(Answer)


class DiskWatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Two paths on one disk are watched as one."""

    path: str
    bytes: int
    keep_free: int
    blame: int


class Watch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Limits that the spawner looks at a few times a second."""

    cpu_seconds: float
    memory_bytes: int | None = None
    processes: int | None = None
    disks: list[DiskWatch] = []


class Setup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    environment: dict[str, str]
    watch: Watch
    # (RLIMIT_x, most)
    rlimits: list[tuple[int, int]]
    nice: int
    look: list[str]
    # Where commands begin, and the files in it that no other may replace while they run.
    workspace: str
    guarded: list[str]
    # Landlock scopes, or 0.
    scope: int
    # A BPF program in hex, or "".
    filter: str
    # Whether the program asks about execs.
    listen: bool
    seccomp_number: int


class Run(msgspec.Struct, frozen=True, kw_only=True):
    argv: tuple[str, ...]
    cwd: str
    environment: dict[str, str]


def encode(**message: Any) -> bytes:
    return msgspec.json.encode(message)
