"""How toolkits differ in what they tell AT-SPI, as data. Each line was seen in a real program."""

import re
from typing import Final, Literal

import msgspec

from bascule.programs.desktop_host.ports import Pace

# Two processes between the act and its report, as in Chromium, and programs that are not known: 5 to 30 ms, seldom 80.
_PATIENT: Final = 0.12
# GTK and Qt report in the turn of their loop in which they act: 0 to 15 ms.
_PROMPT: Final = 0.06


TextUnit = Literal["bytes", "utf-16"]


class Quirks(msgspec.Struct, frozen=True, kw_only=True):
    # Cache.GetItems is complete by itself; else children are compared with the counts and asked for.
    bulk: bool = True
    # Coordinates that claim to be the screen's begin at the window's corner.
    window_relative: bool = False
    # It never sets SHOWING; VISIBLE is all there is.
    showing: bool = True
    # Names in the bulk answer may be '' although the object has one.
    names_missing: bool = False
    # What is written in a page has no name: it is the text of its paragraph.
    text_unnamed: bool = False
    # Its texts have U+FEFF behind each character beyond 16 bits: it counts in UTF-16, and AT-SPI in characters.
    text_padded: bool = False
    # GetText(0, -1) gives '': the end must be said.
    text_needs_end: bool = False
    # What has no name is called after its class: "GtkMenuButton".
    class_names: bool = False
    # In what InsertText counts the length of a text; None: not known, and a wrong one would put other memory into it.
    text_unit: TextUnit | None = None
    pace: Pace = Pace(0.0, _PATIENT)


# Chromium, LibreOffice: nothing to correct.
PLAIN: Final = Quirks()
# at-spi2-atk.
GTK3: Final = Quirks(text_unit="bytes", pace=Pace(0.0, _PROMPT))
# A button is shown pressed for 250 ms before it acts; in Qt for 100.
GTK4: Final = Quirks(
    window_relative=True,
    showing=False,
    text_needs_end=True,
    class_names=True,
    text_unit="bytes",
    pace=Pace(0.25, _PROMPT),
)
# Its cache is always empty, in an old signature.
QT: Final = Quirks(bulk=False, text_unit="utf-16", pace=Pace(0.1, _PROMPT))
GECKO: Final = Quirks(names_missing=True, text_unnamed=True, text_padded=True)
SLOWEST: Final = Pace(0.25, _PATIENT)


_CLASS_NAME: Final = re.compile(r"(?:Gtk|Adw|Gd|Hdy)[A-Z][A-Za-z0-9]*\Z")


def is_class_name(name: str) -> bool:
    return _CLASS_NAME.match(name) is not None


def quirks_of(toolkit: str, version: str) -> Quirks:
    name = toolkit.lower()
    if name == "gtk":
        return GTK3 if version.startswith(("2.", "3.")) else GTK4
    if name.startswith("qt"):
        return QT
    return GECKO if name == "gecko" else PLAIN
