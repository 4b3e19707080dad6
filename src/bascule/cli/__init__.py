"""The command line: `bascule` and `bridgectl`. The top layer: it may import everything.
Commands about one bridge lie in the bridge's folder, `<bridge>/cli`.

Commands import what they need when they run, so that `bascule --help` is quick.
"""
