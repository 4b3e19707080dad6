"""Programs that run beside the daemon, each a process of its own.

    helpers/       bridge-register, bridge-send and the rest: standard library only, over `local_client`
    mcp_stdio/     `bascule mcp`: standard library only, over `local_client`
    wrap/          bridge-wrap: a program under a terminal of ours
    desktop_host/  `bascule desktop-host`: sees and acts on real windows

What each may import is held by import-linter.
"""
