"""How streams with state are computed, as data: what is remembered of rows, and what becomes of it."""
