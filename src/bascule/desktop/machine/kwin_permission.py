"""KWin's permission for our host: a launcher made for it here, and an entry that names the launcher to KWin.

Nothing of it is done unless a person has seen it and said yes.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from typing import Final

import msgspec

from bascule.desktop.machine.installing import CannotInstall
from bascule.desktop.machine.kwin_launcher import host_command, source
from bascule.foundation import paths

LAUNCHER: Final = "bascule-desktop-host"
ENTRY: Final = "io.bascule.desktop-host.desktop"
# cc needs half a second.
COMPILE_SECONDS: Final = 60.0
# What the words of an entry's Exec are cut at or read otherwise.
_SPECIAL: Final = frozenset(" \t\n\"'\\%$`<>~|&;*?#()=")

_ENTRY: Final = """\
[Desktop Entry]
Type=Application
Name=Bascule desktop host
Comment=Lets agents see and use windows, as far as you allow it
NoDisplay=true
Exec={launcher}
X-KDE-Wayland-Interfaces=org_kde_plasma_window_management,org_kde_kwin_fake_input
X-KDE-DBUS-Restricted-Interfaces=org.kde.KWin.ScreenShot2
"""


class Plan(msgspec.Struct, frozen=True):
    launcher: str
    code_file: str
    code: str
    compile: list[str]
    entry_file: str
    entry: str


def directory() -> str:
    return os.path.join(paths.home(), ".local", "share", "bascule", "kwin")


def launcher_file() -> str:
    return os.path.join(directory(), LAUNCHER)


def entry_file() -> str:
    data = os.environ.get("XDG_DATA_HOME") or os.path.join(paths.home(), ".local", "share")
    return os.path.join(data, "applications", ENTRY)


def entry(launcher: str) -> str:
    return _ENTRY.format(launcher=launcher)


def plan(python: str | None = None, compiler: str | None = None) -> Plan:
    compiler = compiler or shutil.which("cc")
    if compiler is None:
        raise CannotInstall(
            "there is no C compiler here, which the launcher is made with",
            "install one: apt-get install gcc libc6-dev, dnf install gcc glibc-static, pacman -S gcc",
        )
    launcher = launcher_file()
    if special := _SPECIAL.intersection(launcher):
        raise CannotInstall(
            f"KWin cannot be told of {launcher}: its path has {min(special)!r} in it",
            "use a home directory without such characters",
        )
    code_file = f"{launcher}.c"
    # Static: nobody's code is loaded into it by LD_PRELOAD.
    words = [compiler, "-O2", "-static", "-o", f"{launcher}.new", code_file]
    code = source(host_command(python or sys.executable))
    return Plan(launcher, code_file, code, words, entry_file(), entry(launcher))


def install(planned: Plan) -> None:
    paths.make_private_dir(directory())
    paths.write_private_file(planned.code_file, planned.code)
    try:
        made = subprocess.run(  # noqa: S603 - a compiler of this machine, on what was shown
            planned.compile,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMPILE_SECONDS,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(f"{planned.compile[0]} could not be run: {error}", "install another C compiler") from error
    if made.returncode:
        # Nothing is left that would be taken for a launcher of this installation.
        os.unlink(planned.code_file)
        raise CannotInstall(
            f"{planned.compile[0]} could not make the launcher: {made.stderr.strip()[-500:]}",
            "it links statically: install libc6-dev (Debian), glibc-static (Fedora)",
        )
    os.chmod(f"{planned.launcher}.new", 0o700)
    paths.put_in_place(f"{planned.launcher}.new", planned.launcher)
    os.makedirs(os.path.dirname(planned.entry_file), mode=0o700, exist_ok=True)
    paths.write_private_file(planned.entry_file, planned.entry)


def remove() -> list[str]:
    """What was there and is not any more. The entry first: KWin then gives nothing."""
    launcher = launcher_file()
    gone = []
    for path in (entry_file(), launcher, f"{launcher}.c"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            gone.append(path)
    return gone


def installed(python: str | None = None) -> str | None:
    """The launcher, if it starts this very installation; another's would run another's code."""
    launcher = launcher_file()
    try:
        paths.check_private_dir(directory())
        made_of = paths.read_private_file(f"{launcher}.c")
    except (OSError, paths.UnsafePlace):
        return None
    if made_of != source(host_command(python or sys.executable)) or not os.access(launcher, os.X_OK):
        return None
    return launcher
