"""What may be done: rules with an order, decided without touching the world.

Pure: no I/O, no clock, no loop. May import `kernel.rows`, `kernel.call`, `wire`, `foundation`. Ownership (a row's
`who`) is checked before policy, so that no rule, however wide, opens another agent's inbox.
Start with `decision`, then `rules`; `presets` and each bridge's `rules` are the data people see, `engine` the part that
is called.
"""
