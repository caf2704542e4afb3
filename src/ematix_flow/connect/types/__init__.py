"""Declared types as Arrow and as found in tables; names and fingerprints."""
