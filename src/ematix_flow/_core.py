"""Handles on single systems under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.engine.handles import Connection
from ematix_flow.engine.references import open_url as connect

__all__ = ["Connection", "connect"]
