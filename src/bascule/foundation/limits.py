"""Limits that the daemon and the programs beside it must agree on. The standard library only."""

# Past this an idle proxy or client library gives up by itself; a longer waitMs is clamped to it.
MAX_WAIT_MS = 60_000
