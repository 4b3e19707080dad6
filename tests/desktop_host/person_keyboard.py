"""A person's keyboard on a Wayland rig: one that stays plugged in, and presses what it is told on its standard input.

A seat of a compositor without a screen has no keyboard of its own, and without one no window has the focus.
"""

import asyncio
import os
import sys

from bascule.programs.desktop_host.linux.wayland.connection import Connection, socket_path
from bascule.programs.desktop_host.linux.wayland.devices import VirtualDevices
from bascule.programs.desktop_host.linux.wayland.kwin_input import FakeInput
from bascule.programs.desktop_host.linux.wayland.kwin_lender import Lender


def say(word):
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def plugged_in():
    lender = Lender(os.environ)
    if lender.there:
        # KWin: by the launcher that may.
        connection = await Connection.over(await lender.connect(os.fsencode(socket_path(os.environ))))
        fake_input = connection.bind("org_kde_kwin_fake_input")
        return connection, await FakeInput.plugged_in(connection, fake_input, connection.bind("wl_seat"))
    connection = await Connection.open(dict(os.environ))
    bound = [connection.bind(each) for each in ("zwp_virtual_keyboard_manager_v1", "zwlr_virtual_pointer_manager_v1")]
    return connection, VirtualDevices(connection, *bound, connection.bind("wl_seat"))


async def main():
    connection, devices = await plugged_in()
    await connection.roundtrip()
    say("ready")
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        words = line.decode().split()
        if words[0] == "hold":
            for stroke in devices.strokes(words[1:]):
                devices.press(stroke)
        elif words[0] == "press":
            for stroke in devices.strokes(words[1:]):
                devices.press(stroke)
            devices.release_keys()
        else:
            devices.release_keys()
        await connection.roundtrip()
        say("done")


asyncio.run(main())
