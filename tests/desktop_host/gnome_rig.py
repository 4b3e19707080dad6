"""A GNOME session of the test's own: GNOME Shell without a screen, with our extension as a person would install it."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from desktop_rig import Desktop, until
from lacking_desktop import missing_here

from bascule.desktop.gnome import UUID

SOURCE = Path(__file__).resolve().parents[2] / "src"

_LIST = """\
global.get_window_actors().map(each => each.meta_window).filter(each => each.get_frame_rect().width > 1).map(each => ({
    title: each.get_title(), active: each === global.display.focus_window && !Main.overview.visible,
    x: each.get_frame_rect().x, y: each.get_frame_rect().y,
}))
"""
_MOVE = """\
global.get_window_actors().map(each => each.meta_window).filter(each => each.get_title() === %(title)s)
    .forEach(each => each.move_frame(true, %(x)s, %(y)s))
"""
_KEYBOARD = """\
window.person ??= imports.gi.Clutter.get_default_backend().get_default_seat().create_virtual_device(1);
window.held ??= [];
const press = (code, down) => window.person.notify_key(imports.gi.GLib.get_monotonic_time(), code, down);
"""
_KEYS = {
    "hold": f"{_KEYBOARD} for (const each of %(codes)s) {{ press(each, 1); window.held.push(each); }} true",
    "press": f"{_KEYBOARD} for (const down of [1, 0]) for (const each of %(codes)s) press(each, down); true",
    "release": f"{_KEYBOARD} for (const each of window.held.splice(0)) press(each, 0); true",
}
# The kernel's numbers.
_CODES = {"ctrl": 29, "shift": 42, "alt": 56, "escape": 1, "f12": 88, "a": 30, "x": 45}


class GnomeDesktop(Desktop):
    """As `Desktop`, with GNOME Shell in the place of the X server and its window manager."""

    name = "gnome"
    window_manager = None

    def __init__(self, screen="1280x900x24", *, extension=True, changed=None):
        """`changed`: words of the extension, and what stands in their place."""
        self.extension = extension
        self._changed = changed
        super().__init__(screen)

    def _start_bus(self):
        # The shell asks for it when it starts, and so it came first.
        return self.environment["DBUS_SESSION_BUS_ADDRESS"]

    def _start_x(self, screen, display=None):
        for tool in ("gnome-shell", "gsettings", "Xwayland"):
            if shutil.which(tool) is None:
                missing_here(f"{tool} is not installed: sh tools/setup.sh packages long")
        self.environment |= {
            "DBUS_SESSION_BUS_ADDRESS": super()._start_bus(),
            # Nothing of the machine's own; the shell only needs one that answers.
            "DBUS_SYSTEM_BUS_ADDRESS": super()._start_bus(),
            # Kept in a file, so that what is set before the shell starts counts.
            "GSETTINGS_BACKEND": "keyfile",
            "XDG_CONFIG_HOME": str(self.directory / "home/.config"),
            "XDG_DATA_HOME": str(self.directory / "home/.local/share"),
            "XDG_SESSION_TYPE": "wayland",
            "XDG_CURRENT_DESKTOP": "GNOME",
            "WAYLAND_DISPLAY": "wayland-g",
            "GDK_BACKEND": "wayland",
            "QT_QPA_PLATFORM": "wayland",
        }
        self.setting("org.gnome.desktop.interface", "enable-hot-corners", "false")
        if self.extension:
            self.install()
        self.start_shell(screen.rpartition("x")[0])
        # Of its Xwayland, which comes when a program asks for it.
        names = self.eval("['DISPLAY', 'XAUTHORITY'].map(each => imports.gi.GLib.getenv(each) ?? '')")
        display, self.environment["XAUTHORITY"] = names
        return display

    def start_shell(self, size):
        command = [
            "gnome-shell",
            "--headless",
            "--wayland-display=wayland-g",
            "--virtual-monitor",
            size,
            "--unsafe-mode",
        ]
        self.log = self.directory / "gnome-shell.log"
        with self.log.open("wb") as log:
            self.shell = self.spawn(*command, stdout=log, stderr=log)
        wayland = self.directory / "wayland-g"
        until(lambda: wayland.exists() or self.shell.poll() is not None, "GNOME Shell has started")
        assert self.shell.poll() is None, self.log.read_text()
        until(self._answers, "GNOME Shell answers")

    def _answers(self):
        assert self.shell.poll() is None, self.log.read_text()
        command = ["gdbus", "introspect", "--session", "--dest", "org.gnome.Shell", "--object-path", "/org/gnome/Shell"]
        asked = subprocess.run(command, env=self.environment, capture_output=True, check=False)
        return b"Eval" in asked.stdout and self.eval("Main.layoutManager._startingUp") is False

    def setting(self, *words):
        subprocess.run(["gsettings", "set", *words], env=self.environment, check=True)

    def install(self):
        """What `bascule desktop gnome install` does once the person has said yes."""
        words = "from bascule.desktop.machine import gnome_install as gnome; gnome.install(gnome.plan())"
        subprocess.run([sys.executable, "-c", words], env=self.environment | {"PYTHONPATH": str(SOURCE)}, check=True)
        if self._changed is not None:
            code = self.directory / "home/.local/share/gnome-shell/extensions" / UUID / "extension.js"
            before = code.read_text()
            assert self._changed[0] in before
            code.write_text(before.replace(*self._changed))

    def eval(self, words):
        """What the shell answers to a script that is not ours; the rig's shell alone runs scripts of anybody."""
        return asyncio.run(_eval(self.environment["DBUS_SESSION_BUS_ADDRESS"], words))

    def views(self):
        return self.eval(_LIST)

    def shows(self, title):
        return any(each["title"] == title for each in self.views())

    def focused(self):
        """The title of the window that the shell gives the keys to."""
        return next((each["title"] for each in self.views() if each["active"]), None)

    def move(self, title, x, y):
        self.eval(_MOVE % {"title": json.dumps(title), "x": x, "y": y})

    def keys(self, words):
        """What the person does at the keyboard: `press ctrl a`, `hold shift`, `release`."""
        verb, *names = words.split()
        codes = [_CODES[each] for each in names]
        self.eval(_KEYS[verb] % {"codes": json.dumps(codes)})


async def _eval(address, words):
    bus = await MessageBus(bus_address=address).connect()
    try:
        asked = Message(
            destination="org.gnome.Shell",
            path="/org/gnome/Shell",
            interface="org.gnome.Shell",
            member="Eval",
            signature="s",
            body=[words],
        )
        reply = await bus.call(asked)
        assert reply.message_type is not MessageType.ERROR, reply.body
        done, answer = reply.body
        assert done, answer
        return json.loads(answer) if answer else None
    finally:
        bus.disconnect()
