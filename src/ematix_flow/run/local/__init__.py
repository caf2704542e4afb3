"""The engine without Spark: threads of this process."""
