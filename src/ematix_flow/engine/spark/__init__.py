"""Which Spark a run gets: sessions, the warm engine, parallelism and clusters."""
