"""GNOME Shell without a screen: our extension in it, the host that asks it, and others who may not.

Long: gnome-shell alone is 121 Debian packages, and takes longer to install than everything here to run.
"""

import asyncio
import contextlib
import json
import os
import secrets

import pytest
from desktop_rig import until
from gnome_rig import GnomeDesktop
from host_process import HostProcess, Refused, route
from PIL import Image

from bascule.desktop.gnome import BUS_NAME, BUS_PATH, UUID, proof
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.bus import DBUS, Bus, BusError
from bascule.programs.desktop_host.linux.wayland.gnome import GnomeSession
from bascule.programs.desktop_host.ports import Halt

pytestmark = pytest.mark.long

NAME = {"selector": {"titleContains": "Name"}}
TEXT = "héllo 中文 😀"
# What the extension is asked, with arguments that it would take.
QUESTIONS = {
    "Look": ("",),
    "Activate": ("s", "1"),
    "Act": ("s", '{"at": [5, 5], "anywhere": true, "events": [["move", 7, 7]]}'),
    "Release": ("",),
    "Picture": ("(iiii)", [0, 0, 4, 4]),
    "WindowPicture": ("s", "1"),
    "Clipboard": ("",),
    "SetClipboard": ("(say)", ["text/plain", b"theirs"]),
    "StopKeys": ("as", ["Ctrl+Alt+Shift+F12"]),
}


# As the person does it, and as another program sees it.
_COPY = "imports.gi.St.Clipboard.get_default().set_text(1, %s); true"
_READ = "window.copied = ''; imports.gi.St.Clipboard.get_default().get_text(1, (_, text) => window.copied = text); true"

# As a notification does it, with somebody's words in it.
_COVER = """\
window.cover = new imports.gi.St.Widget({style: 'background-color: rgb(255, 0, 0)', width: 1280, height: 900});
Main.layoutManager.addTopChrome(window.cover); true
"""


@pytest.fixture(scope="module")
def gnome():
    desktop = GnomeDesktop()
    yield desktop
    desktop.close()


@pytest.fixture(scope="module")
def shared_host(gnome, tmp_path_factory):
    host = HostProcess(gnome, tmp_path_factory.mktemp("root"), stop_keys=True)
    yield host
    host.close()


@pytest.fixture
def host(shared_host):
    shared_host.new_workspace()
    return shared_host


