"""Sources as frames and partitions."""
