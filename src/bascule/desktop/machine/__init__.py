"""The desktop host as the daemon and the command line reach it: a child on a socketpair, or a socket it listens on."""
