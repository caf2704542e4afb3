"""BigQuery: rows by load jobs of Parquet into a table that expires, made visible by a transaction of a session."""
