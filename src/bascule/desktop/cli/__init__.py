"""Commands of `bascule` about the desktop bridge. They lie above the surfaces: they talk to a running daemon."""
