"""Limits of a method's params that the kernel holds, too: declarations of methods import them from here."""

# A timed rule outlives a working day nowhere.
MAX_RULE_MINUTES = 8 * 60

# Long enough for a diceware sentence; scrypt's cost does not grow with it.
MAX_PASSPHRASE_CHARS = 1_024
MIN_PASSPHRASE_CHARS = 8

# As many questions as a person can look through before one touch.
MAX_CALLS_PER_PROOF = 20
