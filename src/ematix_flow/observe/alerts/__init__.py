"""Alerts: what is told, to whom, and how it gets there."""
