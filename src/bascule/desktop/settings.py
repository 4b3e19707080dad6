"""What its user may set about the desktop."""

import os
from collections.abc import Sequence

from bascule.desktop.capabilities import Trust
from bascule.foundation import paths
from bascule.kernel.settings import BadConfig, Settings


class DesktopSettings(Settings, frozen=True, kw_only=True):
    # Where evidence of what was done on the desktop may lie: a call's workspacePath must be beneath it. Unless set,
    # your home directory.
    desktop_root: str | None = None
    # More apps that nobody looks at or acts in, whatever anybody approves, as globs over app ids, with commas. Password
    # managers, keyrings and screen lockers are kept out already.
    desktop_keep_out: str = ""
    # How sure it must be that a key or a click reaches the window that it is for. "checked": where a session can do no
    # more (GNOME) it is looked at just before, and the question says so. "held": there they are refused, and elements
    # are pressed and set by their own programs alone. X11, sway and KWin hold every key and click.
    desktop_trust: Trust = "checked"

    def directory(self) -> str:
        return os.path.abspath(paths.expand(self.desktop_root)) if self.desktop_root else paths.home()

    def kept_out(self) -> tuple[str, ...]:
        # In lower case, as the ids are when they are compared.
        return tuple(each.strip().lower() for each in self.desktop_keep_out.split(",") if each.strip())

    def check(self, _ours: Sequence[str], /) -> None:
        if self.desktop_root is not None and not os.path.isdir(self.directory()):
            raise BadConfig(
                f"desktop_root: {self.directory()} is not a directory",
                hint="make it, or name the one below which evidence of what is done on the desktop may lie",
            )
