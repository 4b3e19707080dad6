"""A whole house in memory, for the tests of people who build on Bascule and for our own.

`clock` is time moved by hand, `stores` a store that writes when it is told to, `fakes` what stands in for
the outside, `machine` the directories and commands of a workspace, `house` the bridges, the ledger and every gate
of the daemon without its doors, `pending` a call as its client sees it, `policies` the presets. May import everything
but `cli`.
"""
