"""What touches the machine: implementations of the owners' ports, picked by `daemon.compose`."""
