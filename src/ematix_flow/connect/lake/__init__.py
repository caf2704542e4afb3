"""What lake tables share: location, lock, transaction and Spark session."""
