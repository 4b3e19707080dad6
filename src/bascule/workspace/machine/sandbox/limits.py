"""What one command, one space and all of them together may use."""

import msgspec

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class SandboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Every number is a ceiling that honest work stays below; reaching one ends the command and is reported."""

    # Of one command and all it started. Compilers, test suites and headless browsers fit.
    memory_bytes: int = 4 * GIB
    # Processes and threads. Parallel builds fit; a fork bomb stops before the machine feels it.
    processes: int = 512
    # Of all cores together: four cores busy for the longest timeout (an hour).
    cpu_seconds: int = 4 * 3600
    # Per process. Test runners with many workers fit; more is a leak.
    open_files: int = 4096
    # One file.
    file_bytes: int = 4 * GIB
    # How much less may be free on the workspace's disk because of one command.
    disk_bytes: int = 8 * GIB
    # How much less may be free on the disk of home directories, which is the store's, because of one command.
    home_bytes: int = 4 * GIB
    # Below this a command that wrote something is ended: the daemon's own store shares the disk more often than not.
    keep_free_bytes: int = 512 * MIB
    # Wrote less than this: a full disk is not its doing. As many cells as there may be fit into what is kept free.
    blame_bytes: int = 8 * MIB
    # Below this on the store's disk no command starts: many that write little fill it as well.
    store_free_bytes: int = 256 * MIB
    # Memory's file systems of a cell, /dev/shm and /tmp; they count as memory too, and are emptied after each command.
    shm_bytes: int = 256 * MIB
    tmp_bytes: int = GIB

    # Per stream, as an event shows it: half head, half tail. The protocol's answer stays readable.
    shown_bytes: int = MIB
    # Per stream, on disk, for `logs`. What comes after is counted, not kept.
    spool_bytes: int = 64 * MIB
    # Output up to this stays in memory: most commands say little, and a file for each is two disk operations.
    spool_in_memory_bytes: int = 8 * KIB
    # Ended commands whose output is kept; the oldest goes first.
    kept_logs: int = 2_000
    # All spools together.
    kept_log_bytes: int = 2 * GIB

    # One file that a person approved and that a command gets as it was then.
    sealed_bytes: int = 64 * MIB
    # A command, its environment and the rest of a request to the spawner.
    request_bytes: int = 128 * KIB
    # Programs of one command that are named in its outcome; the others are counted.
    programs: int = 200

    # Cells kept for the next command of a space: one for its agent, one for another caller.
    warm_cells: int = 2
    # At once in one space, background commands included.
    cells: int = 16
    # Of all spaces together: each is a process of about 10 MB and a set of mounts.
    all_cells: int = 64
    # A warm cell that nobody needed for so long goes.
    idle_seconds: float = 300.0
    # bwrap and a Python start in 50 ms; a machine under load gets its time.
    start_seconds: float = 30.0
    # SIGKILL needs no time but the kernel's; a process stuck in a device may need more, then the cell is killed.
    end_seconds: float = 10.0
