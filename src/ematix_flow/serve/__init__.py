"""Thin clients of the engine."""
