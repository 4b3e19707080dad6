"""Commands of `bascule` about the workspace bridge. They lie above the surfaces: they talk to a running daemon."""
