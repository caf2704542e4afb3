"""Declared connections, by kind."""
