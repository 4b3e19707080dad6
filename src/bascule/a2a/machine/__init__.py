"""The only importers of the a2a-sdk: our handler behind its server, and its client towards other agents."""
