"""Metrics of runs and streams, and what serves them."""
