"""What no bridge may do without: the manifest of a bridge, and the ports between bridges.

May import everything below the bridges; never a bridge.
"""
