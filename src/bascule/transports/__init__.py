"""Byte shells around the sans-I/O readers of `wire`, the same for both ends of a connection.

May import `wire`, `local_client.peers`, `foundation`: a transport knows frames, not what is in them.
"""
