"""The record of what happened: transactions that carry their own ledger record, and the chain of records.

May import `protocols`, `wire`, `call`, `ids`, `clock`, `errors`. Owns the port that stores implement.
"""
