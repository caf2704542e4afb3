"""Whether the connections answer, under its public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.engine.doctor import HealthReport, run_doctor

__all__ = ["HealthReport", "run_doctor"]
