"""The scheduler under its public name, for programs that start one themselves; nothing is defined here."""

from __future__ import annotations

from ematix_flow.engine.schedule.schedulers import run_scheduler

__all__ = ["run_scheduler"]
