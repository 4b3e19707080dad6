"""A Wayland session of the test's own: sway without a screen, and Xwayland for X11 programs."""

import json
import os
import shutil
import subprocess

from desktop_rig import APPS, SYSTEM_PYTHON, Desktop, Program, until
from lacking_desktop import missing_here

_CONFIG = """\
output HEADLESS-1 resolution {screen}
for_window [app_id=".*"] floating enable
for_window [class=".*"] floating enable
xwayland force
exec sh -c 'echo "$DISPLAY $WAYLAND_DISPLAY" > {names}.new && mv {names}.new {names}'
"""


class WaylandDesktop(Desktop):
    """As `Desktop`, with sway in the place of the X server and its window manager."""

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
        self.environment["SWAYSOCK"] = str(self.directory / "sway.sock")
        headless = {"WLR_BACKENDS": "headless", "WLR_LIBINPUT_NO_DEVICES": "1", "WLR_RENDERER": "pixman"}
        process = self.spawn(*command, env=headless)
        until(lambda: names.exists() or process.poll() is not None, "sway has started")
        assert process.poll() is None, f"sway ended with {process.returncode}"
        display, self.environment["WAYLAND_DISPLAY"] = names.read_text().split()
        return display

    def start_native(self, title):
        """A GTK 3 program that speaks Wayland; sway gives it the focus."""
        state = self.directory / f"{title}.json"
        command = (SYSTEM_PYTHON, str(APPS / "gtk3_app.py"), str(state), "--title", title)
        program = Program(self.spawn(*command, env={"GDK_BACKEND": "wayland"}), state, title)
        until(lambda: self.focused() == title, f"{title} has the focus")
        return program

    def focused(self):
        """The title of the window that sway gives the keys to."""
        asked = subprocess.run(["swaymsg", "-t", "get_tree"], env=self.environment, capture_output=True, check=True)
        waiting = [json.loads(asked.stdout)]
        for node in waiting:
            if node["focused"]:
                return node["name"]
            waiting += [*node["nodes"], *node["floating_nodes"]]
        return None
