"""The mesh: daemons on several machines pass messages between their agents, over NATS.

NATS carries letters; it is neither the truth nor the identity. A message leaves the sender's outbox when the receiving
daemon says that it is on its disk, and a letter counts when its signature fits the accepted card of its sender.
May import kernel, wire and foundation; only `machine/` speaks to NATS.
"""
