"""The files that `flow init` writes, as they are but for a few placeholders; nothing is computed here."""
