"""Commands of `bascule` about the game bridge. They lie above the surfaces: they talk to a running daemon."""
