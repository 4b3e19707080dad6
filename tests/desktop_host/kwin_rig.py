"""A KDE session of the test's own: KWin without a screen, and the permission that a person would give our host."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from desktop_rig import Desktop, until
from lacking_desktop import missing_here

from bascule.desktop.kwin import LENDER
from bascule.desktop.machine import kwin_launcher, kwin_permission
from patience import PATIENCE

SOURCE = Path(__file__).resolve().parents[2] / "src"
_LIST = """\
var all = workspace.clientList(), out = [];
for (var i = 0; i < all.length; i++) {
    var w = all[i];
    out.push({id: String(w.internalId), title: w.caption, active: w.active, x: w.x, y: w.y});
}
report(out);
"""
_MOVE = """\
var all = workspace.clientList();
for (var i = 0; i < all.length; i++) if (String(all[i].internalId) === %(id)s) {
    var g = all[i].frameGeometry;
    all[i].frameGeometry = {x: %(x)s, y: %(y)s, width: g.width, height: g.height};
}
report(true);
"""


class KwinDesktop(Desktop):
    """As `Desktop`, with KWin in the place of the X server and its window manager."""

    name = "kwin"
    window_manager = None

    def __init__(self, screen="1280x900x24", *, permitted=True, outputs=1, scale=1):
        self.permitted = permitted
        self._outputs = ("--output-count", str(outputs), "--scale", str(scale))
        super().__init__(screen)

    def _start_bus(self):
        # KWin asks for the bus when it starts, and so it came first.
        return self.environment["DBUS_SESSION_BUS_ADDRESS"]

    def _start_x(self, screen, display=None):
        for tool in ("kwin_wayland", "Xwayland", "cc"):
            if shutil.which(tool) is None:
                missing_here(f"{tool} is not installed: sh tools/setup.sh packages")
        self.environment |= {
            "DBUS_SESSION_BUS_ADDRESS": super()._start_bus(),
            "XDG_CURRENT_DESKTOP": "KDE",
            "XDG_DATA_HOME": str(self.directory / "home/.local/share"),
            "GDK_BACKEND": "wayland",
            "QT_QPA_PLATFORM": "wayland",
        }
        if self.permitted:
            self.install()
        keyboard = self._launcher("keyboard", "person_keyboard.py")
        self._lender = self._launcher("lender", "hand_over.py")
        # Debian's file has a capability, which a container may not grant; a copy has none.
        kwin = shutil.copy(shutil.which("kwin_wayland"), self.directory)
        names, reporter = self.directory / "names", self.directory / "reporter"
        reporter.write_text(f'#!/bin/sh\necho "$DISPLAY $WAYLAND_DISPLAY" > {names}.new && mv {names}.new {names}\n')
        reporter.chmod(0o700)
        width, height = screen.split("x")[:2]
        command = [kwin, "--virtual", "--width", width, "--height", height, "--socket", "wayland-k", "--no-lockscreen"]
        self._command = (*command, *self._outputs, "--xwayland", str(reporter))
        self._names = names
        display = self.start_kwin()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.keyboard = self.spawn(keyboard, env={"PYTHONPATH": str(SOURCE)}, **pipes)
        assert self.keyboard.stdout.readline() == "ready\n", "the person has no keyboard"
        return display

    def start_kwin(self):
        names = self._names
        names.unlink(missing_ok=True)
        # Pictures need OpenGL, which a processor does as well.
        process = self.kwin = self.spawn(*self._command, env={"KWIN_COMPOSE": "O2", "QT_QPA_PLATFORM": ""})
        until(lambda: names.exists() or process.poll() is not None, "KWin has started")
        assert process.poll() is None, f"KWin ended with {process.returncode}"
        display, self.environment["WAYLAND_DISPLAY"] = names.read_text().split()
        return display

    def install(self):
        """What `bascule desktop kwin install` does once the person has said yes."""
        words = "from bascule.desktop.machine import kwin_permission as kwin; kwin.install(kwin.plan())"
        subprocess.run([sys.executable, "-c", words], env=self.environment | {"PYTHONPATH": str(SOURCE)}, check=True)

    def _launcher(self, name, program):
        """Another program that has the permission, in the way that our host has it."""
        launcher, code = self.directory / name, self.directory / f"{name}.c"
        code.write_text(kwin_launcher.source([sys.executable, str(Path(__file__).with_name(program))]))
        subprocess.run(["cc", "-o", launcher, code], check=True)
        entries = self.directory / "home/.local/share/applications"
        entries.mkdir(parents=True, exist_ok=True)
        (entries / f"{name}.desktop").write_text(kwin_permission.entry(str(launcher)))
        return str(launcher)

    def with_permission(self):
        """A session's environment in this very process, with the permission."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            descriptor = theirs.fileno()
            self.spawn(self._lender, str(descriptor), pass_fds=(descriptor,), env={"PYTHONPATH": str(SOURCE)})
            _, (lender,), _, _ = socket.recv_fds(ours, 1, 1)
        return self.environment | {LENDER: str(lender)}

    def keys(self, words):
        """What the person does at the keyboard: `press ctrl a`, `hold shift`, `release`."""
        self.keyboard.stdin.write(words + "\n")
        self.keyboard.stdin.flush()
        assert self.keyboard.stdout.readline() == "done\n"

    def script(self, words, during=None):
        """What KWin answers to a script that is not ours; it calls `report` once. It runs on `during` a call."""
        return asyncio.run(_run_script(self.environment["DBUS_SESSION_BUS_ADDRESS"], self.directory, words, during))

    def views(self):
        return self.script(_LIST)

    def shows(self, title):
        return any(each["title"] == title for each in self.views())

    def focused(self):
        """The title of the window that KWin gives the keys to."""
        return next((each["title"] for each in self.views() if each["active"]), None)

    def move(self, title, x, y):
        (view,) = (each for each in self.views() if each["title"] == title)
        self.script(_MOVE % {"id": json.dumps(view["id"]), "x": x, "y": y})

    def close(self):
        super().close()
        self.keyboard.stdin.close()
        self.keyboard.stdout.close()


async def _run_script(address, directory, words, during=None):
    bus = await MessageBus(bus_address=address).connect()
    answered = asyncio.get_running_loop().create_future()

    def on_message(message):
        if message.interface != "test.Witness":
            return None
        if not answered.done():
            answered.set_result(json.loads(message.body[0]))
        return Message.new_method_return(message)

    async def call(path, interface, member, signature="", *body):
        asked = Message(
            destination="org.kde.KWin", path=path, interface=interface, member=member, signature=signature, body=[*body]
        )
        reply = await bus.call(asked)
        assert reply.message_type is not MessageType.ERROR, reply.body
        return reply.body

    bus.add_message_handler(on_message)
    report = (
        f'function report(v) {{ callDBus("{bus.unique_name}", "/", "test.Witness", "Answer", JSON.stringify(v)); }}\n'
    )
    with tempfile.NamedTemporaryFile("w", suffix=".js", dir=directory) as file:
        file.write(report + words)
        file.flush()
        name = os.path.basename(file.name)
        try:
            (number,) = await call("/Scripting", "org.kde.kwin.Scripting", "loadScript", "ss", file.name, name)
            await call(f"/{number}", "org.kde.kwin.Script", "run")
            async with asyncio.timeout(PATIENCE):
                answer = await answered
            if during is not None:
                await asyncio.to_thread(during, answer)
            return answer
        finally:
            await call("/Scripting", "org.kde.kwin.Scripting", "unloadScript", "s", name)
            bus.disconnect()
