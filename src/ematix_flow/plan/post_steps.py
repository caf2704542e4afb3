"""The steps after a load as plan values: their names, kinds and one-line summaries; nothing is run here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline.pipeline import TransformRef
from ematix_flow.plan.steps import Post

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.pipeline import Pipeline

SUMMARY_LENGTH = 200

MAINTENANCE = (
    "analyze",
    "checkpoint",
    "cluster",
    "flush",
    "optimize",
    "pragma",
    "refresh",
    "reindex",
    "repair",
    "vacuum",
)
"""First words of statements that keep a database healthy; some of them refuse to run inside a transaction."""

_LEADING = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


def post_steps(pipeline: Pipeline) -> tuple[Post, ...]:
    """Return the post steps of a pipeline in their order."""
    return tuple(_post(index, step) for index, step in enumerate(pipeline.transforms_post))


def _post(index: int, step: Any) -> Post:
    if isinstance(step, str):
        return Post(f"transform[{index}]:sql", "sql", first_line(step), step)
    if isinstance(step, TransformRef):
        return Post(f"transform[{index}]:ref={step.name}", "transform_ref", step.name, step)
    name = getattr(step, "__name__", type(step).__name__)
    return Post(f"transform[{index}]:{name}", "callable" if callable(step) else "unknown", name, step)


def first_line(sql: str) -> str:
    """Return the first line of a statement, cut to what fits a report."""
    lines = [line.strip() for line in sql.splitlines() if line.strip()]
    return lines[0][:SUMMARY_LENGTH] if lines else ""


def first_keyword(sql: str) -> str:
    """Return the keyword of a statement, past comments, in lower case."""
    match = re.match(r"[a-z]+", sql[_LEADING.match(sql).end() :].lower())  # type: ignore[union-attr]
    return match[0] if match else ""


def is_maintenance(sql: str) -> bool:
    """Return whether a statement only keeps the database healthy: it runs outside a transaction and has no plan."""
    return first_keyword(sql) in MAINTENANCE
