"""Public names of the key and nullability markers; nothing else is defined here."""

from ematix_flow.declare.table.markers import natural_key, nullable, pk

__all__ = ["natural_key", "nullable", "pk"]
