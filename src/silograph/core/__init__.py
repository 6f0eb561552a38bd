"""Types, named random streams, checks and errors: what everything else stands on."""
