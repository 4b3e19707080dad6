"""Where bridge.json is (transport.md 5.1): the bridge writes it, mods read it, one for all games of a user."""

import os
import stat
import sys


class NoHome(Exception):
    """The user has no home directory to look in."""


def bridge_file(home: str | None = None) -> str:
    """Below `home`, or the home directory of this process's user; Windows has a place of its own."""
    if sys.platform == "win32":
        base = os.environ.get("APPDATA") or os.path.expanduser("~")
    elif sys.platform == "darwin":
        base = os.path.join(home or _home(), "Library", "Application Support")
    else:
        base = os.path.join(home or _home(), ".config")
    return os.path.join(base, "gabp", "bridge.json")


def _home() -> str:
    """`$HOME` when it is absolute and ours, else the passwd entry's: `sudo -E` keeps the variable of another user."""
    named = os.environ.get("HOME", "")
    if os.path.isabs(named) and _is_our_directory(named):
        return os.path.abspath(named)
    import pwd  # noqa: PLC0415 - Windows has none, and mods for it import this module

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise NoHome(
            f"user id {os.getuid()} has no passwd entry and HOME is not a directory of yours; set HOME to one"
        ) from None


def _is_our_directory(path: str) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
