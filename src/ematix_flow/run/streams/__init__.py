"""Queries of Structured Streaming: what streams remember between batches."""
