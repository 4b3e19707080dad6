"""A window that is moved all the time: a click reaches the element that was judged, or it is not sent.

The control chooses the point in the same way and clicks there. It reaches other elements.
"""

import asyncio
import collections
import json
import os
import random
import socket
import struct
import threading
import time
from typing import Any, NamedTuple

import msgspec
import pytest
from desktop_rig import Desktop, until
from kwin_rig import KwinDesktop
from wayland_rig import WaylandDesktop
from Xlib import display as xdisplay

from bascule.desktop.errors import DesktopError
from bascule.desktop.protocol import Route, RouteApp, Selector, Target
from bascule.foundation.clock import SystemClock
from bascule.programs.desktop_host.acting import Acting, onto
from bascule.programs.desktop_host.executions import Execution
from bascule.programs.desktop_host.linux.backend import LinuxDesktop
from bascule.programs.desktop_host.linux.input import Input
from bascule.programs.desktop_host.linux.wayland.hands import OneWriteHands
from bascule.programs.desktop_host.looking import Looking
from bascule.programs.desktop_host.ports import Elsewhere, Halt
from bascule.programs.desktop_host.redaction import Typed
from patience import PATIENCE

LONG = bool(os.environ.get("BASCULE_LONG"))
TRIES, WANTED = (10_000, 1_000) if LONG else (400, 8)
# A click that does not arrive at all has reached something else.
LOST_SECONDS = 1.0
EVERY_SECONDS = 0.004
CELLS = 64
ACROSS, DOWN = (100, 500), (100, 400)


def somewhere():
    return random.randint(*ACROSS), random.randint(*DOWN)


class Mover(threading.Thread):
    """Puts a window somewhere else again and again, by a connection of its own."""

    def __init__(self, desktop, title):
        super().__init__(daemon=True)
        self._desktop, self._title = desktop, title
        self._ending = threading.Event()
        self.moves = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self.join()


class XMover(Mover):
    def run(self):
        connection = xdisplay.Display(self._desktop.display)
        listed = connection.screen().root.get_full_property(connection.intern_atom("_NET_CLIENT_LIST"), 0).value
        windows = (connection.create_resource_object("window", each) for each in listed)
        (window,) = (each for each in windows if each.get_wm_name() == self._title)
        while not self._ending.wait(EVERY_SECONDS):
            x, y = somewhere()
            window.configure(x=x, y=y)
            connection.sync()
            self.moves += 1
        connection.close()


class SwayMover(Mover):
    def run(self):
        container = next(each["id"] for each in self._desktop.views() if each["name"] == self._title)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(self._desktop.environment["SWAYSOCK"])
            while not self._ending.wait(EVERY_SECONDS):
                x, y = somewhere()
                words = f"[con_id={container}] move absolute position {x} px {y} px".encode()
                sock.sendall(b"i3-ipc" + struct.pack("=II", len(words), 0) + words)
                sock.recv(4_096)
                self.moves += 1


class KwinMover(Mover):
    """A script that KWin runs, as a window manager's own rules would be."""

    _MOVE = """\
var all = workspace.clientList(), timer = new QTimer(), first = true;
function within(range) { return range[0] + Math.floor(Math.random() * (range[1] - range[0])); }
timer.interval = %(every)s;
timer.timeout.connect(function () {
    for (var i = 0; i < all.length; i++) if (String(all[i].internalId) === %(id)s) {
        var g = all[i].frameGeometry;
        all[i].frameGeometry = {x: within(%(across)s), y: within(%(down)s), width: g.width, height: g.height};
    }
    if (first) report(true);
    first = false;
});
timer.start();
"""

    def run(self):
        (view,) = (each for each in self._desktop.views() if each["title"] == self._title)
        words = {"every": round(EVERY_SECONDS * 1000), "across": [*ACROSS], "down": [*DOWN]}
        self._desktop.script(self._MOVE % {**words, "id": json.dumps(view["id"])}, self._while_moving)

    def _while_moving(self, _):
        self.moves += 1
        self._ending.wait()


class Rig(NamedTuple):
    desktop: Any
    mover: Any
    environment: Any


