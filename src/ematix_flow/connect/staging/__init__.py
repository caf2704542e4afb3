"""Staging as files: Parquet for databases that no task can write to, and files of their final format."""
