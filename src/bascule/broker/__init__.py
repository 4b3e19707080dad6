"""The agent broker: agents register, send each other messages as tickets, wait or are called back.

`records` is what lasts, `state` the tables with their indexes, `agents`, `tickets`, `inbox`, `waits`
and `events` one idea each, `service` puts them together behind the method rows.
"""
