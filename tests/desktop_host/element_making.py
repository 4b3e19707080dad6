"""Elements and trees for tests that need no desktop."""

from bascule.programs.desktop_host.elements import Element, Key, arrange
from bascule.programs.desktop_host.geometry import NOWHERE, Rect


def element(title="", role="AXButton", path="/0", rect=(0, 0, 10, 10), states=("showing", "enabled"), **more):
    rect = Rect(*rect)
    key = Key("app", path)
    return Element(
        key=key,
        role=role,
        native_role="push button",
        title=title,
        rect=rect,
        visible=rect,
        states=frozenset(states),
        **more,
    )


def tree_of(*elements):
    """All below one application."""
    root = element("app", "AXApplication", "/root", rect=NOWHERE)
    return arrange([(root, None), *((each, root.key) for each in elements)], root.key, max_depth=9, max_nodes=999)
