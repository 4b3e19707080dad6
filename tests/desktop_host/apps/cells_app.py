"""A window full of cells that cannot be pressed but by the pointer. It counts which of them each click reaches."""

import gi

gi.require_version("Gdk", "3.0")
gi.require_version("Gtk", "3.0")
from gi.repository import Gdk, GLib, Gtk  # noqa: E402 - the version is chosen first
from own_state import arguments  # noqa: E402 - after the bindings, as above

STATE, TITLE, _ = arguments()
ACROSS, SIZE = 8, 40
# The one that a picture can be looked through for.
COLOURED = 27


def pressed(_, event, name):
    # GTK tells of the second and third press of a series once more.
    if event.type == Gdk.EventType.BUTTON_PRESS and event.button == 1:
        STATE.add(name)


window = Gtk.Window(title=TITLE)
grid = Gtk.Grid()
for at in range(ACROSS * ACROSS):
    cell = Gtk.EventBox()
    cell.set_size_request(SIZE, SIZE)
    cell.add_events(Gdk.EventMask.BUTTON_PRESS_MASK)
    cell.get_accessible().set_name(f"cell {at:02}")
    if at == COLOURED:
        cell.override_background_color(Gtk.StateFlags.NORMAL, Gdk.RGBA(1, 0, 0, 1))
    cell.connect("button-press-event", pressed, f"cell {at:02}")
    grid.attach(cell, at % ACROSS, at // ACROSS, 1, 1)
window.add(grid)
window.set_resizable(False)
window.show_all()
GLib.idle_add(lambda: STATE.set(ready=True))
Gtk.main()
