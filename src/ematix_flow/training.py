"""Public names of training sets; nothing else is defined here."""

from ematix_flow.declare.decorators import training_set

__all__ = ["training_set"]
