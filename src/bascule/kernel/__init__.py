"""What no bridge may do without: the gate that every call passes, and the effects that it records.

May import policy, approval, audit, identity, protocols and what lies below them; never a bridge.
"""
