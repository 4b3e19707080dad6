"""The broker's files on this machine: agents' tokens in the state directory."""
