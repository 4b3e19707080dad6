"""GABP as pure data and sessions without sockets: what both the game bridge and the mod SDK speak.

May import `wire` and `foundation`. The other protocols lie with their bridges. `workspace_validation` is the documented
name of `workspace.validation`.
"""
