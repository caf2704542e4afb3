"""Amazon S3 and services like it."""
