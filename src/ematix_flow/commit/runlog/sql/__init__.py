"""A run log in a database."""
