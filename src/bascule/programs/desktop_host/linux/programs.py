"""Programs, as far as processes and files tell: which file one is, and why its windows show no elements."""

import contextlib
import os
import re
from typing import Final

# Where distributions put what starts the accessibility bus.
LAUNCHERS: Final = (
    "/usr/libexec/at-spi-bus-launcher",
    "/usr/libexec/at-spi2/at-spi-bus-launcher",
    "/usr/lib/at-spi-bus-launcher",
    "/usr/lib/at-spi2-core/at-spi-bus-launcher",
)
# A program with this file beside it is Chromium, or Electron, under any name.
_CHROMIUM_FILE: Final = "chrome_100_percent.pak"
_CHROMIUM_FLAG: Final = "--force-renderer-accessibility"
# Variables that turn a toolkit's accessibility off, and the values that do.
_OFF: Final = {
    "NO_AT_BRIDGE": re.compile(rb"(?!0\Z).+"),
    "GTK_A11Y": re.compile(rb"none\Z"),
    "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": re.compile(rb"0\Z"),
    "GNOME_ACCESSIBILITY": re.compile(rb"0\Z"),
}
# What a process has mapped says what it is made with.
_LATE: Final = {"libQt6": "Qt 6", "libQt5": "Qt 5", "libxul": "Firefox"}
# Of a file of /proc: a program's maps may be long, and its libraries come early.
_MAX_BYTES: Final = 4 * 1024 * 1024


def bus_remedy(session: str | None) -> str:
    """What to do about an accessibility bus that does not answer."""
    if session is None:
        return "start the host inside the desktop session: DBUS_SESSION_BUS_ADDRESS says where its bus is"
    if not any(map(os.path.exists, LAUNCHERS)):
        return "install at-spi2-core, which starts the bus on demand"
    return "end at-spi-bus-launcher, which is started again on demand, or log in again"


def why_unreadable(pid: int, program: str | None, *, on_bus: bool, proc: str = "/proc") -> str | None:
    """A sentence with what to do; None where nothing is known to be wrong."""
    if program is not None and os.path.exists(os.path.join(os.path.dirname(program), _CHROMIUM_FILE)):
        arguments = _read(proc, pid, "cmdline").split(b"\0")
        if not any(each.split(b"=")[0] == _CHROMIUM_FLAG.encode() for each in arguments):
            return f"made with Chromium, and shows only its frame: start it with {_CHROMIUM_FLAG}"
    if on_bus:
        return None
    for pair in _read(proc, pid, "environ").split(b"\0"):
        name, _, value = pair.partition(b"=")
        off = _OFF.get(name.decode("ascii", "replace"))
        if off is not None and off.match(value):
            return f"started with {name.decode()}={value.decode('ascii', 'replace')}: start it without that"
    maps = _read(proc, pid, "maps")
    for library, toolkit in _LATE.items():
        if library.encode() in maps:
            return f"made with {toolkit}, which looks for us only when it starts: start it again"
    return "not on the accessibility bus: its picture can be taken and keys reach it, its elements cannot be read"


def _read(proc: str, pid: int, name: str) -> bytes:
    """Nothing where the process is gone, or another user's."""
    with contextlib.suppress(OSError), open(os.path.join(proc, str(pid), name), "rb") as file:
        return file.read(_MAX_BYTES)
    return b""
