"""Declared schedules, slots and workflows."""
