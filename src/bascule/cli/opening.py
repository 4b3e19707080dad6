"""Opens a file or an address with whatever program the person's desktop has for it."""

import os
import shutil
import subprocess
import sys

_OPENERS = {"darwin": "open"}
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


def open_file(path: str) -> str | None:
    """Or an address. Beside us, without waiting for it; None, or why not."""
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _SCREENS):
        return "this terminal has no display"
    name = _OPENERS.get(sys.platform, "xdg-open")
    program = shutil.which(name)
    if program is None:
        return f"{name} is not installed"
    try:
        subprocess.Popen(  # noqa: S603 - a program of the system, and a file or an address of our own
            [program, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"{name}: {error.strerror}"
    return None
