"""The person's clipboard is theirs: what they had is given back, and what they copy meanwhile stays."""

import subprocess

import pytest

from bascule.programs.desktop_host.linux.clipboard import ClipboardThread

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
print(Gtk.Clipboard.get(Gdk.SELECTION_CLIPBOARD).wait_for_text())
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


def read(desktop):
    command = ["/usr/bin/python3", "-c", READ]
    done = subprocess.run(command, env=desktop.environment, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.rstrip("\n")


def test_what_was_there_is_given_back(desktop, clipboard, copy):
    copy("mine é")
    saved = clipboard.save()
    clipboard.offer("typed")
    assert read(desktop) == "typed"
    assert clipboard.restore(saved) == "restored"
    assert read(desktop) == "mine é"


def test_what_the_person_copies_while_a_text_is_typed_stays(desktop, clipboard, copy):
    copy("old")
    saved = clipboard.save()
    clipboard.offer("typed")
    copy("newer")
    assert clipboard.restore(saved) == "restored"
    assert read(desktop) == "newer"


def test_a_typed_text_that_a_clipboard_manager_took_does_not_stay_there(desktop, clipboard, copy):
    copy("old")
    saved = clipboard.save()
    clipboard.offer("a secret 中")
    copy("a secret 中")
    clipboard.restore(saved)
    assert read(desktop) == "old"
