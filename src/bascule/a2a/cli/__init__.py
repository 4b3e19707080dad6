"""Commands of `bascule` about A2A. They lie above the surfaces: they talk to a running daemon."""
