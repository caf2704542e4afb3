"""The commands about streams: `consume`, `stream` and `dlq`."""
