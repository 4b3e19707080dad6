"""What the extension in GNOME Shell, and the host that asks it, must both know."""

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Final

from bascule.foundation import paths

# Beneath the shell's own directory of extensions, and in its settings.
UUID: Final = "desktop-host@bascule.io"
BUS_NAME: Final = "io.bascule.Gnome"
BUS_PATH: Final = "/io/bascule/Gnome"


def is_gnome(environment: Mapping[str, str]) -> bool:
    """A GNOME session on Wayland, whether or not a terminal in it was told where."""
    wayland = environment.get("WAYLAND_DISPLAY") or environment.get("XDG_SESSION_TYPE") == "wayland"
    return bool(wayland) and "GNOME" in environment.get("XDG_CURRENT_DESKTOP", "").split(":")


def token_file() -> str:
    return os.path.join(paths.home(), ".local", "share", "bascule", "gnome", "token")


def proof(token: str, side: str, *words: str) -> str:
    """That this side has the token. `words`: both bus names and both numbers, so that it is good for nobody else."""
    return hmac.new(token.encode(), " ".join((side, *words)).encode(), hashlib.sha256).hexdigest()
