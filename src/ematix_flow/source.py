"""`Source` under its public name; nothing is defined here."""

from __future__ import annotations

from ematix_flow.declare.pipeline.pipeline import Source

__all__ = ["Source"]
