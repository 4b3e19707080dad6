"""The command line: `bascule` and `bridgectl`. The top of the house: it may import everything.

Commands import what they need when they run, so that `bascule --help` is quick.
"""
