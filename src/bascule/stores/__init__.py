"""Where the journal goes: memory, or one SQLite file.

Both implement `kernel.journal_ports.JournalStore` and pass the same contract suite; only `daemon.compose` picks one.
"""
