"""The files that `flow init` writes, as they are but for a few words; nothing is computed here."""
