"""SQL of other systems as Spark's: the same meaning, or a refusal that says where and why."""
