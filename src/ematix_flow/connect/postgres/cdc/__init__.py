"""Changes of PostgreSQL tables as a stream, by a replication slot with `pgoutput`."""
