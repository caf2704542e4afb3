"""A run log in a folder or a bucket."""
