"""How long consent lasts, and how much of it may be asked for."""

import msgspec

_MINUTE = 60.0
# How long a caller is held before the answer is `call again`. MCP clients give up after 60 s and more, HTTP clients
# after 30 s (see `broker`'s long polls).
MCP_SLICE_SECONDS = 45.0
HTTP_SLICE_SECONDS = 25.0


class ConsentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Every limit of the desk; tests set their own."""

    # How long a question waits: a person is back from a coffee, or was never there.
    question_seconds: float = 15 * _MINUTE
    # How long a grant waits for the call it is for: a model that has to call again does so within minutes.
    grant_seconds: float = 10 * _MINUTE
    # Questions of one principal that wait at once: more than a person reads, few enough that none is hidden by a flood.
    max_pending: int = 32
    # And of all of them together: agents are free to register, a person's patience is not.
    max_pending_total: int = 1_000
    # What a person is shown is complete or it is not asked: nobody reads more than this before saying yes.
    max_preview_chars: int = 512 * 1024
    # Stored params and previews of one principal's waiting questions.
    max_pending_chars: int = 4 * 1024 * 1024
    # Callers of one principal that wait for answers at once; each is a held connection.
    max_waiting: int = 128
    # How long a caller is held at most, whichever door it came through: some clients give up sooner than others.
    hold_seconds: float = MCP_SLICE_SECONDS
    # Timed rules in force: each is looked at for every call that would ask.
    max_timed_rules: int = 100
    # How long an answered question can be looked up. What it was about is in the ledger for longer.
    keep_seconds: float = 24 * 60 * _MINUTE
    # And how many of them, of half a kilobyte each; the oldest go first.
    max_kept: int = 10_000
