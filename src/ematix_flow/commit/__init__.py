"""Remembers: the only package that changes durable state."""
