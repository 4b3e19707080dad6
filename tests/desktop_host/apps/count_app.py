"""A window that counts the keys and the buttons that reach it, and nothing else."""

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk  # noqa: E402 - the version is chosen first
from own_state import arguments  # noqa: E402 - after the bindings, as above

STATE, TITLE, _ = arguments()


def pressed(_, event):
    # GTK tells of the second and third press of a series once more.
    if event.type == Gdk.EventType.BUTTON_PRESS:
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
