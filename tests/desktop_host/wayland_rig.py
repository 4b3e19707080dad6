"""A Wayland session of the test's own: sway without a screen. Programs speak Wayland, or X11 by way of Xwayland."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from desktop_rig import Desktop, until
from lacking_desktop import missing_here

_CONFIG = """\
output HEADLESS-1 resolution {screen}
for_window [app_id=".*"] floating enable
for_window [class=".*"] floating enable
xwayland force
exec sh -c 'echo "$DISPLAY $WAYLAND_DISPLAY" > {names}.new && mv {names}.new {names}'
"""
X11 = {"GDK_BACKEND": "x11", "QT_QPA_PLATFORM": "xcb"}
SOURCE = Path(__file__).resolve().parents[2] / "src"


class WaylandDesktop(Desktop):
    """As `Desktop`, with sway in the place of the X server and its window manager."""

    name = "sway"
    window_manager = None

    def _start_x(self, screen, display=None):
        for tool in ("sway", "swaymsg", "Xwayland"):
            if shutil.which(tool) is None:
                missing_here(f"{tool} is not installed: sh tools/setup.sh packages")
        config, names = self.directory / "sway.conf", self.directory / "names"
        config.write_text(_CONFIG.format(screen=screen.rpartition("x")[0], names=names))
        command = ["sway", "--config", str(config)]
        if os.getuid() == 0:
            # sway refuses to run as root.
            command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--", *command]
        self.environment |= {
            "SWAYSOCK": str(self.directory / "sway.sock"),
            "GDK_BACKEND": "wayland",
            "QT_QPA_PLATFORM": "wayland",
        }
        headless = {"WLR_BACKENDS": "headless", "WLR_LIBINPUT_NO_DEVICES": "1", "WLR_RENDERER": "pixman"}
        process = self.spawn(*command, env=headless)
        until(lambda: names.exists() or process.poll() is not None, "sway has started")
        assert process.poll() is None, f"sway ended with {process.returncode}"
        display, self.environment["WAYLAND_DISPLAY"] = names.read_text().split()
        self.keyboard = self.spawn(
            sys.executable,
            str(Path(__file__).with_name("person_keyboard.py")),
            env={"PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.keyboard.stdout.readline() == "ready\n", "the person has no keyboard"
        return display

    def keys(self, words):
        """What the person does at the keyboard: `press ctrl a`, `hold shift`, `release`."""
        self.keyboard.stdin.write(words + "\n")
        self.keyboard.stdin.flush()
        assert self.keyboard.stdout.readline() == "done\n"

    def message(self, *words):
        """`swaymsg`: a program that is not ours."""
        asked = subprocess.run(["swaymsg", *words], env=self.environment, capture_output=True, check=True)
        return json.loads(asked.stdout)

    def views(self):
        """Every window that sway knows, with what it says of it."""
        waiting, found = [self.message("-t", "get_tree")], []
        for node in waiting:
            waiting += [*node["nodes"], *node["floating_nodes"]]
            if node.get("pid") and not node["nodes"]:
                found.append(node)
        return found

    def shows(self, title):
        return any(each["name"] == title and each["visible"] for each in self.views())

    def focused(self):
        """The title of the window that sway gives the keys to."""
        return next((each["name"] for each in self.views() if each["focused"]), None)

    def move(self, title, x, y):
        (view,) = (each for each in self.views() if each["name"] == title)
        self.message(f"[con_id={view['id']}] move absolute position {x} px {y} px")

    def close(self):
        super().close()
        self.keyboard.stdin.close()
        self.keyboard.stdout.close()
