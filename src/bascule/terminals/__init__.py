"""Other programs' terminals: text that may be typed into one, and tmux as a keyboard for panes.

Standard library only, and cheap: the wrapper, the shim and the command line all type.
"""
