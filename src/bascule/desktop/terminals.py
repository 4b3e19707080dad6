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
