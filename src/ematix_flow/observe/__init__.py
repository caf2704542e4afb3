"""Tells: subscribers to events; one that fails never stops a run."""
