"""Orchestration history and requests, by URL."""
