"""What cloud warehouses have in common: a session, rows in types that all of them have, and how far a pipeline has read."""
