"""Another program takes the focus all the time: what is sent to a window reaches that one or nobody.

The control sends in the order that suggests itself: bring to the front, look, send. It leaks.
"""

import asyncio
import os
import socket
import struct
import threading
import time
from typing import Any, NamedTuple

import pytest
from dbus_fast import Message
from dbus_fast.aio import MessageBus
from desktop_rig import until
from kwin_rig import KwinDesktop
from wayland_rig import WaylandDesktop

from bascule.programs.desktop_host.linux.wayland.kwin import KwinSession
from bascule.programs.desktop_host.linux.wayland.sway import SwaySession
from bascule.programs.desktop_host.ports import Elsewhere, Halt, Onto
from patience import PATIENCE

TRIES = 10_000 if os.environ.get("BASCULE_LONG") else 80
EVERY_SECONDS = 0.004
# As many may be on their way.
AHEAD = 50


class Thief(threading.Thread):
    """Gives a window the focus again and again, by a connection and a protocol of its own."""

    def __init__(self):
        super().__init__(daemon=True)
        self._ending = threading.Event()
        self.thefts = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        self.join()


class SwayThief(Thief):
    def __init__(self, desktop, title):
        super().__init__()
        self._path = desktop.environment["SWAYSOCK"]
        container = next(each["id"] for each in desktop.views() if each["name"] == title)
        words = f"[con_id={container}] focus".encode()
        self._message = b"i3-ipc" + struct.pack("=II", len(words), 0) + words

    def run(self):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(self._path)
            while not self._ending.wait(EVERY_SECONDS):
                sock.sendall(self._message)
                sock.recv(4_096)
                self.thefts += 1


class KwinThief(Thief):
    """As KDE's search does when a window is chosen there."""

    def __init__(self, desktop, title):
        super().__init__()
        self._address = desktop.environment["DBUS_SESSION_BUS_ADDRESS"]
        self._window = next(each["id"] for each in desktop.views() if each["title"] == title)

    def run(self):
        asyncio.run(self._steal())

    async def _steal(self):
        bus = await MessageBus(bus_address=self._address).connect()
        where = {"destination": "org.kde.KWin", "path": "/WindowsRunner", "interface": "org.kde.krunner1"}
        while not self._ending.is_set():
            await asyncio.sleep(EVERY_SECONDS)
            await bus.call(Message(**where, member="Run", signature="ss", body=[f"0_{self._window}", ""]))
            self.thefts += 1
        bus.disconnect()


class Rig(NamedTuple):
    desktop: Any
    thief: Any
    # A session on this desktop, as the host has one.
    session: Any


@pytest.fixture(scope="module", params=["sway", "kwin"])
def rig(request):
    if request.param == "sway":
        desktop = WaylandDesktop()
        made = Rig(desktop, SwayThief, lambda: SwaySession(desktop.environment, None))
    else:
        desktop = KwinDesktop()
        made = Rig(desktop, KwinThief, lambda: KwinSession(desktop.with_permission(), None))
    yield made
    desktop.close()


@pytest.fixture
def pair(rig):
    """The window that is meant, and the one that wants everything; one lies over the other."""
    meant, other = rig.desktop.start_bare("count", title="meant"), rig.desktop.start_bare("count", title="other")
    for each in (meant, other):
        until(lambda each=each: rig.desktop.shows(each.title), each.title)
        rig.desktop.move(each.title, 100, 100)
    yield meant, other
    meant.kill()
    other.kill()


async def naive(session, window, send):
    """Bring to the front, look whether it is there, send."""
    if not await session.windows.activate(window):
        return
    screen = await session.windows.screen()
    hands = await session._link.hands()
    send(hands._devices, screen)
    await hands._connection.roundtrip()


def run(rig, pair, act):
    """`act(session, window)` as often as it takes; how much reached the two windows."""
    meant, other = pair
    thief = rig.thief(rig.desktop, other.title)

    async def tries():
        session = rig.session()
        await session.open()
        try:
            (window,) = (each for each in await session.windows.windows() if each.pid == meant.pid)
            with thief:
                sent = await act(session, window)
            assert thief.thefts, "the thief was at work"
            return sent
        finally:
            await session.close()

    return asyncio.run(tries())


async def keep_pace(pair, kind, sent):
    """A program that does not read what it is sent is ended by the compositor."""
    end = time.monotonic() + PATIENCE
    while sent % AHEAD == 0 and sum(each.state.get(kind, 0) for each in pair) < sent:
        assert time.monotonic() < end, f"{sent} {kind} arrive"
        await asyncio.sleep(0.005)


def settled(pair, kind, count):
    meant, other = pair
    until(lambda: meant.state.get(kind, 0) + other.state.get(kind, 0) >= count, f"{count} {kind} arrive")
    # Whatever else is on its way would be there by now: both were told before.
    time.sleep(0.2)
    return meant.state.get(kind, 0), other.state.get(kind, 0)


def test_a_key_reaches_the_window_it_is_for_whoever_takes_the_focus(rig, pair):
    async def act(session, window):
        sent = 0
        for _ in range(TRIES):
            try:
                await session.hands.chord(["x"], Halt(), window)
                sent += 1
            except Elsewhere:
                continue
            await keep_pace(pair, "keys", sent)
        return sent

    sent = run(rig, pair, act)
    assert sent > TRIES / 2
    assert settled(pair, "keys", sent) == (sent, 0)


def test_a_click_reaches_the_window_it_is_for_whoever_comes_above(rig, pair):
    async def act(session, window):
        sent = 0
        onto = Onto(window.pid, frozenset({window.handle}))
        for _ in range(TRIES):
            try:
                await session.hands.click_at(*window.rect.centre, Halt(), onto)
                sent += 1
            except Elsewhere:
                continue
            await keep_pace(pair, "buttons", sent)
        return sent

    sent = run(rig, pair, act)
    assert sent > TRIES / 2
    assert settled(pair, "buttons", sent) == (sent, 0)


@pytest.mark.parametrize("kind", ["keys", "buttons"])
def test_the_order_that_suggests_itself_leaks(rig, pair, kind):
    """The control: the thief works, and what holds it off above is the one write."""

    def send(devices, screen, at):
        if kind == "keys":
            devices.press(devices.strokes(["x"])[0])
            devices.release_keys()
        else:
            devices.move(*at, screen)
            devices.button(1, down=True)
            devices.button(1, down=False)

    async def act(session, window):
        for _ in range(3_000):
            await naive(session, window, lambda devices, screen: send(devices, screen, window.rect.centre))
            if pair[1].state.get(kind):
                return 1
        return 0

    assert run(rig, pair, act) == 1
