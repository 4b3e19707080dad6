"""The GTK 4 window of the fixtures: what differs from GTK 3 is how it tells AT-SPI about itself."""

import gi

gi.require_version("Gtk", "4.0")
from gi.repository import GLib, Gtk  # noqa: E402 - the version is chosen first
from own_state import arguments  # noqa: E402 - after the bindings, as above

STATE, TITLE, ROWS = arguments()


def activate(app):
    window = Gtk.ApplicationWindow(application=app, title=TITLE, default_width=420, default_height=420)
    box = Gtk.Box(orientation=Gtk.Orientation.VERTICAL, spacing=4)
    window.set_child(box)
    button = Gtk.Button(label="Press me")
    button.connect("clicked", lambda _: STATE.add("pressed"))
    box.append(button)
    check = Gtk.CheckButton(label="Agree")
    check.connect("toggled", lambda each: STATE.set(agreed=each.get_active()))
    box.append(check)
    entry = Gtk.Entry()
    entry.update_property([Gtk.AccessibleProperty.LABEL], ["Name"])
    entry.connect("changed", lambda each: STATE.set(name=each.get_text()))
    box.append(entry)
    secret = Gtk.PasswordEntry()
    secret.update_property([Gtk.AccessibleProperty.LABEL], ["Secret"])
    secret.connect("changed", lambda each: STATE.set(secret=each.get_text()))
    box.append(secret)
    soon = Gtk.Button(label="Soon")
    soon.connect("clicked", lambda _: GLib.timeout_add(300, arrive, box))
    box.append(soon)
    counted = Gtk.Label(label="counted 0")
    count = Gtk.Button(label="Count")
    count.connect("clicked", lambda _: counted.set_text(counted.get_text() + " and more"))
    box.append(count)
    box.append(counted)
    box.append(Gtk.Label(label="Nothing happens here"))
    if ROWS:
        scrolled = Gtk.ScrolledWindow(vexpand=True)
        items = Gtk.Box(orientation=Gtk.Orientation.VERTICAL)
        for number in range(ROWS):
            items.append(Gtk.Button(label=f"Row {number}"))
        scrolled.set_child(items)
        box.append(scrolled)
    window.present()
    GLib.idle_add(lambda: STATE.set(ready=True))


def arrive(box):
    box.append(Gtk.Button(label="Arrived"))
    STATE.set(arrived=True)
    return False


app = Gtk.Application(
    application_id="org.bascule.fixture.Gtk4", flags=1 << 5
)  # NON_UNIQUE: tests run beside each other
app.connect("activate", activate)
app.run([])
