"""Sessions of Spark: their Java, packages, configuration, workers and errors."""
