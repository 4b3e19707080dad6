"""What no bridge may do without: the gate that every call passes, the manifest of a bridge, the ports between bridges.

May import everything below the bridges; never a bridge.
"""
