"""A2A, the protocol between agents of different owners: published handles are asked by clients outside, and agents
elsewhere are asked from here as `Weather@a2a`.

Off by default. May import kernel, wire and foundation; only `machine/` imports the a2a-sdk, when it is used.
"""
