"""The bridges, and the daemon's own methods (`house`). Each has the same rooms where it needs them: service, ports.

May import `kernel` and everything right of it; never each other.
"""