@pytest.fixture
def start(gnome):
    started = []

    def start(app, *options, **more):
        started.append(gnome.start(app, *options, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill()


# -- a day with it --


def test_the_doctor_finds_everything_and_calls_keys_checked(host):
    found = host.call("desktop.doctor")
    assert found["healthy"], found["issues"]
    can = found["capabilities"]
    assert (can["session"], can["places"], can["pictures"]) == ("GNOME", True, "own")
    assert (can["keys"], can["clicks"], can["text"]) == ("checked", "checked", "field")


@pytest.mark.parametrize("app", ["gtk3", "gtk4", "qt6"])
def test_a_window_is_seen_clicked_typed_into_and_sent_keys(host, start, app):
    program = start(app)
    host.act("desktop.focusWindow", route=route(program))
    (window,) = (each for each in host.call("desktop.windows")["windows"] if each["pid"] == program.pid)
    assert window["active"]
    assert window["frame"]["width"] > 100
    seen = host.call("desktop.observe", route=route(program), options={"includeScreenshot": True, "snapshot": True})
    assert "Press me" in seen["snapshot"]
    assert len(Image.open(host.evidence(seen) / "observe.png").getcolors(1 << 20)) > 20
    typed = host.act("desktop.typeText", route=route(program), target=NAME, text=TEXT)
    program.until(name=TEXT)
    assert (typed["effect"], typed["clipboard"]) == ("confirmed", "untouched")
    # By the pointer: it must go where the element is, which Wayland tells no program.
    host.act("desktop.doubleClick", route=route(program), target={"selector": {"titleContains": "Agree"}})
    until(lambda: "agreed" in program.state, "the pointer reached the check box")
    host.act("desktop.click", route=route(program), target={"selector": {"titleContains": "Press me"}})
    program.until(pressed=1)
    host.act("desktop.typeText", route=route(program), target=NAME, text="a", options={"clearBefore": True})
    program.until(name="a")
    host.act("desktop.hotkey", route=route(program), keys=["shift", "x"])
    until(lambda: "X" in program.state["name"], "the key arrives, with its modifier")


@pytest.mark.parametrize("app", ["gtk3", "gtk4", "qt6"])
def test_a_field_that_cannot_be_read_back_gets_a_paste_and_the_person_their_clipboard(host, gnome, start, app):
    program = start(app)
    gnome.eval(_COPY % json.dumps("mine é"))
    secret = {"selector": {"titleContains": "Secret"}}
    typed = host.act("desktop.typeText", route=route(program), target=secret, text=TEXT)
    program.until(secret=TEXT)
    assert typed["clipboard"] == "restored"
    gnome.eval(_READ)
    assert until(lambda: gnome.eval("window.copied"), "the clipboard is read") == "mine é"


def test_a_window_of_xwayland_is_the_compositors_and_clicked_where_it_is(host, gnome, start):
    assert gnome.environment["DISPLAY"], "the shell has an Xwayland"
    program = start("gtk3", env={"GDK_BACKEND": "x11"})
    gnome.move(program.title, 500, 300)
    host.act("desktop.focusWindow", route=route(program))
    host.act("desktop.doubleClick", route=route(program), target={"selector": {"titleContains": "pad"}})
    program.until(double=1)


def test_a_window_below_another_is_brought_up_before_it_is_clicked(host, gnome, start):
    below, above = start("gtk3"), start("gtk3")
    for each in (below, above):
        gnome.move(each.title, 200, 100)
    host.act("desktop.doubleClick", route=route(below), target={"selector": {"titleContains": "pad"}})
    below.until(double=1)
    assert "double" not in above.state
    assert gnome.focused() == below.title


@pytest.mark.parametrize("app", ["gtk3", "gtk4", "qt6"])
def test_a_picture_is_of_the_window_and_nothing_that_the_shell_draws_over_it(host, gnome, start, app, monkeypatch):
    monkeypatch.setenv("HOME", gnome.environment["HOME"])
    program = start(app)
    host.act("desktop.focusWindow", route=route(program))

    def shown():
        seen = host.call("desktop.observe", route=route(program), options={"includeScreenshot": True})
        return Image.open(host.evidence(seen) / "observe.png").convert("RGB")

    before = shown()
    gnome.eval(_COVER)
    try:
        # The control: whoever looks at the screen sees it.
        everything = host.call("desktop.windows")["windows"]
        frame = next(each["frame"] for each in everything if each["pid"] == program.pid)
        assert asyncio.run(red_at(gnome, frame["x"] + 50, frame["y"] + 50))
        now = shown()
        assert (255, 0, 0) not in [colour for _, colour in now.getcolors(1 << 20)]
        assert now.size == before.size
    finally:
        gnome.eval("window.cover.destroy(); true")


async def red_at(gnome, x, y):
    session = GnomeSession(gnome.environment, None)
    await session.open()
    try:
        return (await session.pictures.grab(Rect(x, y, 1, 1))).pixels[:3] == b"\x00\x00\xff"
    finally:
        await session.close()


def test_no_key_is_sent_while_the_shell_has_the_keyboard(host, gnome, start):
    program = start("gtk3")
    host.act("desktop.focusWindow", route=route(program))
    keys = {"route": route(program), "keys": ["x"]}
    gnome.eval("imports.ui.main.openRunDialog(); true")
    try:
        until(lambda: gnome.eval("Main.modalCount") > 0, "the shell's own dialog is open")
        with pytest.raises(Refused) as refused:
            host.act("desktop.hotkey", **keys)
        assert refused.value.details["reason"] == "focus"
        assert "keys" not in program.state
    finally:
        gnome.eval("Main.runDialog.close(); true")
    until(lambda: gnome.eval("Main.modalCount") == 0, "it is closed")
    # The control: nothing else was in the way.
    host.act("desktop.hotkey", route=route(program), keys=["x"])
    program.until(keys=[["x", 0]])


def test_a_modifier_that_the_person_holds_does_not_join_our_keys(host, gnome, start):
    program = start("gtk3")
    host.act("desktop.focusWindow", route=route(program))
    gnome.keys("hold ctrl")
    try:
        with pytest.raises(Refused) as refused:
            host.act("desktop.hotkey", route=route(program), keys=["x"])
        assert refused.value.details["reason"] == "modifier"
    finally:
        gnome.keys("release")
    host.act("desktop.hotkey", route=route(program), keys=["y"])
    until(lambda: ["y", 0] in program.state.get("keys", ()), "the key arrives")
    assert ["x", 4] not in program.state["keys"]


def test_the_question_says_that_keys_are_checked(host, start):
    program = start("gtk3")
    intent = {"method": "desktop.hotkey", "params": {"route": route(program), "keys": ["x"]}}
    resolved = host.call("desktop.resolve", intent=intent, picture=True)
    assert resolved["held"] is False
    assert resolved["picture"]["data"]


def test_the_stop_keys_stop_everything_and_are_bound_again_after_the_extension_was_off(host, gnome, start):
    program = start("gtk3")
    host.act("desktop.focusWindow", route=route(program))
    chord = host.call("desktop.health")["stopKeys"]
    # GNOME has the first one for itself.
    assert chord == "Ctrl+Alt+Shift+F12"
    gnome.keys("press ctrl alt shift f12")
    until(lambda: host.call("desktop.health")["stopped"], "the keys stop the host")
    with pytest.raises(Refused):
        host.act("desktop.hotkey", route=route(program), keys=["x"])
    host.act("desktop.resume")
    # As the shell does it when the screen is locked.
    gnome.eval(f"Main.extensionManager.disableExtension('{UUID}')")
    until(lambda: host.call("desktop.health")["stopKeys"] is None, "nobody is told of keys that nothing hears")
    found = host.call("desktop.doctor")
    assert found["capabilities"]["keys"] == "none"
    assert [each for each in found["remedies"] if "unlock" in each]
    gnome.eval(f"Main.extensionManager.enableExtension('{UUID}')")
    until(lambda: host.call("desktop.health")["stopKeys"] == chord, "they are bound again")
    host.act("desktop.hotkey", route=route(program), keys=["x"])
    until(lambda: ["x", 0] in program.state.get("keys", ()), "the key arrives")
    # The shell kept the chord for itself, but for its modifiers.
    assert "F12" not in [name for name, _ in program.state["keys"]]


def test_a_host_that_dies_leaves_no_key_down(gnome, start, monkeypatch):
    program = start("gtk3")
    monkeypatch.setenv("HOME", gnome.environment["HOME"])

    def shift_is_down():
        return bool(gnome.eval("global.get_pointer()[2] & 1"))

    async def hold():
        session = GnomeSession(gnome.environment, None)
        await session.open()
        (window,) = (each for each in await session.windows.windows() if each.pid == program.pid)
        assert await session.windows.activate(window)
        await session.hands._press(window, Halt(), [("key", 42, True)])
        # The control: it is held for as long as its host is there.
        await asyncio.to_thread(until, shift_is_down, "Shift is down")
        session._shell.link.close()
        await asyncio.to_thread(until, lambda: not shift_is_down(), "Shift is up again")
        await session.close()

    asyncio.run(hold())


# -- who is answered --


async def refusals(bus, shell):
    """Which questions this peer is refused."""
    out = set()
    for member, (signature, *body) in QUESTIONS.items():
        try:
            await bus.call(shell, BUS_PATH, BUS_NAME, member, signature, body)
        except BusError as error:
            if not str(error).endswith(f"{BUS_NAME}.Refused"):
                raise
            out.add(member)
    return out


async def hello(bus, shell):
    ours = secrets.token_hex(32)
    theirs, _, proved = (await bus.call(shell, BUS_PATH, BUS_NAME, "Hello", "s", (ours,))).partition(" ")
    return (shell, bus.unique_name, ours, theirs), proved


async def owner(bus, name):
    return await bus.call(DBUS, "/org/freedesktop/DBus", DBUS, "GetNameOwner", "s", (name,))


def test_a_peer_without_the_token_is_answered_nothing(gnome):
    token = (gnome.directory / "home/.local/share/bascule/gnome/token").read_text()

    async def attack():
        address = gnome.environment["DBUS_SESSION_BUS_ADDRESS"]
        bus, other = await Bus.open(address), await Bus.open(address)
        with contextlib.closing(bus), contextlib.closing(other):
            shell = await owner(bus, BUS_NAME)
            assert await refusals(bus, shell) == set(QUESTIONS)
            with pytest.raises(BusError, match="Refused"):
                # A number that the shell would have to keep.
                await bus.call(shell, BUS_PATH, BUS_NAME, "Hello", "s", ("0" * 1_000_000,))
            about, proved = await hello(bus, shell)
            # Of nothing, of another token, what the shell itself proved, and what is another peer's.
            theirs, _ = await hello(other, shell)
            for wrong in ("", proof(secrets.token_hex(32), "host", *about), proved, proof(token, "host", *theirs)):
                with pytest.raises(BusError, match="Refused"):
                    await bus.call(shell, BUS_PATH, BUS_NAME, "Open", "s", (wrong,))
                assert await refusals(bus, shell) == set(QUESTIONS)
                about, proved = await hello(bus, shell)
            # A proof for a number that was said before this one.
            before, (about, _) = about, await hello(bus, shell)
            with pytest.raises(BusError, match="Refused"):
                await bus.call(shell, BUS_PATH, BUS_NAME, "Open", "s", (proof(token, "host", *before),))
            # The control: with the token this very peer is answered everything, and the other one still nothing.
            about, proved = await hello(bus, shell)
            assert proved == proof(token, "shell", *about)
            await bus.call(shell, BUS_PATH, BUS_NAME, "Open", "s", (proof(token, "host", *about),))
            assert await refusals(bus, shell) == set()
            assert await refusals(other, shell) == set(QUESTIONS)

    asyncio.run(attack())


def test_without_its_guard_the_extension_would_answer_anybody(tmp_path):
    """The control of the guard: the same shell, with the one line taken out."""
    gnome = GnomeDesktop(changed=("return Boolean(this._peers.get(name)?.hands);", "return true;"))
    try:

        async def ask():
            bus = await Bus.open(gnome.environment["DBUS_SESSION_BUS_ADDRESS"])
            with contextlib.closing(bus):
                # What it says of a peer that it does not know is not said to be refused.
                return await bus.call(await owner(bus, BUS_NAME), BUS_PATH, BUS_NAME, "Look")

        assert "windows" in asyncio.run(ask())
    finally:
        gnome.close()


def test_a_token_that_others_may_read_opens_nothing(gnome):
    token = gnome.directory / "home/.local/share/bascule/gnome/token"

    async def greet():
        bus = await Bus.open(gnome.environment["DBUS_SESSION_BUS_ADDRESS"])
        with contextlib.closing(bus):
            return await hello(bus, await owner(bus, BUS_NAME))

    os.chmod(token, 0o644)
    try:
        with pytest.raises(BusError, match="NoToken"):
            asyncio.run(greet())
    finally:
        os.chmod(token, 0o600)
    assert asyncio.run(greet())


# -- without it --


def test_without_the_extension_elements_are_used_and_nothing_of_x11(tmp_path):
    gnome = GnomeDesktop(extension=False)
    try:
        program = gnome.start("gtk3")
        x11 = gnome.start("gtk3", env={"GDK_BACKEND": "x11"})
        # Neither a terminal that knows of Xwayland alone, nor one that knows of both, leads to X11.
        for environment in ({}, {"WAYLAND_DISPLAY": ""}):
            host = HostProcess(gnome, tmp_path, env=environment, stop_keys=True)
            try:
                found = host.call("desktop.doctor")
                can = found["capabilities"]
                assert (can["session"], can["places"], can["pictures"]) == ("GNOME", False, "none")
                assert (can["keys"], can["clicks"], can["elements"]) == ("none", "none", True)
                assert all("bascule desktop gnome install" in each for each in found["remedies"])
                assert len(found["issues"]) == 2
                assert host.call("desktop.health")["stopKeys"] is None
                shown = {each["pid"] for each in host.call("desktop.windows")["windows"]}
                assert {program.pid, x11.pid} <= shown
                for each in (program, x11):
                    typed = host.act("desktop.typeText", route=route(each), target=NAME, text=TEXT)
                    each.until(name=TEXT)
                    assert typed["effect"] == "confirmed"
                    with pytest.raises(Refused) as refused:
                        host.act("desktop.hotkey", route=route(each), keys=["x"])
                    assert refused.value.code in ("DESKTOP_PERMISSION_MISSING", "DESKTOP_ELEMENT_NOT_FOUND")
                    assert "keys" not in each.state
                    host.act("desktop.setValue", route=route(each), target=NAME, value="")
            finally:
                host.close()
    finally:
        gnome.close()
