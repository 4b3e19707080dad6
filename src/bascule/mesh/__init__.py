"""The mesh: daemons on several machines pass messages between their agents, over NATS.

NATS carries letters; it is neither the truth nor the identity. A message leaves the sender's outbox when the receiving
daemon says that it is on its disk, and a letter counts when its signature fits the accepted card of its sender.
May import kernel, wire and foundation; only `machine/` speaks to NATS.

Two halves meet in `service`. Traffic: `traffic` has an `engine` while this node is a member; `home` and `copies` are
the two sides of a ticket, `outbox` and `courier` send, `arrivals` and `receipts` read. Membership: `membership` is
the state machine of this node, `admissions` the side that lets in, `joining` the side that asks, `connection` keeps
server and post as the store says, `roster` has the cards. docs/life-of-a-request.md follows a message through them.
"""
