"""Programs in which typing runs commands: terminal emulators, and the boxes that start programs by name.

What is typed there runs outside of the sandbox, as the user, and no policy on commands sees it. So they ask every time.
"""

import os
from fnmatch import fnmatchcase
from typing import Final

# Against an app's id and its program's file name, in lower case. "term" in a name is nearly always one; a wrong guess
# only asks more often.
PATTERNS: Final = (
    "*term*",
    "*konsole*",
    "*kitty*",
    "*alacritty*",
    "*guake*",
    "*yakuake*",
    "*tilix*",
    "*tilda*",
    "*ghostty*",
    "*ptyxis*",
    "*urxvt*",
    "*rxvt*",
    "*.console",
    "kgx",
    "foot",
    "footclient",
    "st",
    "st-256color",
    "rio",
    "hyper",
    "tabby",
    "warp*",
    "dev.warp.*",
    "zutty",
    "sakura",
    "contour",
    "*blackbox*",
    "*krunner*",
    "*rofi*",
    "*dmenu*",
    "*wofi*",
    "*fuzzel*",
    "*ulauncher*",
    "*albert*",
    "*xfrun*",
    "*gmrun*",
    "*xfce4-appfinder*",
)


def is_terminal(app: str, program: str | None) -> bool:
    names = [app.lower()]
    if program is not None:
        # A file that was replaced by an update while it runs.
        names.append(os.path.basename(program.removesuffix(" (deleted)")).lower())
    return any(fnmatchcase(name, pattern) for name in names for pattern in PATTERNS)


# VTE says that it is a terminal. Editors made of web pages say so in the label of a text field alone, and those in
# other languages than English are not recognised.
_ROLE: Final = "terminal"
_LABEL: Final = "terminal*"


def is_terminal_element(native_role: str, title: str | None) -> bool:
    return native_role == _ROLE or (title is not None and fnmatchcase(title.lower(), _LABEL))
