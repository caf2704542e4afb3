"""Public names of feature views and training sets; nothing else is defined here."""

from ematix_flow.declare.decorators import training_set
from ematix_flow.declare.table.feature_view import FeatureView, feature_view

__all__ = ["FeatureView", "feature_view", "training_set"]
