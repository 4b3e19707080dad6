"""What the workspace does on this machine: files, sandbox, checkpoints. Implements the ports in `workspace.ports`."""
