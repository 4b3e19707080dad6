"""What no bridge may do without: the gate that every call passes, and all that it asks on the way.

    rows       Method rows: name, params, result, effect, who, shape, record, consent; `route` and `tool` beside them
    call       one request with its envelope gone
    gate       the one way in: who, decide, consent, record, act
    policy/    what may be done
    consent/   questions to the person, grants, timed rules
    identity/  who is calling, and what is theirs
    journal    transactions that carry their ledger record; `ledger`, `evidence`, `refusals`, `retention`
    bridge     the manifest of a bridge; `declared` is its first part, `ports` is what bridges need of each other
    settings   what its user may set, and how a bridge gets it

May import `protocols`, `wire` and `foundation`; never a bridge.
"""
