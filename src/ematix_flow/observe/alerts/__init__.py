"""Alerts: what is sent, by which channels, and when."""
