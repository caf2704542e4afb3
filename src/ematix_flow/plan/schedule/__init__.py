"""Which slots are due, what waits for what, and what is tried again; pure functions."""
