"""What the launcher that has KWin's permission, and the host that it starts, must both know."""

from collections.abc import Mapping
from typing import Final

# The descriptor by which the host asks the launcher for connections.
LENDER: Final = "BASCULE_KWIN_LENDER"


def is_kde(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("WAYLAND_DISPLAY")) and "KDE" in environment.get("XDG_CURRENT_DESKTOP", "").split(":")
