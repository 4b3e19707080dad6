"""A person's keyboard on a Wayland rig: one that stays plugged in, and presses what it is told on its standard input.

A seat of a compositor without a screen has no keyboard of its own, and without one no window has the focus.
"""

import asyncio
import os
import sys

from bascule.programs.desktop_host.linux.wayland.connection import Connection
from bascule.programs.desktop_host.linux.wayland.devices import VirtualDevices


def say(word):
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


async def main():
    connection = await Connection.open(dict(os.environ))
    bound = [connection.bind(each) for each in ("zwp_virtual_keyboard_manager_v1", "zwlr_virtual_pointer_manager_v1")]
    devices = VirtualDevices(connection, *bound, connection.bind("wl_seat"))
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
