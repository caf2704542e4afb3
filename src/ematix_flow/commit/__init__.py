"""Commits and run logs: the only package that changes durable state."""
