"""Snowflake: rows by Parquet files that are PUT into a temporary stage and copied into a temporary table."""
