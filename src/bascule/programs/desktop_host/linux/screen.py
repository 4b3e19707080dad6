"""Pixels of the screen, through the shared memory extension where there is one."""

import contextlib
from typing import Any

import mss
import mss.exception

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.ports import NotReachable, Shot


class Screen:
    """Used by the X thread alone."""

    def __init__(self, name: str | None, *, xwayland: bool = False) -> None:
        self._xwayland = xwayland
        try:
            self._mss: Any = mss.MSS(display=name) if name else mss.MSS()
        except mss.exception.ScreenShotError as error:
            raise NotReachable(f"the screen cannot be captured: {error}") from error

    def close(self) -> None:
        with contextlib.suppress(mss.exception.ScreenShotError, OSError):
            self._mss.close()

    def grab(self, rect: Rect) -> Shot:
        area = {"left": rect.x, "top": rect.y, "width": rect.width, "height": rect.height}
        try:
            shot = self._mss.grab(area)
        except mss.exception.ScreenShotError as error:
            raise NotReachable(f"the screen cannot be captured: {error}") from error
        pixels = bytes(shot.bgra)
        if self._xwayland and not pixels.strip(b"\0"):
            # A compositor keeps its windows' pixels from Xwayland, and the server answers with black instead.
            raise NotReachable("this X server is Xwayland, and the Wayland compositor shows it no pixels")
        return Shot(rect=rect, pixels=pixels)
