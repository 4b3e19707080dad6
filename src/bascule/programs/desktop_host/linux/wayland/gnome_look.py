"""Windows as our extension in GNOME Shell describes them. Pure."""

from collections.abc import Callable
from typing import Final

from bascule.programs.desktop_host.linux.wayland.kwin_look import Seen, described_windows

# Added to the shell's own numbers: those of windows that programs describe themselves are below.
_FIRST_HANDLE: Final = 1 << 40


def seen_in(answer: str, program_of: Callable[[int], str | None]) -> Seen:
    return described_windows(answer, program_of, handle_of, "GNOME's shell")


def handle_of(window_id: str) -> int | None:
    return _FIRST_HANDLE + int(window_id) if window_id.isascii() and window_id.isdigit() else None


def id_of(handle: int) -> str:
    """Of a window that the shell does not know: the number of none."""
    return str(handle - _FIRST_HANDLE)
