"""The shape of a load: where it is evaluated, why Spark has to do it, and why it could not read a row."""
