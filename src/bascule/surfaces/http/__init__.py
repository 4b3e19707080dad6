"""HTTP/1.1 for a local daemon: one path from the socket to the gate and back.

`connection` drives the parser and keeps order, limits and time; `app` admits, calls and encodes;
`routes` and `endpoints` find what a path leads to and decode its params;
`streams` and `mounts` write the answers that come in pieces; `server` listens. There is no framework between: every
route must pass the same checks in the same order, and a request that is answered at once needs no task.
"""
