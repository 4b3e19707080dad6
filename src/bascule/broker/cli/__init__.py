"""Commands of `bascule` about the broker bridge. They lie above the surfaces: they talk to a running daemon."""
