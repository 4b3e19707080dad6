"""Where the mesh touches the machine: the connection to NATS, and a nats-server of our own."""
