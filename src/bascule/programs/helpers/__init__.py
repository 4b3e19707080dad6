"""The bridge-* commands: what an agent runs in its shell to register, receive, reply and send.

Standard library only, over `bascule.local_client`. Each command imports itself when it is called, so that
`bridge-reply` does not pay for `bridge-send`. `terminal` is also bridgectl's.
"""
