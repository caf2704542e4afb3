"""Rows into messages for brokers."""
