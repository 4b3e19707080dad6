"""The person's clipboard is theirs: what they had is given back, and what they copy meanwhile stays."""

import signal
import subprocess
from pathlib import Path

import pytest
from browsers import TITLE, open_browser
from desktop_rig import until

from bascule.programs.desktop_host.linux.clipboard import ClipboardThread, Fetches
from patience import PATIENCE

NAME = {"selector": {"byRole": "AXTextField", "titleContains": "Name"}}
PHRASE = {"phrase": "CONFIRM"}

# A program that owns the clipboard, as any editor does: its text, until it ends.
OWNER = """
import sys, gi
gi.require_version("Gtk", "3.0"); gi.require_version("Gdk", "3.0")
from gi.repository import Gdk, Gtk
clipboard = Gtk.Clipboard.get(Gdk.SELECTION_CLIPBOARD)
clipboard.set_text(sys.argv[1], -1)
print("owned", flush=True)
Gtk.main()
"""
READ = """
import gi
gi.require_version("Gtk", "3.0"); gi.require_version("Gdk", "3.0")
from gi.repository import Gdk, Gtk
import sys
for _ in sys.stdin:
    print(Gtk.Clipboard.get(Gdk.SELECTION_CLIPBOARD).wait_for_text(), flush=True)
"""


@pytest.fixture
def copy(desktop):
    started = []

    def copy(text):
        process = desktop.spawn("/usr/bin/python3", "-c", OWNER, text, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "owned\n"

    yield copy
    for each in started:
        each.kill()
        each.wait()
        each.stdout.close()


@pytest.fixture
def clipboard(desktop):
    thread = ClipboardThread(desktop.display)
    yield thread
    thread.close()


@pytest.fixture
def read(desktop):
    """What a paste would give, as another program sees it. It runs already: a text is there for moments only."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    process = desktop.spawn("/usr/bin/python3", "-c", READ, **pipes)

    def read():
        process.stdin.write("\n")
        return process.stdout.readline().rstrip("\n")

    read()
    yield read
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_what_was_there_is_given_back(clipboard, copy, read):
    copy("mine é")
    saved = clipboard.save()
    clipboard.offer("typed")
    assert read() == "typed"
    assert clipboard.restore(saved) == "restored"
    assert read() == "mine é"


def test_what_the_person_copies_while_a_text_is_typed_stays(clipboard, copy, read):
    copy("old")
    saved = clipboard.save()
    clipboard.offer("typed")
    copy("newer")
    assert clipboard.restore(saved) == "restored"
    assert read() == "newer"


def test_a_typed_text_that_a_clipboard_manager_took_does_not_stay_there(clipboard, copy, read):
    copy("old")
    saved = clipboard.save()
    clipboard.offer("a secret 中")
    copy("a secret 中")
    clipboard.restore(saved)
    assert read() == "old"


def test_what_was_there_is_given_back_after_a_browser_has_pasted(desktop, host, copy, read):
    """Chromium fetches a text twice and inserts the second: given back too soon, the page gets the person's."""
    browser = open_browser(desktop, "chromium")
    try:
        page = {"window": {"titlePattern": TITLE}}
        field = {"selector": {"byRole": "AXTextField", "titleContains": "Name"}}
        shown = {"selectorExists": field["selector"]}
        host.call("desktop.waitUntil", route=page, condition=shown, timeoutMs=30_000)
        copy("mine é")
        result = host.act("desktop.typeText", route=page, target=field, text="typed")
        browser.until(name="typed")
        assert (result["typed"], result["effect"], result["clipboard"]) == (True, "confirmed", "restored")
        assert read() == "mine é"
    finally:
        browser.kill()


def test_what_was_there_is_given_back_when_a_text_is_aborted_that_nobody_pastes(desktop, host, copy, read):
    program = desktop.start_bare("count")
    try:
        until(lambda: desktop.shows(program.title), "the window is there")
        copy("mine é")
        typing = host.later("desktop.typeText", route={"app": {"pid": program.pid}}, text="typed", confirm=PHRASE)
        until(lambda: read() == "typed", "the text is on the clipboard")
        host.call("desktop.abort", executionId=typing.request_id)
        assert typing.answer()["error"]["code"] == "DESKTOP_ABORTED"
        assert read() == "mine é"
    finally:
        program.kill()


@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_there_comes_back_when_the_host_ends_in_the_middle_of_a_paste(desktop, start_host, copy, read, ends):
    """Without another process that has it ready, it would have gone with the host."""
    host, program = start_host(), desktop.start_bare("count")
    try:
        until(lambda: desktop.shows(program.title), "the window is there")
        copy("mine é")
        typing = host.later("desktop.typeText", route={"app": {"pid": program.pid}}, text="typed", confirm=PHRASE)
        until(lambda: read() == "typed", "the text is on the clipboard")
        host.process.send_signal(ends)
        host.process.wait(PATIENCE)
        typing.answer()
        until(lambda: read() == "mine é", "what was there")
    finally:
        program.kill()


def test_what_the_person_copied_before_the_host_ended_is_not_replaced(desktop, start_host, copy, read):
    host, program = start_host(), desktop.start("gtk3")
    try:
        copy("old")
        host.act("desktop.typeText", route={"app": {"pid": program.pid}}, target=NAME, text="typed")
        assert read() == "old"
        copy("newer")
        host.process.kill()
        host.process.wait(PATIENCE)
        assert read() == "newer"
        until(lambda: keepers(desktop) == [], "nothing of ours is left")
    finally:
        program.kill()


def keepers(desktop):
    """The processes that have something ready on this display."""
    own = f"clipboard_keeper\0{desktop.display}\0".encode()
    return [each for each in Path("/proc").glob("[0-9]*/cmdline") if own in command_of(each)]


def command_of(file):
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_a_text_that_nobody_but_a_clipboard_manager_fetches_is_not_typed(desktop, host, copy, read):
    program = desktop.start_bare("count")
    try:
        until(lambda: desktop.shows(program.title), "the window is there")
        copy("mine é")
        typing = host.later("desktop.typeText", route={"app": {"pid": program.pid}}, text="typed", confirm=PHRASE)
        until(lambda: read() == "typed", "another program has fetched it")
        result = typing.result()
        assert (result["typed"], result["effect"], result["clipboard"]) == (False, "none", "restored")
        assert read() == "mine é"
    finally:
        program.kill()


def test_a_text_is_over_only_when_nobody_fetches_it_any_more():
    fetches = Fetches()
    assert fetches.over() is None
    assert fetches.over(-1) is False
    fetches.note()
    # Fetched just now: a second time may follow.
    assert fetches.over() is None
    until(fetches.over, "it is quiet")


# Inserts what is there when it looks a second time, as a browser does on a machine that is busy with other things.
LATE = """
import gi
gi.require_version("Gtk", "3.0"); gi.require_version("Gdk", "3.0")
from gi.repository import Gdk, GLib, Gtk
clipboard = Gtk.Clipboard.get(Gdk.SELECTION_CLIPBOARD)
entry = Gtk.Entry()
entry.get_accessible().set_name("Name")
def insert():
    entry.set_text(clipboard.wait_for_text() or "")
def paste(_):
    entry.stop_emission_by_name("paste-clipboard")
    clipboard.wait_for_text()
    GLib.timeout_add(600, insert)
entry.connect("paste-clipboard", paste)
window = Gtk.Window(title="Late")
window.add(entry)
window.show_all()
Gtk.main()
"""


def test_a_text_stays_until_a_busy_program_shows_it(desktop, host, copy, read):
    copy("the person's")
    late = desktop.spawn("/usr/bin/python3", "-c", LATE)
    route = {"window": {"titlePattern": "Late"}}
    try:
        host.call("desktop.waitUntil", route=route, condition={"selectorExists": NAME["selector"]}, timeoutMs=30_000)
        result = host.act("desktop.typeText", route=route, target=NAME, text="ours")
        assert (result["typed"], result["effect"], result["clipboard"]) == (True, "confirmed", "restored")
    finally:
        late.kill()
        late.wait()
    assert read() == "the person's"
