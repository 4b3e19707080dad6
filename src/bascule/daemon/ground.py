"""Is the ground safe that the state directory stands on? Asked once, before anything is written (StrictModes).

A directory of ours in a place where others may rename things can be exchanged for another at any moment, and what
lay in it while it was open to others may be theirs. Either way somebody else would choose what we load.
"""

import os
import pwd
import stat

from bascule.foundation.paths import UnsafePlace

# Links to links; more is a circle.
_MAX_LINKS = 16
_OVERFLOW_UID = 65_534


def check_parents(path: str, *, links: int = 0) -> None:
    """Refuse a path whose parents can be renamed by others; parents that do not exist yet will be ours."""
    here = "/"
    for step in ("", *os.path.dirname(os.path.abspath(path)).strip("/").split("/")):
        here = os.path.join(here, step)
        try:
            status = os.lstat(here)
        except FileNotFoundError:
            return
        if status.st_uid not in (0, os.getuid()) and not _stands_for_root(status.st_uid):
            raise UnsafePlace(
                f"{here} belongs to uid {status.st_uid}, who could exchange what is in it; choose a place of your own"
            )
        if stat.S_ISLNK(status.st_mode):
            if links >= _MAX_LINKS:
                raise UnsafePlace(f"{here} is a link that leads to links without end; remove it")
            target = os.path.join(os.path.dirname(here), os.readlink(here))
            check_parents(os.path.join(target, "x"), links=links + 1)
        elif _others_may_rename_in(status):
            mode = stat.S_IMODE(status.st_mode)
            raise UnsafePlace(
                f"others may write to {here} (mode {mode:04o}) and exchange what is in it; run: chmod go-w '{here}'"
            )


def check_contents(state_dir: str) -> None:
    """Refuse what somebody else left in the directory while it was open, or under another user."""
    with os.scandir(state_dir) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if status.st_uid != os.getuid():
                raise UnsafePlace(
                    f"{entry.path} belongs to uid {status.st_uid}, not to you (uid {os.getuid()}); move it away"
                )
            if stat.S_ISLNK(status.st_mode):
                raise UnsafePlace(f"{entry.path} is a symbolic link; remove it")


def _others_may_rename_in(status: os.stat_result) -> bool:
    # With the sticky bit, as in /tmp, everybody renames only what is theirs.
    if status.st_mode & stat.S_ISVTX:
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _alone_in(status.st_gid)


def _alone_in(gid: int) -> bool:
    """Many systems give each user a group of their own and let it write everywhere in the home directory."""
    if gid == 0:
        # Root's own.
        return True
    import grp  # noqa: PLC0415 - hardly ever needed

    try:
        me = pwd.getpwuid(os.getuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == me.pw_gid and group.gr_name == me.pw_name and set(group.gr_mem) <= {me.pw_name}


def _stands_for_root(uid: int) -> bool:
    """In a user namespace that has no root, what belongs to root shows as nobody's."""
    if uid != _OVERFLOW_UID:
        return False
    try:
        with open("/proc/self/uid_map", "rb") as rows:
            return not any(row.split()[0] == b"0" for row in rows)
    except (OSError, IndexError):
        return False
