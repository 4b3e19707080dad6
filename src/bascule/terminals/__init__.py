"""Other programs' terminals: text that may be typed into one, and tmux as a keyboard for panes.

Standard library only, and cheap: the wrapper, the stdio program and the command line all type.
"""
