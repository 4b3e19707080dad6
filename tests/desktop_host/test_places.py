"""Where an element is said to be, its pixels are: also in a window whose program draws border and shadow itself."""

import contextlib
import json

import pytest
from desktop_rig import until
from PIL import Image
from test_other_programs import open_program
from Xlib import X, Xatom, display

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.toplevels import inside_corner
from bascule.programs.desktop_host.ports import Window

CALCULATOR = {"window": {"titlePattern": "Calculator"}}
EQUALS = {"byRole": "AXButton", "titleContains": "="}
# How far a button's frame is around what it holds, which is what GTK 4 names as its place.
PADDING = 12


@contextlib.contextmanager
def compositor(desktop):
    """GTK draws shadows where somebody owns this selection and the window manager says that it knows of them."""
    screen = display.Display(desktop.environment["DISPLAY"])
    root = screen.screen().root
    supported, extents, selection = map(screen.intern_atom, ("_NET_SUPPORTED", "_GTK_FRAME_EXTENTS", "_NET_WM_CM_S0"))
    known = until(lambda: root.get_full_property(supported, Xatom.ATOM), "the window manager").value
    owner = root.create_window(0, 0, 1, 1, 0, X.CopyFromParent)
    owner.set_selection_owner(selection, X.CurrentTime)
    root.change_property(supported, Xatom.ATOM, 32, [*known, extents])
    screen.sync()
    try:
        yield
    finally:
        root.change_property(supported, Xatom.ATOM, 32, list(known))
        screen.sync()
        screen.close()


def orange(path):
    """The box around the one button of that colour, inside the picture."""
    picture = Image.open(path).convert("RGB")
    mask = Image.eval(picture.getchannel("R"), lambda value: 255 * (value > 220))
    blue = Image.eval(picture.getchannel("B"), lambda value: 255 * (value < 60))
    mask.paste(0, mask=Image.eval(blue, lambda value: 255 - value))
    left, top, right, bottom = mask.getbbox()
    return Rect(left, top, right - left, bottom - top)


def check_box(desktop, host):
    """A button's box lies in its pixels; how much wider the picture is than what the window holds."""
    program = open_program(desktop, host, "Calculator", "gnome-calculator", "--mode=basic")
    try:
        ready = {"selectorExists": EQUALS}
        host.call("desktop.waitUntil", route=CALCULATOR, condition=ready, timeoutMs=30_000)
        result = host.call("desktop.observe", route=CALCULATOR, options={"axMaxDepth": 64})
    finally:
        program.kill()
        program.wait()
    folder = host.evidence(result)
    nodes = json.loads((folder / "ax.json").read_text())["nodes"]
    steps = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    area = next(step for step in steps if step["step"] == "picture")
    top = next(Rect(**node["frame"]) for node in nodes if node["role"] == "AXWindow")
    label = next(node for node in nodes if node["role"] == "AXStaticText" and node["title"] == "=")
    box = Rect(**nodes[label["parent"]]["frame"])
    pixels = orange(folder / "observe.png").moved(area["x"], area["y"])
    around = [box.x - pixels.x, box.y - pixels.y, pixels.right - box.right, pixels.bottom - box.bottom]
    assert all(0 <= side <= PADDING for side in around), (box, pixels)
    # As far from the left as from the right, and from above as from below.
    assert abs(around[0] - around[2]) <= 2
    assert abs(around[1] - around[3]) <= 2
    return area["width"] - top.width


@pytest.mark.parametrize("shadow", [False, True])
def test_the_box_of_a_gtk_4_button_lies_in_its_pixels(desktop, host, shadow):
    with compositor(desktop) if shadow else contextlib.nullcontext():
        wider = check_box(desktop, host)
    # A shadow of tens of pixels, or a border of some.
    assert (wider > 80) is shadow


@pytest.mark.parametrize("desktop", ["sway", "kwin"], indirect=True, scope="session")
@pytest.mark.parametrize("app", ["gtk4"])
def test_the_box_of_a_button_lies_in_its_pixels_on_wayland(desktop, host, app):
    """Its shadow is in what GTK draws, and not in the window as compositors know it."""
    assert check_box(desktop, host) == 0


@pytest.mark.parametrize(
    ("size", "shadow", "inside", "corner"),
    [
        # The window manager's own frame; GTK's border alone; with a shadow that is larger below.
        ((420, 420), (0, 0, 0, 0), (420, 420), (100, 50)),
        ((365, 496), (0, 0, 0, 0), (355, 486), (105, 55)),
        ((417, 552), (25, 25, 22, 28), (365, 500), (126, 73)),
        # Larger than its window, as one that is just resized: nothing is guessed.
        ((300, 300), (0, 0, 0, 0), (355, 486), (100, 50)),
    ],
)
def test_the_inside_begins_behind_shadow_and_border(size, shadow, inside, corner):
    rect = Rect(100, 50, *size)
    window = Window(
        handle=1, pid=7, bundle_id="app", names=frozenset(("app",)), title="t", rect=rect, outer=rect, shadow=shadow
    )
    place = Rect(0, 0, *inside)
    assert inside_corner(window, place) == corner
