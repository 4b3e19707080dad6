"""GNOME's extension, without GNOME: by whom it is installed, both its forms, and to whom the host proves itself."""

import asyncio
import contextlib
import json
import os
import subprocess

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus
from hypothesis import given
from hypothesis import strategies as st
from person_terminal import run_by_a_person, run_by_a_program

from bascule.desktop.gnome import BUS_NAME, BUS_PATH, UUID, proof, token_file
from bascule.desktop.machine import gnome_install
from bascule.foundation import paths
from bascule.programs.desktop_host.geometry import Rect
from bascule.programs.desktop_host.linux.sessions import session_of
from bascule.programs.desktop_host.linux.wayland import gnome_look, kwin_look
from bascule.programs.desktop_host.linux.wayland.bare import BareSession
from bascule.programs.desktop_host.linux.wayland.gnome import GnomeSession
from bascule.programs.desktop_host.linux.wayland.gnome_link import GnomeLink, NotThere
from bascule.programs.desktop_host.linux.x11_session import X11Session
from bascule.programs.desktop_host.ports import NotReachable
from npm_tools import NODE
from patience import PATIENCE

OTHER = "other@example.org"
# GNOME's own programs, as far as they are asked: a setting that is kept in a file, and a version.
GSETTINGS = """#!/bin/sh
case $1 in
get) cat "$HOME/enabled" 2>/dev/null || echo '@as []' ;;
set) printf '%s\\n' "$4" > "$HOME/enabled" ;;
esac
"""
GNOME_SHELL = "#!/bin/sh\necho GNOME Shell ${SHELL_VERSION:-43.9}\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("gsettings", GSETTINGS), ("gnome-shell", GNOME_SHELL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o700)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("SHELL_VERSION", raising=False)
    return tmp_path


def extension(home):
    return home / ".local/share/gnome-shell/extensions" / UUID


# -- both forms --


@pytest.mark.parametrize(("version", "name"), [(43, "extension.js"), (44, "extension.js"), (45, "extension.mjs")])
def test_the_extension_is_javascript_in_the_form_that_its_shell_loads(tmp_path, version, name):
    code = gnome_install.code_for(version)
    file = tmp_path / name
    file.write_text(code)
    subprocess.run([NODE, "--check", file], check=True, timeout=PATIENCE)
    # The control: a module is not a script.
    if name.endswith("mjs"):
        (tmp_path / "script.cjs").write_text(code)
        assert subprocess.run([NODE, "--check", tmp_path / "script.cjs"], check=False, capture_output=True).returncode
    assert code.endswith(gnome_install.code_for(43).split("class Desktop {")[1])


def test_another_version_of_the_shell_is_refused_with_what_works_there():
    for version in (42, 50):
        with pytest.raises(gnome_install.CannotInstall, match=str(version)) as refused:
            gnome_install.code_for(version)
        assert "log in to" in refused.value.hint


# -- by whom --


def test_what_is_installed_can_be_taken_back(home):
    (home / "enabled").write_text(f"['{OTHER}']\n")
    assert not gnome_install.installed()
    gnome_install.install(gnome_install.plan())
    assert gnome_install.installed()
    metadata = json.loads((extension(home) / "metadata.json").read_text())
    assert (metadata["uuid"], metadata["shell-version"]) == (UUID, ["43"])
    assert metadata["x-bascule-token"] == token_file()
    assert os.stat(token_file()).st_mode & 0o777 == 0o600
    assert (home / "enabled").read_text() == f"['{OTHER}', '{UUID}']\n"
    first = paths.read_private_file(token_file())
    # Once more: another token, and it is not named twice.
    assert gnome_install.plan().enable is None
    gnome_install.install(gnome_install.plan())
    assert paths.read_private_file(token_file()) != first
    (extension(home) / "extension.js").write_text("// of another installation")
    assert not gnome_install.installed()
    assert gnome_install.remove() == [token_file(), str(extension(home))]
    assert (home / "enabled").read_text() == f"['{OTHER}']\n"
    assert gnome_install.remove() == []


