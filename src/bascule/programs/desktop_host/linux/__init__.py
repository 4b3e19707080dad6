"""Windows of this Linux desktop: AT-SPI over D-Bus for what is in them, X11 for where they are and for input.

Pure Python from PyPI (dbus-fast, python-xlib, mss, Pillow): no system bindings. May import the host's `ports`.
"""
