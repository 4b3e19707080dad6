"""The published protocols as pure data: Structs, method rows, state tables, error tables.

May import `wire`, `call`, `ids`, `errors`. No I/O, no clock, no decisions: whoever wants to know what
Bascule speaks reads here, and everything else (routes, tools, docs) is derived from these rows.
"""
