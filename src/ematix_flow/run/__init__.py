"""Does the work on Spark; the only package that imports pyspark."""
