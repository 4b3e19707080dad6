"""The desktop: what the host would find in this session. Nothing needs it but the desktop bridge, so nothing fails."""

import importlib.util
import os
import sys

from bascule.cli.checks.patient import Check, Patient, Verdict, info, ok, warn
from bascule.desktop.gnome import is_gnome
from bascule.desktop.kwin import is_kde
from bascule.desktop.machine import gnome_install, kwin_permission
from bascule.programs.desktop_host.linux.programs import LAUNCHERS
from bascule.programs.desktop_host.linux.wayland.sway_ipc import socket_path

_PACKAGES = {"dbus_fast": "dbus-fast", "Xlib": "python-xlib", "mss": "mss", "PIL": "Pillow"}


def check_packages(_: Patient) -> Verdict:
    if sys.platform == "darwin":
        return info("the desktop host has no backend for macOS yet", "docs/bridges/desktop-macos.md says what it needs")
    missing = [name for module, name in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        return info(f"not installed: {', '.join(missing)}", "for the desktop host: pip install 'bascule[desktop]'")
    return ok(", ".join(_PACKAGES.values()))


def check_screen(patient: Patient) -> Verdict:
    if sys.platform == "darwin":
        return info("not looked at: no backend for macOS yet")
    display, wayland = (patient.environment.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if wayland and socket_path(patient.environment) is not None:
        return ok(f"Wayland at {wayland}: sway")
    if is_kde(patient.environment):
        if kwin_permission.installed() is not None:
            return ok(f"Wayland at {wayland}: KWin, which was told of our launcher")
        return warn(
            f"Wayland at {wayland}: KWin was not told of this installation: elements are read, pressed and set; there "
            "are no pictures, keys and clicks",
            "`bascule desktop kwin install` shows what it does and asks",
        )
    if is_gnome(patient.environment):
        if gnome_install.installed():
            return ok(f"Wayland at {wayland or 'an unnamed socket'}: GNOME, with our extension in its shell")
        return warn(
            f"Wayland at {wayland or 'an unnamed socket'}: GNOME without our extension: elements are read, pressed and "
            "set; there are no places, pictures, keys and clicks",
            "`bascule desktop gnome install` shows what it does and asks",
        )
    if wayland:
        return warn(
            f"Wayland at {wayland}, and the compositor is none of sway, KWin and GNOME: elements are read, pressed and "
            "set; there are no pictures, keys and clicks",
            "log in to sway, to KDE, to GNOME or to an Xorg session for the rest",
        )
    if display:
        return ok(f"X11 at {display}")
    return info(
        "no screen here (neither WAYLAND_DISPLAY nor DISPLAY is set)",
        "for agents on the desktop: run `bascule desktop enable` in a terminal of that desktop",
    )


def check_accessibility(patient: Patient) -> Verdict:
    """The bus that windows describe themselves on. Asking would start it, and the doctor changes nothing."""
    if sys.platform == "darwin":
        return info("not looked at: no backend for macOS yet")
    runtime = patient.environment.get("XDG_RUNTIME_DIR", "")
    session = patient.environment.get("DBUS_SESSION_BUS_ADDRESS") or (
        f"unix:path={runtime}/bus" if runtime and os.path.exists(f"{runtime}/bus") else None
    )
    if not any(map(os.path.exists, LAUNCHERS)):
        return info("AT-SPI is not installed", "for the desktop host: apt-get install at-spi2-core")
    if session is None:
        return info(
            "no session bus here",
            "for agents on the desktop: run `bascule desktop enable` in a terminal of that desktop",
        )
    return ok(
        "AT-SPI, started on demand. Chromium and Electron programs need --force-renderer-accessibility; "
        "Qt 6 and Firefox are to be started after the host"
    )


def check_switch(patient: Patient) -> Verdict:
    """What the daemon says of it: off until a person says otherwise, so that is no fault."""
    status = patient.ask("desktop.status")
    if not status:
        return info("unknown while the daemon does not answer")
    if not status.get("enabled"):
        return info("not enabled: no agent can see or use it", "to let them: `bascule desktop enable`")
    if status.get("stopped"):
        return warn("stopped: nothing reaches the screen", "to go on: `bascule desktop resume`")
    if problem := status.get("problem"):
        return warn(f"enabled, but its host is not there: {problem}", "`bascule desktop doctor` says what is missing")
    stop = status.get("stopKeys") or "`bascule desktop stop`"
    return ok(f"enabled for {status.get('display') or 'the session of the daemon'}; {stop} stops it")


CHECKS: tuple[Check, ...] = (
    Check("desktop packages", check_packages),
    Check("desktop screen", check_screen),
    Check("accessibility", check_accessibility),
    Check("desktop", check_switch),
)
