"""Java packages of a session: found, fetched and remembered."""
