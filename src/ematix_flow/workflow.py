"""Workflows and their conditions under their public names; nothing is defined here."""

from __future__ import annotations

from ematix_flow.declare.schedule.workflow import AllOf, AnyOf, TriggerOp, Workflow, workflow

__all__ = ["AllOf", "AnyOf", "TriggerOp", "Workflow", "workflow"]
