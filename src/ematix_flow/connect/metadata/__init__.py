"""Metadata tables of targets without a database: an SQLite file in a store."""
