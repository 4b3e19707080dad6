"""Several outputs and scales: elements are where they are said to be, pictures show them there, clicks reach them.

On X11 all outputs are one screen, and scales are the programs' own. Elsewhere the compositor has both.
"""

import asyncio

import pytest
from desktop_rig import Desktop, until
from kwin_rig import KwinDesktop
from PIL import Image, ImageChops
from wayland_rig import WaylandDesktop

from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux import trees
from bascule.programs.desktop_host.linux.backend import LinuxDesktop
from bascule.programs.desktop_host.linux.toplevels import UNSCALED, Scaled, scaled
from bascule.programs.desktop_host.ports import Elsewhere, Halt, Onto, Window

SCALE = 1.5
# The first output ends here; the second lies beside it, and is not as high on sway.
EDGE = 1280
# What the cell of that colour is called, and how far its picture may be off where pixels are not the screen's numbers.
COLOURED, OFF = "cell 27", 2


def sway():
    desktop = WaylandDesktop()
    desktop.message("create_output")
    desktop.message("output HEADLESS-1 position 0 0")
    desktop.message(f"output HEADLESS-2 resolution 1200x800 position {EDGE} 0 scale {SCALE}")
    scales = {each["name"]: each["scale"] for each in desktop.message("-t", "get_outputs")}
    assert scales == {"HEADLESS-1": 1.0, "HEADLESS-2": SCALE}
    return desktop


@pytest.fixture(scope="module", params=["sway", "kwin"])
def several(request):
    desktop = sway() if request.param == "sway" else KwinDesktop(outputs=2, scale=SCALE)
    yield desktop
    desktop.close()


@pytest.fixture(scope="module")
def wide():
    """As two outputs beside each other are to an X server."""
    desktop = Desktop("2560x900x24")
    yield desktop
    desktop.close()


def on_it(desktop, act):
    """`act(session)` on the desktop, as the host has it."""

    async def run():
        permitted = isinstance(desktop, KwinDesktop)
        session = LinuxDesktop(desktop.with_permission() if permitted else desktop.environment)
        await session.open()
        try:
            return await act(session)
        finally:
            await session.close()

    return asyncio.run(run())


async def look(session, program):
    """Its window and what is in it, by title."""
    (window,) = (each for each in await session.windows() if each.pid == program.pid)
    tree = await session.tree([window], seconds=10, max_depth=20, max_nodes=500)
    return window, {each.title: each for each in tree.elements if each.title}


def red(shot):
    """The box of the one red thing in a picture, on the screen."""
    size = (shot.rect.width, shot.rect.height)
    bands = Image.frombuffer("RGB", size, shot.pixels, "raw", "BGRX", 0, 1).split()
    mask = ImageChops.subtract(bands[0], bands[1]).point(lambda value: 255 * (value > 128))
    left, top, right, bottom = mask.getbbox()
    return Rect(left, top, right - left, bottom - top).moved(*shot.rect[:2])


@pytest.fixture
def cells(several):
    program = several.start_bare("cells")
    until(lambda: several.shows(program.title), program.title)
    yield program
    program.kill()


# On the second output, and across the edge between the two, with the coloured cell on it.
@pytest.mark.parametrize("x", [EDGE + 100, EDGE - 140])
def test_an_element_of_the_second_output_is_where_it_is_said_to_be(several, cells, x):
    several.move(cells.title, x, 60)

    async def act(session):
        window, found = await look(session, cells)
        box = found[COLOURED].rect
        shown = red(await session.grab(window.outer.grown(20).within(await session.screen()), [window]))
        assert all(abs(a - b) <= OFF for a, b in zip(box, shown, strict=True)), (box, shown)
        await session.click_at(*box.centre, Halt(), Onto(cells.pid, frozenset({window.handle})))

    on_it(several, act)
    cells.until(**{COLOURED: 1})


def test_the_second_output_of_the_rig_has_a_scale(several):
    """The control: it has more pixels than the screen has numbers for it."""

    async def act(session):
        link = session._session._link
        wayland = (await link.permitted() if isinstance(several, KwinDesktop) else await link.open()).wayland
        modes = []
        for name, version in wayland.globals["wl_output"]:
            output = wayland.bind_name("wl_output", name, version)
            output.handlers["mode"] = lambda _, width, height, __: modes.append((width, height))
        await wayland.roundtrip()
        return modes[-1]

    across, down = on_it(several, act)
    assert (across / SCALE, down / SCALE) == ((1280, 900) if isinstance(several, KwinDesktop) else (800, 800 / SCALE))


