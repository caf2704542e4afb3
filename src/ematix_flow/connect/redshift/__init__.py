"""Amazon Redshift, which speaks the protocol of PostgreSQL: rows by multi-row INSERT, or by COPY from a bucket."""
