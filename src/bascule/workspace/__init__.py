"""The workspace: files and commands that agents can be trusted with, by the Agent Spaces protocol.

`records` is what lasts, `spaces`, `runs`, `operations`, `processes` one idea each, `edits` the ladder that finds
what an edit means, `service` puts them together behind the method rows, `ports` says what is needed of the
machine (files, sandbox, checkpoints), `routes` how HTTP answers an operations message that is not valid.
"""
