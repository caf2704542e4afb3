"""Files in folders and buckets, as sources, targets and streams."""
