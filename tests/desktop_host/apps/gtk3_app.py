"""A GTK 3 window with one of each thing a test acts on. Run by the system's Python, which has the bindings."""

import os
import signal
import time

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk  # noqa: E402 - the version is chosen first
from own_state import arguments  # noqa: E402 - after the bindings, as above

STATE, TITLE, ROWS = arguments()
# As in real windows: GTK 3 counts a widget's place among its siblings anew for each of them.
GROUP = 25


class Window(Gtk.Window):
    def __init__(self):
        super().__init__(title=TITLE)
        self.set_default_size(520, 560)
        box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=4)
        self.add(box)
        self.box = box
        self.button("Press me", lambda _: STATE.add("pressed"))
        check = Gtk.CheckButton(label="Agree")
        check.connect("toggled", lambda each: STATE.set(agreed=each.get_active()))
        box.add(check)
        self.entry("Name", "name")
        secret = self.entry("Secret", "secret")
        secret.set_visibility(False)
        secret.set_input_purpose(Gtk.InputPurpose.PASSWORD)
        self.text = Gtk.TextView()
        self.text.get_accessible().set_name("Notes")
        self.text.get_buffer().connect("changed", self.text_changed)
        self.text.set_size_request(-1, 60)
        box.add(self.text)
        scale = Gtk.Scale.new_with_range(Gtk.Orientation.HORIZONTAL, 0, 100, 1)
        scale.get_accessible().set_name("Volume")
        scale.connect("value-changed", lambda each: STATE.set(volume=each.get_value()))
        box.add(scale)
        row = Gtk.Box(spacing=4)
        box.add(row)
        self.button("Ask", self.ask, row)
        self.button("Soon", self.soon, row)
        self.button("Replace", self.replace, row)
        self.button("Rename", self.rename, row)
        self.button("Die", lambda _: os._exit(3), row)
        self.button("Sleep", lambda _: time.sleep(2), row)
        self.old = self.button("Old", lambda _: STATE.add("old"), row)
        self.twin_one = self.button("Twin", lambda _: STATE.append("twins", 1), row)
        self.twin_two = self.button("Twin", lambda _: STATE.append("twins", 2), row)
        row = Gtk.Box(spacing=4)
        box.add(row)
        self.button("Disabled", lambda _: STATE.add("disabled"), row).set_sensitive(False)
        self.button("Impersonate", self.impersonate, row)
        self.pad()
        if ROWS:
            self.rows()
        self.connect("destroy", Gtk.main_quit)
        self.connect("key-press-event", self.key)
        self.connect("focus-in-event", lambda *_: STATE.set(active=True))
        self.connect("focus-out-event", lambda *_: STATE.set(active=False))

    def button(self, label, act, box=None):
        button = Gtk.Button(label=label)
        button.connect("clicked", act)
        (box or self.box).add(button)
        return button

    def entry(self, name, key):
        entry = Gtk.Entry()
        entry.get_accessible().set_name(name)
        entry.connect("changed", lambda each: STATE.set(**{key: each.get_text()}))
        entry.connect("activate", lambda _: STATE.add("activated"))
        self.box.add(entry)
        return entry

    def text_changed(self, buffer):
        STATE.set(notes=buffer.get_text(*buffer.get_bounds(), include_hidden_chars=True))

    def pad(self):
        """An area that counts what the pointer does to it."""
        area = Gtk.EventBox()
        area.set_size_request(-1, 60)
        area.get_accessible().set_name("Pad")
        area.add(Gtk.Label(label="pad"))
        area.add_events(Gdk.EventMask.SCROLL_MASK | Gdk.EventMask.BUTTON_PRESS_MASK | Gdk.EventMask.BUTTON_RELEASE_MASK)
        area.connect("button-press-event", self.pad_pressed)
        area.connect(
            "button-release-event", lambda _, event: STATE.append("released", [event.button, event.x, event.y])
        )
        area.connect("scroll-event", lambda _, event: STATE.append("scrolled", int(event.direction)))
        self.box.add(area)

    def pad_pressed(self, _, event):
        if event.type == Gdk.EventType.BUTTON_PRESS:
            STATE.append("pad", [event.button, event.x, event.y])
        elif event.type == Gdk.EventType._2BUTTON_PRESS:
            STATE.add("double")

    def rows(self):
        scrolled = Gtk.ScrolledWindow()
        scrolled.set_size_request(-1, 120)
        items = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        for first in range(0, ROWS, GROUP):
            group = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
            items.add(group)
            for number in range(first, min(first + GROUP, ROWS)):
                group.add(Gtk.Button(label=f"Row {number}"))
        scrolled.add(items)
        self.box.pack_start(scrolled, expand=True, fill=True, padding=0)

    def key(self, _, event):
        modifiers = int(event.state) & int(
            Gdk.ModifierType.CONTROL_MASK | Gdk.ModifierType.SHIFT_MASK | Gdk.ModifierType.MOD1_MASK
        )
        STATE.append("keys", [Gdk.keyval_name(event.keyval), modifiers])
        return False

    def ask(self, _):
        dialog = Gtk.MessageDialog(
            transient_for=self, modal=True, buttons=Gtk.ButtonsType.OK_CANCEL, text="Really?", title="Question"
        )
        dialog.connect("response", self.answered)
        dialog.show_all()
        STATE.set(dialog="open")

    def answered(self, dialog, response):
        STATE.set(dialog=Gtk.ResponseType(response).value_nick)
        dialog.destroy()

    def soon(self, _):
        GLib.timeout_add(300, self.arrive)

    def arrive(self):
        self.button("Arrived", lambda _: STATE.add("arrived"))
        self.show_all()
        STATE.set(arrived_at=time.monotonic())
        return False

    def replace(self, _):
        """The same label on another widget."""
        parent = self.old.get_parent()
        self.old.destroy()
        self.old = self.button("Old", lambda _: STATE.add("new"), parent)
        self.show_all()
        STATE.add("replaced")

    def impersonate(self, _):
        """What was called "Old" is called otherwise, and another is called "Old"."""
        self.old.set_label("Delete all")
        self.button("Old", lambda _: STATE.add("impostor"), self.old.get_parent())
        self.show_all()
        STATE.add("impersonated")

    def rename(self, _):
        self.old.set_label("Delete all")
        STATE.add("renamed")


window = Window()
window.show_all()
# A change at a moment of the test's choice.
GLib.unix_signal_add(GLib.PRIORITY_DEFAULT, signal.SIGUSR1, window.arrive)
GLib.idle_add(lambda: STATE.set(ready=True))
Gtk.main()
