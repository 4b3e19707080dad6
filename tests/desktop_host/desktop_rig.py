"""A desktop of the test's own: Xvfb, a session bus with AT-SPI, a window manager, and programs on it."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from lacking_desktop import missing_here
from Xlib import X, display

from patience import PATIENCE

APPS = Path(__file__).resolve().parent / "apps"
# Debian's Python has the bindings of the fixture programs; ours is not asked to.
SYSTEM_PYTHON = "/usr/bin/python3"
NEEDED = ("Xvfb", "dbus-daemon", "openbox", "xdotool", "/usr/libexec/at-spi-bus-launcher", SYSTEM_PYTHON)


def until(condition, what, seconds=PATIENCE):
    """Ask again and again for something another process does in its own time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


class Program:
    """A program on the desktop, with the state file it keeps if it is one of ours."""

    def __init__(self, process, state, title):
        self.process = process
        self.path = state
        self.title = title

    @property
    def pid(self):
        return self.process.pid

    @property
    def state(self):
        try:
            return json.loads(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return {}

    def until(self, seconds=PATIENCE, **values):
        """Wait until its own state says so."""
        return until(
            lambda: all(self.state.get(name) == value for name, value in values.items()),
            f"{values} in {self.state}",
            seconds,
        )

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Desktop:
    """One X server and one session bus. Everything on it ends with it."""

    name = "xvfb"
    window_manager = ("openbox", "--sm-disable")

    def __init__(self, screen="1280x900x24"):
        for tool in NEEDED:
            if shutil.which(tool) is None:
                missing_here(f"{tool} is not installed: sh tools/setup.sh packages")
        self.directory = Path(tempfile.mkdtemp(prefix="desk"))
        self.directory.chmod(0o700)
        self._processes = []
        self._count = 0
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if name
            not in ("DBUS_SESSION_BUS_ADDRESS", "AT_SPI_BUS_ADDRESS", "WAYLAND_DISPLAY", "DISPLAY", "XAUTHORITY")
        }
        home = self.directory / "home"
        home.mkdir()
        self.environment |= {
            "XDG_RUNTIME_DIR": str(self.directory),
            "HOME": str(home),
            "GDK_BACKEND": "x11",
            "QT_QPA_PLATFORM": "xcb",
            # gnome-calculator and GTK 4 ask for settings; a bus of their own has no dconf to answer.
            "GSETTINGS_BACKEND": "memory",
            "GTK_A11Y": "atspi",
            "LIBGL_ALWAYS_SOFTWARE": "1",
            "GSK_RENDERER": "cairo",
            "NO_AT_BRIDGE": "0",
            "LANG": "C.UTF-8",
            "PYTHONPATH": "",
        }
        self.display = self._start_x(screen)
        self.environment["DISPLAY"] = self.display
        self.environment["DBUS_SESSION_BUS_ADDRESS"] = self._start_bus()
        if self.window_manager is not None:
            self.spawn(*self.window_manager)
        self.set_accessibility(on=True)

    def set_accessibility(self, *, on):
        """Qt 6 looks at this when it starts, and not again; a host that runs by then has set it."""
        setting = ["org.a11y.Bus", "/org/a11y/bus", "org.freedesktop.DBus.Properties.Set"]
        value = ["string:org.a11y.Status", "string:IsEnabled", f"variant:boolean:{str(on).lower()}"]
        command = ["dbus-send", "--session", "--print-reply", f"--dest={setting[0]}", *setting[1:], *value]
        subprocess.run(command, env=self.environment, capture_output=True, check=True)

    def _start_x(self, screen, display=None):
        read, write = os.pipe()
        named = [display] if display else []
        command = ["Xvfb", *named, "-displayfd", str(write), "-screen", "0", screen, "-nolisten", "tcp", "-noreset"]
        process = subprocess.Popen(command, pass_fds=(write,), stderr=subprocess.DEVNULL, env=self.environment)
        self._processes.append(process)
        os.close(write)
        with os.fdopen(read) as pipe:
            number = pipe.readline().strip()
        assert number, "Xvfb did not start"
        return f":{number}"

    def _start_bus(self):
        read, write = os.pipe()
        command = ["dbus-daemon", "--session", "--nofork", f"--print-address={write}"]
        process = subprocess.Popen(
            command,
            pass_fds=(write,),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment,
        )
        self._processes.append(process)
        os.close(write)
        with os.fdopen(read) as pipe:
            return pipe.readline().strip()

    def spawn(self, *command, **more):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        env = self.environment | (more.pop("env", None) or {})
        process = subprocess.Popen(command, env=env, **(quiet | more))
        self._processes.append(process)
        return process

    def start(self, app, *options, title=None, env=None, python=SYSTEM_PYTHON):
        """One of our own programs, ready to be used: `gtk3`, `gtk4`, `qt5`, `qt6`."""
        self._count += 1
        title = title or f"{app} {self._count}"
        state = self.directory / f"state-{self._count}.json"
        file, more = (app + "_app.py", ()) if app.startswith("gtk") else ("qt_app.py", ("--qt", app[2]))
        command = (python, str(APPS / file), str(state), "--title", title, *more, *options)
        process = self.spawn(*command, env=env)
        program = Program(process, state, title)
        until(lambda: program.state.get("ready") or process.poll() is not None, f"{app} is ready")
        assert process.poll() is None, f"{app} ended with {process.returncode}: run {APPS / file} by hand"
        until(lambda: self.shows(title), f"the window {title!r} of {app}")
        return program

    def start_bare(self, app, title=None, env=None):
        """One of our own programs that is not a window as others are, or shows nothing to AT-SPI: `prompt`, `count`."""
        self._count += 1
        title = title or f"{app} {self._count}"
        state = self.directory / f"state-{self._count}.json"
        command = (SYSTEM_PYTHON, str(APPS / f"{app}_app.py"), str(state), "--title", title)
        program = Program(self.spawn(*command, env=env), state, title)
        until(lambda: program.state.get("ready") or program.process.poll() is not None, f"{app} is ready")
        assert program.process.poll() is None, f"{app} ended with {program.process.returncode}"
        return program

    def shows(self, title):
        """Whether the X server shows such a window, as a program that is not ours sees it."""
        command = ["xdotool", "search", "--onlyvisible", "--name", "^" + re.escape(title) + "$"]
        found = subprocess.run(command, env=self.environment, capture_output=True, check=False).stdout.split()
        return bool(found) and (self.window_manager is None or not self._managed().isdisjoint(map(int, found)))

    def _managed(self):
        """What the window manager lists. It maps a window first, and whoever looks between the two finds none."""
        connection = display.Display(self.display)
        try:
            listed = connection.screen().root.get_full_property(
                connection.intern_atom("_NET_CLIENT_LIST"), X.AnyPropertyType
            )
            return set(listed.value) if listed is not None else set()
        finally:
            connection.close()

    def kill_accessibility(self):
        """End the accessibility bus of this desktop; the pids of what ended."""
        mine = f"XDG_RUNTIME_DIR={self.directory}".encode()
        ended = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes()
                if (b"at-spi" in command or b"at-spi2" in command) and mine in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
                    ended.append(int(entry.name))
            except OSError:
                continue
        return ended

    def restart_x(self, screen="1280x900x24"):
        """End the X server, and every program on it, and start another in its place."""
        server = self._processes[0]
        server.kill()
        server.wait()
        self._start_x(screen, self.display)
        self.spawn(*self.window_manager)

    def move(self, title, x, y):
        """Put a window somewhere; where openbox puts it depends on what else is open."""
        command = ["xdotool", "search", "--onlyvisible", "--name", "^" + re.escape(title) + "$", "windowmove", "--sync"]
        subprocess.run([*command, str(x), str(y)], env=self.environment, capture_output=True, check=True)

    def close(self):
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
