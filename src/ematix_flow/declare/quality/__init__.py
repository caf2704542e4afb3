"""Declared expectations, and tests of transforms."""
