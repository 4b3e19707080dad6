"""The contract's AX roles and AT-SPI's, both ways. The native role is kept beside: the mapping loses some.

Numbers are those of the `AtspiRole` enumeration, which is part of the D-Bus protocol and only grows at its end.
"""

from typing import Final

_NATIVE_NAMES: Final = (
    "invalid|accelerator label|alert|animation|arrow|calendar|canvas|check box|check menu item|color chooser|"
    "column header|combo box|date editor|desktop icon|desktop frame|dial|dialog|directory pane|drawing area|"
    "file chooser|filler|focus traversable|font chooser|frame|glass pane|html container|icon|image|internal frame|"
    "label|layered pane|list|list item|menu|menu bar|menu item|option pane|page tab|page tab list|panel|"
    "password text|popup menu|progress bar|push button|radio button|radio menu item|root pane|row header|scroll bar|"
    "scroll pane|separator|slider|spin button|split pane|status bar|table|table cell|table column header|"
    "table row header|tearoff menu item|terminal|text|toggle button|tool bar|tool tip|tree|tree table|unknown|"
    "viewport|window|extended|header|footer|paragraph|ruler|application|autocomplete|editbar|embedded|entry|chart|"
    "caption|document frame|heading|page|section|redundant object|form|link|input method window|table row|tree item|"
    "document spreadsheet|document presentation|document text|document web|document email|comment|list box|grouping|"
    "image map|notification|info bar|level bar|title bar|block quote|audio|video|definition|article|landmark|log|"
    "marquee|math|rating|timer|static|math fraction|math root|subscript|superscript|description list|"
    "description term|description value|footnote|content deletion|content insertion|mark|suggestion|push button menu"
)
_NATIVE: Final = _NATIVE_NAMES.split("|")

# What has no AX name of its own is AXGroup when it only holds others, else AXUnknown.
_AX: Final = {
    "AXApplication": "application",
    "AXWindow": "frame|window|internal frame|desktop frame",
    "AXDialog": "dialog|alert|file chooser|color chooser|font chooser|option pane|notification",
    "AXButton": "push button|arrow|push button menu|toggle button",
    "AXCheckBox": "check box",
    "AXRadioButton": "radio button|page tab",
    "AXTabGroup": "page tab list",
    "AXTextField": "entry|editbar|autocomplete|date editor",
    "AXTextArea": "text|terminal|document text",
    "AXSecureTextField": "password text",
    "AXStaticText": "label|static|caption|accelerator label|paragraph|tool tip|footnote",
    "AXHeading": "heading",
    "AXLink": "link",
    "AXImage": "image|icon|desktop icon|animation",
    "AXMenuBar": "menu bar",
    "AXMenu": "menu|popup menu",
    "AXMenuItem": "menu item|check menu item|radio menu item|tearoff menu item",
    "AXComboBox": "combo box",
    "AXSlider": "slider|dial",
    "AXIncrementor": "spin button",
    "AXProgressIndicator": "progress bar",
    "AXLevelIndicator": "level bar|rating",
    "AXScrollBar": "scroll bar",
    "AXScrollArea": "scroll pane|viewport",
    "AXSplitter": "separator",
    "AXSplitGroup": "split pane",
    "AXToolbar": "tool bar",
    "AXTable": "table|document spreadsheet",
    "AXOutline": "tree|tree table",
    "AXRow": "table row|tree item",
    "AXCell": "table cell",
    "AXColumn": "column header|table column header",
    "AXList": "list|list box|description list",
    "AXGroup": "panel|filler|layered pane|root pane|glass pane|section|form|grouping|page|header|footer|title bar|"
    "status bar|info bar|list item|embedded|landmark|article|redundant object|block quote|directory pane",
    "AXWebArea": "document web|document frame|html container|document email|document presentation",
    "AXCanvas": "canvas|drawing area|chart|image map",
    "AXRuler": "ruler",
}
_AX_OF: Final = {native: ax for ax, natives in _AX.items() for native in natives.split("|")}

APPLICATION: Final = "AXApplication"
SECRET: Final = "AXSecureTextField"  # noqa: S105 - the name of a role
DIALOGS: Final = frozenset({"AXDialog"})
WINDOWS: Final = frozenset({"AXWindow", "AXDialog"})
# Their content may be drawn outside their own rectangle, in a window of its own.
POPUPS: Final = frozenset({"AXMenu", "AXComboBox", *WINDOWS})
TYPED_INTO: Final = frozenset({"AXTextField", "AXTextArea", SECRET, "AXComboBox", "AXIncrementor"})


def native_role(number: int) -> str:
    return _NATIVE[number] if 0 <= number < len(_NATIVE) else "unknown"


def ax_role(native: str) -> str:
    return _AX_OF.get(native, "AXUnknown")


def native_roles(ax: str) -> tuple[str, ...]:
    """Every AT-SPI role that is shown as this AX role."""
    return tuple(_AX[ax].split("|")) if ax in _AX else ()


def known_roles() -> tuple[str, ...]:
    return (*_AX, "AXUnknown")