def test_nothing_is_written_or_removed_through_a_link(home):
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "extension.js").write_text("somebody's")
    extension(home).parent.mkdir(parents=True)
    extension(home).symlink_to(elsewhere)
    planned = gnome_install.plan(43)
    with pytest.raises(gnome_install.CannotInstall, match="link"):
        gnome_install.install(planned)
    assert gnome_install.remove() == [str(extension(home))]
    assert [each.name for each in elsewhere.iterdir()] == ["extension.js"]
    assert (elsewhere / "extension.js").read_text() == "somebody's"
    # The control: without the link the same plan is written.
    gnome_install.install(planned)
    assert (extension(home) / "extension.js").read_text() != "somebody's"


def test_a_newer_shell_gets_the_module(home, monkeypatch):
    monkeypatch.setenv("SHELL_VERSION", "46.0")
    gnome_install.install(gnome_install.plan())
    assert "export default class" in (extension(home) / "extension.js").read_text()
    assert gnome_install.installed()


def test_nobody_but_a_person_at_a_terminal_can_say_yes(home):
    assert run_by_a_program("desktop", "gnome", "install") != 0
    assert not (home / ".local").exists()


@pytest.mark.parametrize("answer", ["y", "n"])
def test_everything_is_shown_before_the_question(home, answer):
    def nothing_is_done():
        assert not (home / ".local").exists()
        assert not (home / "enabled").exists()

    shown = run_by_a_person("desktop", "gnome", "install", answer=answer, when_asked=nothing_is_done)
    code = extension(home) / "extension.js"
    for line in (*gnome_install.code_for(43).splitlines(), *gnome_install.metadata(43).splitlines()):
        assert line in shown
    for each in (str(code), token_file(), "gsettings set org.gnome.shell enabled-extensions"):
        assert each in shown
    assert code.exists() is (answer == "y")
    assert (home / "enabled").exists() is (answer == "y")


def test_without_gnomes_programs_it_says_what_to_install(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(gnome_install.CannotInstall) as refused:
        gnome_install.plan()
    assert "libglib2.0-bin" in refused.value.hint


# -- which session --


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0", "XDG_CURRENT_DESKTOP": "ubuntu:GNOME"}, GnomeSession),
        ({"DISPLAY": ":0", "XDG_SESSION_TYPE": "wayland", "XDG_CURRENT_DESKTOP": "GNOME"}, GnomeSession),
        ({"DISPLAY": ":0", "XDG_SESSION_TYPE": "x11", "XDG_CURRENT_DESKTOP": "GNOME"}, X11Session),
        ({"WAYLAND_DISPLAY": "wayland-0", "XDG_CURRENT_DESKTOP": "COSMIC"}, BareSession),
    ],
)
def test_a_gnome_session_on_wayland_is_never_one_of_x11(environment, kind):
    assert type(session_of(environment, None)) is kind


# -- to whom the host proves itself --


class Pretender:
    """A program that has the names it is given, and answers as it is told."""

    def __init__(self, bus):
        self.bus = bus
        self.asked = []
        self.token = ""

    @classmethod
    async def named(cls, address, *names):
        made = cls(await MessageBus(bus_address=address).connect())
        made.bus.add_message_handler(made.on_message)
        for name in names:
            await made.bus.request_name(name)
        return made

    def on_message(self, message):
        if message.message_type is not MessageType.METHOD_CALL or message.path != BUS_PATH:
            return None
        self.asked.append((message.member, message.body))
        if message.member == "Hello":
            about = (self.bus.unique_name, message.sender, message.body[0], "n")
            return Message.new_method_return(message, "s", [f"n {proof(self.token, 'shell', *about)}"])
        if message.member == "Look":
            return Message.new_method_return(message, "s", ["{}"])
        return Message.new_method_return(message)


