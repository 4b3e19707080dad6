"""Whether our hooks still hold after Claude Code saw its settings change.

A project's file may say `disableAllHooks`, and anything that runs as the user may rewrite the user's own: new sessions
then report nothing. The session that is open keeps its hooks if the hook says `block`, and somebody can be told.
"""

from __future__ import annotations

import os

from bascule.foundation import paths
from bascule.local_client.values import decode

TYPE_CHECKING = False  # `typing` costs 5 ms of a 40 ms program; mypy knows the name
if TYPE_CHECKING:
    from typing import Any

# Settings are a few kilobytes; what is larger is not looked at.
MAX_SETTINGS_BYTES = 1024 * 1024
_OURS = (b"bridge-native", b"native_hook")


def switched_off(event: dict[str, Any], state: str) -> str | None:
    """Why new sessions report nothing; None while they do, and after `bascule off`."""
    folder = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.join(paths.home(), ".claude")
    settings = os.path.join(folder, "settings.json")
    # `off` strikes the file from here.
    if os.path.realpath(settings).encode() not in _read(paths.native_record(state)):
        return None
    named = event.get("file_path")
    changed = named if isinstance(named, str) and named else settings
    if _disables(_read(changed)):
        return f"{changed} sets disableAllHooks"
    if not any(name in _read(settings) for name in _OURS):
        return f"our hooks were taken out of {settings}"
    return None


def _disables(data: bytes) -> bool:
    try:
        value = decode(data)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("disableAllHooks") is True


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, MAX_SETTINGS_BYTES)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
