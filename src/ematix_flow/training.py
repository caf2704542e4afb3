"""Public names of training sets; nothing else is defined here."""

from ematix_flow.declare.decorators import preview_training_set, training_set

__all__ = ["preview_training_set", "training_set"]
