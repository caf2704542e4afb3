"""Public names of feature views; nothing else is defined here."""

from ematix_flow.declare.table.feature_view import FeatureView, feature_view

__all__ = ["FeatureView", "feature_view"]
