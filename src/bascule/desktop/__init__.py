"""The desktop as agents reach it: judged, consented to and recorded by the daemon, executed by the host.

The host is another process (`bascule.programs.desktop_host`), reached through a port. Nothing here looks at a window:
what a call is about is asked of the host first (`desktop.resolve`), and acted on only as it was judged.
"""