@pytest.fixture
def address(tmp_path):
    command = ["dbus-daemon", "--session", "--nofork", "--print-address=1", f"--address=unix:path={tmp_path}/bus"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        yield daemon.stdout.readline().strip()
        daemon.kill()


def opened(address, *pretenders, token="right"):
    """Who was asked what when the host looks for the shell: `pretenders` are the names each of them has."""

    async def run():
        made = [await Pretender.named(address, *names) for names in pretenders]
        link = GnomeLink({"DBUS_SESSION_BUS_ADDRESS": address})
        for each in made:
            each.token = token
        try:
            await link.open()
            return made[0].asked, await link.ask("Look")
        except NotReachable as error:
            return [asked for each in made for asked in each.asked], error
        finally:
            link.close()
            for each in made:
                each.bus.disconnect()

    return asyncio.run(run())


def write_token(text):
    paths.make_private_dir(os.path.dirname(token_file()))
    paths.write_private_file(token_file(), text)


def test_the_host_says_nothing_to_a_program_that_is_not_the_shell(home, address):
    write_token("right")
    asked, error = opened(address, [BUS_NAME], ["org.gnome.Shell"])
    assert "another program" in str(error)
    assert asked == []
    asked, error = opened(address, ["org.gnome.Shell"])
    assert isinstance(error, NotThere)
    assert asked == []


def test_the_host_proves_nothing_to_a_shell_without_the_token(home, address):
    write_token("right")
    asked, error = opened(address, [BUS_NAME, "org.gnome.Shell"], token="wrong")
    assert "another token" in str(error)
    assert [member for member, _ in asked] == ["Hello"]
    # The control: one that has it is told, and asked.
    asked, answer = opened(address, [BUS_NAME, "org.gnome.Shell"])
    assert ([member for member, _ in asked], answer) == (["Hello", "Open", "Look"], "{}")
    assert not [body for _, body in asked if "right" in str(body)]


def test_without_a_token_it_is_not_installed_and_nobody_is_asked(home, address):
    asked, error = opened(address, [BUS_NAME, "org.gnome.Shell"])
    assert isinstance(error, NotThere)
    assert asked == []
    write_token("right")
    os.chmod(token_file(), 0o644)
    asked, error = opened(address, [BUS_NAME, "org.gnome.Shell"])
    assert "cannot be read" in str(error)
    assert asked == []


# -- what is read of it --


def described(**changed):
    window = {
        "id": "2673837711",
        "pid": 7,
        "title": "One",
        "names": ["org.one", "", "one"],
        "frame": [304, 122, 671, 597],
        "content": None,
        "buffer": [278, 99, 723, 649],
        "order": 0,
        "layer": 2,
        "active": True,
        "popup": False,
        "raised": False,
        "x11": False,
    }
    return window | changed


def test_windows_are_in_their_order_with_a_handle_that_leads_back():
    below = described(id="5", order=0, title="below", active=False)
    answer = {"windows": [described(order=1), below], "active": "2673837711", "screen": [0, 0, 1280, 900]}
    seen = gnome_look.seen_in(json.dumps(answer), lambda _: "/usr/bin/one")
    assert [each.title for each in seen.windows] == ["below", "One"]
    one = seen.windows[1]
    assert gnome_look.id_of(one.handle) == "2673837711"
    # The shadow is not in it.
    assert (one.rect, one.outer) == (Rect(304, 122, 671, 597), Rect(304, 122, 671, 597))
    assert (seen.active, one.placeless, one.bundle_id) == (one.handle, True, "org.one")


_VALUES = st.none() | st.integers() | st.text(max_size=5)
_ANSWERS = st.dictionaries(st.sampled_from(["windows", "active", "screen"]), _VALUES)


@given(st.text(max_size=20) | _ANSWERS.map(json.dumps))
def test_no_answer_of_the_shell_escapes_with_another_error(answer):
    with contextlib.suppress(kwin_look.BadAnswer):
        gnome_look.seen_in(answer, lambda _: None)


@given(st.text(max_size=5))
def test_a_windows_number_is_digits_or_none(text):
    handle = gnome_look.handle_of(text)
    assert handle is None or gnome_look.id_of(handle) == str(int(text))
