"""The command line under its public name; nothing is defined here."""

from __future__ import annotations

from ematix_flow.serve.cli.main import main

__all__ = ["main"]
