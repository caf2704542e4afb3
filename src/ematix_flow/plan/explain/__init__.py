"""A plan for people: its report, text, diff, lineage and guarantees."""
