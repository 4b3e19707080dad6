"""Games on this machine: their processes, the connections to their mods, and the files both sides read."""
