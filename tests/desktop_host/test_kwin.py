"""KWin's permission: given to our host by its launcher, to nobody else, and not without a person."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from desktop_rig import until
from host_process import HostProcess, Refused, route
from hypothesis import given
from hypothesis import strategies as st
from kwin_rig import KwinDesktop
from person_terminal import run_by_a_person, run_by_a_program

from bascule.desktop.kwin import LENDER
from bascule.desktop.machine import kwin_permission
from bascule.desktop.machine.client import HostClient
from bascule.desktop.machine.kwin_launcher import source
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.bus import Bus
from bascule.programs.desktop_host.linux.wayland import kwin_look
from bascule.programs.desktop_host.linux.wayland.connection import Connection
from bascule.programs.desktop_host.linux.wayland.kwin import KwinSession
from bascule.programs.desktop_host.linux.wayland.kwin_input import FakeInput
from bascule.programs.desktop_host.linux.wayland.kwin_lender import Lender, bus_socket
from bascule.programs.desktop_host.linux.wayland.kwin_pictures import Captured, capture_area, capture_windows
from bascule.programs.desktop_host.linux.wayland.kwin_stop_keys import code_of
from bascule.programs.desktop_host.ports import Elsewhere, Halt, NoSuchKey, NotReachable
from patience import PATIENCE

NAME = {"selector": {"titleContains": "Name"}}


@pytest.fixture(scope="module")
def kwin():
    desktop = KwinDesktop()
    yield desktop
    desktop.close()


@pytest.fixture
def start(kwin):
    started = []

    def start(app, **more):
        started.append(kwin.start(app, **more))
        return started[-1]

    yield start
    for each in started:
        each.kill()


# -- who has it --


def test_another_python_program_gets_neither_keys_nor_pictures(kwin):
    async def without():
        connection = await Connection.open(kwin.environment)
        offered = set(connection.globals)
        connection.close()
        bus = await Bus.open(kwin.environment["DBUS_SESSION_BUS_ADDRESS"], descriptors=True)
        try:
            with pytest.raises(NotReachable, match="NoAuthorized"):
                await capture_area(bus, Rect(0, 0, 10, 10))
        finally:
            bus.close()
        return offered

    async def by_the_launcher():
        session = KwinSession(kwin.with_permission(), None)
        await session.open()
        try:
            assert len((await session.pictures.grab(Rect(0, 0, 10, 10))).pixels) == 400
            # A window that has closed meanwhile is not in a picture, and the others are.
            closed = Captured("{f80eb0bf-d143-4cde-91ae-264a84189047}", Rect(0, 0, 9, 9), ())
            bus = await session._link.picture_bus()
            assert (await capture_windows(bus, Rect(0, 0, 10, 10), [closed])).alone
            return set((await session._link.permitted()).wayland.globals)
        finally:
            await session.close()

    restricted = {"org_kde_kwin_fake_input", "org_kde_plasma_window_management"}
    assert asyncio.run(without()).isdisjoint(restricted)
    # The control: the same interpreter, with connections that the launcher made.
    assert asyncio.run(by_the_launcher()) >= restricted


def test_the_launcher_starts_our_host_whatever_it_is_told(kwin, tmp_path):
    launcher = str(kwin.directory / "home/.local/share/bascule/kwin" / kwin_permission.LAUNCHER)
    spy = tmp_path / "spy.py"
    spy.write_text("print('loaded')")
    hostile = {"PYTHONSTARTUP": str(spy), "PYTHONPATH": str(tmp_path), "LD_PRELOAD": "/nonexistent.so"}
    (tmp_path / "bascule").mkdir()
    (tmp_path / "bascule/__init__.py").write_text("print('loaded')")
    for words in (["-c", "print('ran')"], [str(spy)], ["--help"]):
        ended = subprocess.run(
            [launcher, *words],
            env=kwin.environment | hostile,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        shown_text = ended.stdout + ended.stderr
        assert "desktop-host" in shown_text
        assert not {"ran", "loaded"} & set(shown_text.split())
        # ld.so says so when it is told to load what is not there.
        assert "nonexistent" not in shown_text


def test_without_the_permission_elements_are_used_and_the_rest_is_said_to_be_missing(kwin, tmp_path, start):
    app = start("gtk3")
    # As where nobody has installed anything: no launcher is found.
    (tmp_path / "home").mkdir()
    host = HostProcess(kwin, tmp_path, env={"HOME": str(tmp_path / "home")}, stop_keys=True)
    try:
        found = host.call("desktop.doctor")
        can = found["capabilities"]
        assert (can["session"], can["places"], can["pictures"], can["keys"], can["clicks"]) == (
            "KWin",
            True,
            "none",
            "none",
            "none",
        )
        assert "Screen Recording permission denied" in found["issues"][0]
        assert "bascule desktop kwin install" in found["remedies"][0]
        # These need none.
        assert until(lambda: host.call("desktop.health")["stopKeys"], "the stop keys are bound")
        window = next(each for each in host.call("desktop.windows")["windows"] if each["pid"] == app.pid)
        assert window["frame"]["width"] > 100
        host.act("desktop.focusWindow", route=route(app))
        typed = host.act("desktop.typeText", route=route(app), target=NAME, text="héllo 中文 😀")
        app.until(name="héllo 中文 😀")
        assert typed["effect"] == "confirmed"
        with pytest.raises(Refused) as refused:
            host.act("desktop.hotkey", route=route(app), keys=["x"])
        assert refused.value.code == "DESKTOP_PERMISSION_MISSING"
        assert "keys" not in app.state
    finally:
        host.close()


def test_the_host_that_the_daemon_starts_goes_through_the_launcher(kwin, tmp_path, start):
    app = start("gtk3")

    async def act():
        root = str(tmp_path)
        options = ["--no-stop-keys"]
        client = await HostClient.spawn(root, root, environment=kwin.environment, options=options)
        try:
            while (health := await client.call("desktop.health", client="daemon")).capabilities is None:
                continue
            assert (health.capabilities.keys, health.capabilities.pictures) == ("held", "own")
            keys = {"route": route(app), "keys": ["x"]}
            await client.confirmed("desktop.hotkey", keys, client="daemon")
        finally:
            await client.close()

    asyncio.run(act())
    app.until(keys=[["x", 0]])
    # The launcher's other half ends with the host.
    assert until(lambda: not running(kwin_permission.LAUNCHER, kwin.directory), "the launcher ends")


def running(name, beneath):
    found = []
    for entry in Path("/proc").glob("[0-9]*/exe"):
        with contextlib.suppress(OSError):
            program = os.readlink(entry)
            if os.path.basename(program) == name and program.startswith(str(beneath)):
                found.append(entry)
    return found


# -- what has the keyboard --


@pytest.mark.parametrize(
    ("question", "refused"),
    [
        (("org.freedesktop.ScreenSaver", "GetActive", "true"), (Elsewhere, "lock screen")),
        (("org.kde.keyboard", "getLayout", "1"), (NoSuchKey, "switch it back")),
    ],
)
def test_no_key_is_sent_to_a_locked_screen_or_by_another_layout(kwin, start, question, refused):
    app = start("gtk3")
    answering = os.path.join(os.path.dirname(__file__), "answering.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    other = kwin.spawn(sys.executable, answering, *question, **pipes)
    assert other.stdout.readline() == "ready\n"

    async def keys():
        session = KwinSession(kwin.with_permission(), None)
        await session.open()
        try:
            (window,) = (each for each in await session.windows.windows() if each.pid == app.pid)
            with pytest.raises(refused[0], match=refused[1]):
                await session.hands.chord(["x"], Halt(), window)
            # The control: nobody says so any more.
            other.stdin.close()
            other.wait()
            await session.hands.chord(["y"], Halt(), window)
        finally:
            await session.close()

    try:
        asyncio.run(keys())
        until(lambda: app.state.get("keys") == [["y", 0]], "the key arrives")
    finally:
        other.kill()
        other.stdout.close()


@pytest.mark.parametrize("held", ["shift", "alt"])
def test_a_modifier_that_the_person_holds_does_not_join_our_keys(kwin, start, held, monkeypatch):
    app = start("gtk3")

    async def keys():
        session = KwinSession(kwin.with_permission(), None)
        await session.open()
        try:
            (window,) = (each for each in await session.windows.windows() if each.pid == app.pid)
            kwin.keys(f"hold {held}")
            await session.hands.chord(["b"], Halt(), window)
            until(lambda: ["b", 0] in app.state.get("keys", []), "the key arrives alone")
            kwin.keys("release")
            # The person's key is a key again when it is pressed again, and the control: without the guard it joins.
            kwin.keys(f"hold {held}")
            monkeypatch.setattr(FakeInput, "release_modifiers", lambda _: None)
            await session.hands.chord(["c"], Halt(), window)
            until(
                lambda: any(name.lower() == "c" and bits for name, bits in app.state["keys"]), f"{held} joins the key"
            )
        finally:
            kwin.keys("release")
            await session.close()

    asyncio.run(keys())
    assert [each for each in app.state["keys"] if each[0].lower() == "b"] == [["b", 0]]


@pytest.mark.long
def test_a_kwin_that_was_started_again_is_used_again_and_has_the_stop_keys_again(tmp_path):
    desktop = KwinDesktop()
    host = HostProcess(desktop, tmp_path, stop_keys=True)
    try:
        assert until(lambda: host.call("desktop.health")["stopKeys"], "the stop keys are bound")
        desktop.kwin.kill()
        desktop.kwin.wait()
        # Nobody is told of keys that nothing hears.
        until(lambda: host.call("desktop.health")["stopKeys"] is None, "they are gone")
        desktop.start_kwin()
        until(lambda: host.call("desktop.health")["stopKeys"], "they are bound again")
        app = desktop.start("gtk3")
        host.act("desktop.hotkey", route=route(app), keys=["x"])
        app.until(keys=[["x", 0]])
    finally:
        host.close()
        desktop.close()


# -- how it is given --


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return tmp_path


def test_what_is_installed_is_for_this_interpreter_alone_and_can_be_taken_back(home):
    planned = kwin_permission.plan()
    assert kwin_permission.installed() is None
    kwin_permission.install(planned)
    assert kwin_permission.installed() == planned.launcher
    assert f"Exec={planned.launcher}\n" in (home / ".local/share/applications" / kwin_permission.ENTRY).read_text()
    assert kwin_permission.installed("/another/python") is None
    # Where others could put something in its place, it is not run.
    os.chmod(os.path.dirname(planned.launcher), 0o755)
    assert kwin_permission.installed() is None
    os.chmod(os.path.dirname(planned.launcher), 0o700)
    assert sorted(kwin_permission.remove()) == sorted([planned.launcher, planned.code_file, planned.entry_file])
    assert kwin_permission.installed() is None
    assert kwin_permission.remove() == []


def test_a_launcher_that_cannot_be_made_says_what_to_install(home, monkeypatch):
    with pytest.raises(kwin_permission.CannotInstall) as refused:
        kwin_permission.install(kwin_permission.plan(compiler="/bin/false"))
    assert "libc6-dev" in refused.value.hint
    assert kwin_permission.installed() is None
    assert not (home / ".local/share/applications").exists()
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(kwin_permission.CannotInstall) as refused:
        kwin_permission.plan()
    assert "gcc" in refused.value.hint


def test_a_path_that_an_entry_would_cut_is_refused(home, monkeypatch):
    (home / "my home").mkdir()
    monkeypatch.setenv("HOME", str(home / "my home"))
    with pytest.raises(kwin_permission.CannotInstall, match="' '"):
        kwin_permission.plan()


def test_nobody_but_a_person_at_a_terminal_can_say_yes(home):
    assert run_by_a_program("desktop", "kwin", "install", HOME=str(home)) != 0
    assert not (home / ".local").exists()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_everything_is_shown_before_the_question(home, answer):
    def nothing_is_done():
        assert not (home / ".local").exists()

    words = ("desktop", "kwin", "install")
    shown_text = run_by_a_person(*words, answer=answer, when_asked=nothing_is_done, HOME=str(home))
    launcher = home / ".local/share/bascule/kwin/bascule-desktop-host"
    for line in (*kwin_permission.entry(str(launcher)).splitlines(), "static void lend(int asked) {", "-static"):
        assert line in shown_text
    assert launcher.exists() is (answer == "y")


# -- what is read of it --


def described(**changed):
    window = {
        "id": "{f80eb0bf-d143-4cde-91ae-264a84189047}",
        "pid": 7,
        "title": "One",
        "names": ["org.one", "one", ""],
        "frame": [10, 20, 300, 200],
        "content": [10, 50, 300, 170],
        "buffer": [0, 10, 320, 220],
        "order": 0,
        "layer": 2,
        "active": True,
        "popup": False,
        "raised": False,
        "x11": False,
    }
    return window | changed


def seen(*windows, active="{f80eb0bf-d143-4cde-91ae-264a84189047}"):
    answer = {"turn": "t", "windows": windows, "active": active, "screen": [0, 0, 1280, 900]}
    return kwin_look.seen_in(json.dumps(answer), lambda _: "/usr/bin/one")


def test_windows_are_in_their_order_with_frame_and_content():
    other = "{d6b6441b-4292-455e-91ac-82909eeb454f}"
    found = seen(described(id=other, title="above", layer=4, order=0, active=False), described(order=1))
    assert [each.title for each in found.windows] == ["One", "above"]
    (one, _) = found.windows
    assert (one.rect, one.outer) == (Rect(10, 50, 300, 170), Rect(10, 20, 300, 200))
    assert (one.bundle_id, one.handle) == ("org.one", 0x264A84189047)
    assert (found.active, found.prompt, found.screen) == (one.handle, False, Rect(0, 0, 1280, 900))


def test_a_windows_picture_is_put_where_it_is_by_its_size():
    frame, content, buffer = Rect(10, 20, 300, 200), Rect(10, 50, 300, 170), Rect(0, 10, 320, 220)
    window = Captured("{1}", frame, (frame, content, buffer))
    assert window.part_in(300, 200) == (Rect(0, 0, 300, 200), frame)
    # KWin's title bar is not in it.
    assert window.part_in(300, 170) == (Rect(0, 0, 300, 170), content)
    # A shadow around the frame is left out.
    assert window.part_in(320, 220) == (Rect(10, 10, 300, 200), frame)
    assert window.part_in(340, 240) is None


@pytest.mark.parametrize(
    ("buffer", "content"),
    [([10, 57, 300, 163], Rect(10, 57, 300, 163)), ([0, 10, 320, 220], Rect(10, 20, 300, 200))],
)
def test_the_content_is_where_the_buffer_is_unless_a_shadow_is_in_it(buffer, content):
    (window,) = seen(described(content=None, buffer=buffer)).windows
    assert (window.rect, window.outer) == (content, Rect(10, 20, 300, 200))


@pytest.mark.parametrize(("layer", "raised", "prompt"), [(2, False, False), (10, False, True), (4, True, False)])
def test_what_lies_above_all_windows_and_has_the_keyboard_is_a_prompt(layer, raised, prompt):
    assert seen(described(layer=layer, raised=raised)).prompt is prompt
    assert (seen(described(layer=layer, raised=raised)).active is None) is prompt


_VALUES = st.none() | st.integers() | st.text(max_size=5)
_ANSWERS = st.recursive(_VALUES, lambda each: st.lists(each) | st.dictionaries(st.text(max_size=5), each), max_leaves=8)


@given(st.text() | _ANSWERS.map(json.dumps))
def test_no_answer_of_a_script_escapes_with_another_error(answer):
    kwin_look.turn_of(answer)
    try:
        kwin_look.seen_in(answer, lambda _: None)
    except kwin_look.BadAnswer:
        return


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("unix:path=/run/user/1000/bus", b"/run/user/1000/bus"),
        ("unix:path=/tmp/a%20b,guid=1", b"/tmp/a b"),
        ("unix:abstract=/tmp/dbus-x,guid=1", b"\0/tmp/dbus-x"),
        ("tcp:host=x;unix:guid=1,path=/p", b"/p"),
    ],
)
def test_the_address_of_a_bus_is_where_the_kernel_has_it(address, where):
    assert bus_socket(address) == where
    with pytest.raises(NotReachable):
        bus_socket("tcp:host=localhost,port=1")


def test_a_launcher_that_is_gone_is_said_to_be(tmp_path):
    read, write = os.pipe()
    os.close(write)

    ours, theirs = socket.socketpair()

    async def ask():
        for number in ("", "x", str(read), str(ours.fileno())):
            lender = Lender({LENDER: number})
            try:
                with pytest.raises(NotReachable):
                    await lender.connect(b"/nowhere")
            finally:
                lender.close()

    with ours, theirs:
        asyncio.run(ask())
        # Not a word to a socket that is another's.
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
    os.close(read)


def test_the_launchers_command_is_words_of_c():
    assert '{"/a \\"b\\" \\\\c", "é", 0}' in source(['/a "b" \\c', "é"])


def test_chords_are_qts_numbers():
    assert code_of("Ctrl+Alt+Shift+Escape") == 0x0F000000
    assert code_of("Ctrl+Alt+Shift+F12") == 0x0F00003B
