"""Checkpoints of a workspace as git objects in our state directory: the `CheckpointStore` port.

`objects` is git's format, `store` and `packs` keep objects on disk, `scan` reads a workspace into a tree (`stats` is
what makes that cheap the next time), `compare` finds what differs between trees, `lines` and `unified` show it,
`merge` plans an undo and `restore` carries it out, `spaces` puts them together. Neither the git program nor any
configuration of the workspace is used; `git --git-dir` reads what is made here. Imports `workspace.machine.files`, the
workspace's ports and protocols.
"""
