"""A prompt that has the keyboard for itself (layer-shell, exclusive), as launchers and password prompts do."""

import gi

gi.require_version("Gtk", "3.0")
gi.require_version("GtkLayerShell", "0.1")
from gi.repository import Gtk, GtkLayerShell  # noqa: E402 - the versions are chosen first
from own_state import arguments  # noqa: E402 - after the bindings, as above

STATE, TITLE, _ = arguments()
window = Gtk.Window(title=TITLE)
GtkLayerShell.init_for_window(window)
GtkLayerShell.set_layer(window, GtkLayerShell.Layer.OVERLAY)
GtkLayerShell.set_keyboard_mode(window, GtkLayerShell.KeyboardMode.EXCLUSIVE)
GtkLayerShell.set_anchor(window, GtkLayerShell.Edge.TOP, True)
entry = Gtk.Entry()
entry.connect("changed", lambda each: STATE.set(text=each.get_text()))
window.connect("key-press-event", lambda *_: STATE.add("keys"))
window.connect("focus-in-event", lambda *_: STATE.set(ready=True))
window.add(entry)
window.show_all()
Gtk.main()
