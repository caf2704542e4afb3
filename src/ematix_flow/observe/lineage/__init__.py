"""Lineage events for OpenLineage."""
