"""Which session this is, and so whose parts are used. A Wayland session uses no part of X11, Xwayland or not."""

from collections.abc import Callable, Mapping

from bascule.desktop.gnome import is_gnome
from bascule.desktop.kwin import is_kde
from bascule.programs.desktop_host.linux.parts import Session
from bascule.programs.desktop_host.linux.wayland import sway_ipc
from bascule.programs.desktop_host.linux.wayland.bare import BareSession
from bascule.programs.desktop_host.linux.wayland.gnome import GnomeSession
from bascule.programs.desktop_host.linux.wayland.kwin import KwinSession
from bascule.programs.desktop_host.linux.wayland.sway import SwaySession
from bascule.programs.desktop_host.linux.x11_session import X11Session

# One of each kind, for whoever wants to know how they differ.
KINDS = (X11Session, SwaySession, KwinSession, GnomeSession, BareSession)


def session_of(environment: Mapping[str, str], on_stop_keys: Callable[[], None] | None) -> Session:
    wayland = bool(environment.get("WAYLAND_DISPLAY"))
    if wayland and sway_ipc.socket_path(environment) is not None:
        return SwaySession(environment, on_stop_keys)
    if is_kde(environment):
        return KwinSession(environment, on_stop_keys)
    if is_gnome(environment):
        return GnomeSession(environment, on_stop_keys)
    return BareSession(on_stop_keys) if wayland else X11Session(environment, on_stop_keys)
