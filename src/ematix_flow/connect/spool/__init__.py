"""The write-ahead log between a queue and a stream."""
