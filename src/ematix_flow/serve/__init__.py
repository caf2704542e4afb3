"""Thin doors onto the engine."""
