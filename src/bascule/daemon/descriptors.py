"""How many descriptors this process has, and how many of them clients may take."""

import contextlib
import resource

from bascule.surfaces.http.server import MAX_CONNECTIONS

# Kept from the HTTP doors, for what must go on when they are full: the store and its log, pipes of commands and games,
# link connections, sockets of spaces. Of a small limit it is half.
RESERVED_FILES = 2_000
# What both doors can use: more would only be passed on to the programs that we start.
WANTED_FILES = 2 * MAX_CONNECTIONS + RESERVED_FILES


def claim_files() -> int:
    """Raise the soft limit as far as it is of use and the hard one allows; the limit in force."""
    soft, hard = (_number(each) for each in resource.getrlimit(resource.RLIMIT_NOFILE))
    wanted = min(hard, WANTED_FILES)
    if soft < wanted:
        # macOS has a limit of its own below the one it names; then the soft one stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def room_for_connections(files: int) -> int:
    """How many connections both HTTP doors may have together."""
    return files - min(RESERVED_FILES, files // 2)


def port_share(room: int) -> int:
    """How many of them the port may have: anybody on the machine can fill it, and that must not close the socket."""
    return min(MAX_CONNECTIONS, room * 2 // 3)


def _number(limit: int) -> int:
    return WANTED_FILES if limit == resource.RLIM_INFINITY else limit
