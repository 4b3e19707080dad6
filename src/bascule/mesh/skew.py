"""How far two clocks may differ. Light: `bascule doctor` reads it."""

# Of two clocks that nobody sets.
SKEW_WARN_MS = 2 * 60_000
# An item says until when it is good, with an hour to spare: beyond it mail would be taken or dropped by a wrong time.
SKEW_STOP_MS = 60 * 60_000
