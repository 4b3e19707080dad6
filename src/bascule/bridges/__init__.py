"""The four bridges. Each has the same rooms where it needs them: service, ports.

May import `dispatch` and everything right of it; never each other.
"""
