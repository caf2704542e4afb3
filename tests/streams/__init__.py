"""Streams against real brokers and targets."""
