"""Streams: their loop, restarts, dead letters, lookups and offsets."""
