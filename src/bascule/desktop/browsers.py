"""Programs in which Bascule's own console may be open in a tab."""

import os
from fnmatch import fnmatchcase
from typing import Final

# Against an app's id and its program's file name, in lower case; a wrong guess only asks more often.
PATTERNS: Final = (
    "*browser*",
    "*chrom*",
    "*firefox*",
    "*brave*",
    "*edge*",
    "*vivaldi*",
    "*opera*",
    "*librewolf*",
    "*waterfox*",
    "*floorp*",
    "*epiphany*",
    "*gnome.web*",
    "*falkon*",
    "*konqueror*",
    "*midori*",
    "*safari*",
    "*thorium*",
    "zen*",
)


def is_browser(app: str, program: str | None) -> bool:
    names = [app.lower()]
    if program is not None:
        # A file that was replaced by an update while it runs.
        names.append(os.path.basename(program.removesuffix(" (deleted)")).lower())
    return any(fnmatchcase(name, pattern) for name in names for pattern in PATTERNS)
