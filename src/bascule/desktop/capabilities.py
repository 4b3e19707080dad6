"""What a session lets the host do: said in health and doctor, and compared in the docs."""

from typing import Literal

from bascule.kernel.rows import Result

# How sure it is that an event reaches the window that it is for. `held`: nothing can come between the look and the
# event; `checked`: looked at first, and a window that takes the focus in that moment gets it; `none`: no event can be
# sent.
Hold = Literal["held", "checked", "none"]
# The least that is used.
Trust = Literal["checked", "held"]


class Capabilities(Result, frozen=True, kw_only=True, omit_defaults=False):
    """As found by trying."""

    # Whose windows: "X11", "sway", "KWin", "GNOME", "Wayland" for any other compositor.
    session: str
    # Where windows are, and which lies above which.
    places: bool
    # `crop`: of the screen, with what is not the window's covered; `own`: of the window, whatever lies over it.
    pictures: Literal["own", "crop", "none"]
    keys: Hold
    clicks: Hold
    # Elements can be read, and pressed and set through their programs.
    elements: bool
    # What comes first when a text is typed: a paste, or the field's own program.
    text: Literal["paste", "field", "none"]
