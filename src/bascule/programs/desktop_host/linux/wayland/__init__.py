"""Wayland sessions: our own small client, and one module per compositor. May import the host's `ports` and `parts`.

`wire` and `interfaces` are values in, values out; `connection` has the socket.
"""
