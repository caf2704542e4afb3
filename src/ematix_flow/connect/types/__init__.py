"""Declared types as Arrow and as reflected from tables; names and fingerprints."""
