"""The native bridge: what agents do with their own tools, as the hooks of their clients report it.

Nothing here executes anything, and nothing here grants anything: a hook is answered, and what may change is kept for an
undo first. What a hook says is a claim of a program of this user; forged calls are noise, never permission.
"""
