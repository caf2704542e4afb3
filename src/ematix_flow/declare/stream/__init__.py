"""Declared streams: keywords, targets, windows, functions and TOML."""