def test_what_lies_beside_all_outputs_is_not_clicked():
    desktop = sway()
    try:
        program = desktop.start_bare("cells")
        until(lambda: desktop.shows(program.title), program.title)
        # The second output ends above the coloured cell; the first goes on further down.
        desktop.move(program.title, EDGE + 100, 450)

        async def act(session):
            window, found = await look(session, program)
            onto = Onto(program.pid, frozenset({window.handle}))
            with pytest.raises(Elsewhere, match="not on the screen"):
                await session.click_at(*found[COLOURED].rect.centre, Halt(), onto)
            # The control: one that is on it.
            await session.click_at(*found["cell 00"].rect.centre, Halt(), onto)

        on_it(desktop, act)
        program.until(**{"cell 00": 1})
        assert COLOURED not in program.state
    finally:
        desktop.close()


@pytest.mark.parametrize(
    ("app", "guarded"),
    [
        *((app, True) for app in ("gtk3", "gtk4", "qt6")),
        ("qt6", False),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("qt5", True), ("gtk3", False), ("gtk4", False))),
    ],
)
def test_a_program_with_a_scale_of_its_own_is_clicked_where_its_elements_are(wide, app, guarded, monkeypatch):
    """The control takes its numbers for the screen's, and clicks elsewhere."""
    if not guarded:
        monkeypatch.setattr(trees, "scaled", lambda *_, **__: UNSCALED)
    program = wide.start(app, env={"GDK_SCALE": "2", "QT_SCALE_FACTOR": "2"})
    try:
        wide.move(program.title, EDGE + 20, 40)

        async def act(session):
            window, found = await look(session, program)
            onto = Onto(program.pid, frozenset({window.handle}))
            try:
                await session.click_at(*found["Press me"].rect.centre, Halt(), onto)
            except Elsewhere:
                assert not guarded
                return
            if not guarded:
                # Whatever was clicked, it was not the button.
                await session.tree([window], seconds=10, max_depth=2, max_nodes=10)
                assert not program.state.get("pressed")

        on_it(wide, act)
        if guarded:
            program.until(pressed=1)
    finally:
        program.kill()


def window_of(rect, *, outer=None, shadow=(0, 0, 0, 0), placeless=False):
    more = {"rect": rect, "outer": outer or rect, "shadow": shadow, "placeless": placeless}
    return Window(handle=1, pid=1, bundle_id="app", names=frozenset(("app",)), title="t", **more)


@pytest.mark.parametrize(
    ("window", "top", "relative", "expected"),
    [
        # A window that has no scale, whatever it has around it.
        (window_of(Rect(10, 30, 400, 300)), Rect(10, 30, 400, 300), False, UNSCALED),
        (window_of(Rect(11, 30, 400, 300), outer=Rect(10, 10, 402, 321)), Rect(10, 10, 402, 321), False, UNSCALED),
        # Qt names what is inside the frame, GTK 3 the frame; halves are rounded.
        (window_of(Rect(100, 60, 800, 600)), Rect(50, 30, 400, 300), False, Scaled(2.0)),
        (window_of(Rect(101, 80, 800, 599)), Rect(50, 40, 400, 300), False, Scaled(2.0, 1.0, 0.0)),
        (window_of(Rect(90, 60, 600, 450)), Rect(60, 40, 400, 300), False, Scaled(1.5)),
        # GTK 4 names what is inside its border and shadow.
        (window_of(Rect(0, 0, 410, 310)), Rect(0, 0, 400, 300), True, Scaled(1.0)),
        (window_of(Rect(0, 0, 920, 740), shadow=(40, 40, 40, 80)), Rect(0, 0, 410, 300), True, Scaled(2.0)),
        # A compositor's numbers are the program's; a size that is like nothing says nothing.
        (window_of(Rect(0, 0, 800, 600), placeless=True), Rect(0, 0, 400, 300), False, UNSCALED),
        (window_of(Rect(0, 0, 800, 600)), Rect(0, 0, 100, 300), False, UNSCALED),
        (window_of(Rect(0, 0, 800, 600)), Rect(0, 0, 0, 0), True, UNSCALED),
    ],
)
def test_a_scale_is_told_by_the_size_that_a_program_says(window, top, relative, expected):
    found = scaled(window, top, relative=relative)
    assert found == expected
    x, y = found.in_program(*found.on_screen(Rect(20, 40, 10, 10))[:2])
    assert (x, y) == (20, 40)