@pytest.fixture(scope="module", params=["xvfb", "sway", "kwin"])
def rig(request):
    made, mover = {
        "xvfb": (Desktop, XMover),
        "sway": (WaylandDesktop, SwayMover),
        "kwin": (KwinDesktop, KwinMover),
    }[request.param]
    desktop = made()
    yield Rig(desktop, mover, desktop.with_permission if request.param == "kwin" else lambda: desktop.environment)
    desktop.close()


@pytest.fixture
def cells(rig):
    program = rig.desktop.start_bare("cells")
    until(lambda: rig.desktop.shows(program.title), program.title)
    rig.desktop.move(program.title, *somewhere())
    yield program
    program.kill()


def landed(program):
    return collections.Counter({name: count for name, count in program.state.items() if name.startswith("cell ")})


class Params(NamedTuple):
    target: Target
    route: Route


def run(rig, cells, click, *, tries, wanted=None, seconds=PATIENCE):
    """`click(acting, execution, aim, params)` at cells by chance; what was clicked, and why the others were not."""
    sent: collections.Counter[str] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()

    async def attempts():
        desktop = LinuxDesktop(rig.environment())
        await desktop.open()
        acting = Acting(Looking(desktop, None, Typed()))
        try:
            with rig.mover(rig.desktop, cells.title) as mover:
                await asyncio.to_thread(until, lambda: mover.moves, "the window moves")
                for turn in range(tries):
                    name = f"cell {random.randrange(CELLS):02}"
                    try:
                        await attempt(acting, desktop, name, turn)
                    except (DesktopError, Elsewhere) as error:
                        # Anything else than that it is not there has no reason.
                        refused[error.reason if isinstance(error, Elsewhere) else error.details["reason"]] += 1
                        continue
                    sent[name] += 1
                    if not await arrived(cells, sent, seconds) or (not LONG and sent.total() == wanted):
                        break
            assert mover.moves, "the window was moved"
        finally:
            await desktop.close()

    async def attempt(acting, desktop, name, turn):
        execution = Execution(None, str(turn), "desktop.click", SystemClock(), 30_000)
        params = Params(Target(selector=Selector(title_contains=name)), Route(app=RouteApp(pid=cells.pid)))
        aim = await acting.aim(execution, params)
        await click(acting, desktop, execution, aim, params)

    asyncio.run(attempts())
    return sent, refused


async def arrived(cells, sent, seconds=PATIENCE):
    """Whether every click has reached the cell that it was for."""
    end = time.monotonic() + seconds
    while (now := landed(cells)) != sent:
        if now - sent or time.monotonic() > end:
            return False
        await asyncio.sleep(0.001)
    return True


async def guarded(acting, desktop, execution, aim, params):
    x, y = await acting.point(execution, aim, params)
    await desktop.click_at(x, y, Halt(), onto(aim))


async def naive(acting, desktop, execution, aim, params):
    """Judge, then click there."""
    x, y = await acting.point(execution, aim, params)
    await desktop.click_at(x, y, Halt(), msgspec.structs.replace(onto(aim), judged=None))


def test_a_click_reaches_the_judged_element_of_a_window_that_moves_or_nothing(rig, cells, record_property):
    sent, refused = run(rig, cells, guarded, tries=TRIES, wanted=WANTED)
    record_property("clicked and refused", (sent.total(), dict(refused)))
    assert landed(cells) == sent
    assert sent.total() >= WANTED, refused


def test_the_point_alone_reaches_other_elements(rig, cells):
    """The control: the window moves while it is judged, and the point does not go with it by itself."""
    sent, _ = run(rig, cells, naive, tries=3_000, seconds=LOST_SECONDS)
    assert landed(cells) != sent


def test_a_point_that_follows_but_is_not_held_reaches_other_elements(rig, cells, monkeypatch):
    """The control of what comes between the last look and the click."""

    async def no_hold(*_):
        pass

    monkeypatch.setattr(Input, "_hold", lambda _: None)
    monkeypatch.setattr(OneWriteHands, "_hold", no_hold)
    sent, _ = run(rig, cells, guarded, tries=3_000, seconds=LOST_SECONDS)
    assert landed(cells) != sent
