"""Subscribers to events: alerts, metrics, traces and lineage; one that fails never stops a run."""
