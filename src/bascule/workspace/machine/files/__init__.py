"""Files beneath a workspace's own descriptor: the `Files` port.

`roots` decides which directories may be a workspace, `root` does what file operations ask for, `beneath` opens
paths so that no link leads out, `temporary` names what is not finished, `sentences` says what went wrong,
`syscalls` is what Python's `os` lacks. Imports the workspace's ports and protocols only.
"""
