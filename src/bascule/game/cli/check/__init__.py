"""`bascule games check`: the protocol's sentences, tried on a live mod, without a daemon.

`peer` speaks GABP by hand and keeps what it saw; `checks` is the list of sentences; `starting` runs the game;
`command` prints. It judges with the schemas that our strict sessions use, and with what GABS is known to want.
"""
