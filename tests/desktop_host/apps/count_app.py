"""A window that counts the keys and the buttons that reach it, and nothing else."""

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk  # noqa: E402 - the version is chosen first
from own_state import arguments  # noqa: E402 - after the bindings, as above

STATE, TITLE, _ = arguments()
MAX_BUTTONS = 9


def pressed(_, event):
    # GTK tells of the second and third press of a series once more. No mouse has more than a handful of buttons: what
    # our pointer holds on to a window with is not one that a person has.
    if event.type == Gdk.EventType.BUTTON_PRESS and event.button <= MAX_BUTTONS:
        STATE.add("buttons")


window = Gtk.Window(title=TITLE)
window.set_default_size(300, 300)
area = Gtk.EventBox()
area.add_events(Gdk.EventMask.BUTTON_PRESS_MASK)
window.add(area)
window.connect("key-press-event", lambda *_: STATE.add("keys"))
area.connect("button-press-event", pressed)
window.show_all()
GLib.idle_add(lambda: STATE.set(ready=True))
Gtk.main()
