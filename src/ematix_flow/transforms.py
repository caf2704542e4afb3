"""Public names of the pre-load transforms; nothing else is defined here."""

from ematix_flow.declare.pipeline.transforms import deduplicate_by, filter_where, limit, sample_pct

__all__ = ["deduplicate_by", "filter_where", "limit", "sample_pct"]
