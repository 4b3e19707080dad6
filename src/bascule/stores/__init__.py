"""Where it is kept: the journal in memory or in one SQLite file, the ledger's anchors, pictures for questions.

Both journals implement `kernel.journal_ports.JournalStore` and pass the same contract suite; only `daemon.compose`
picks one.
"""
