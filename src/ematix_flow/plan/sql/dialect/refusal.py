"""What a query cannot be translated for, with its line and column in the text of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from sqlglot import exp


def written_at(node: exp.Expr, text: str) -> str:
    """Return where a part of a query begins; empty for what has no text of its own."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    if not starts:
        return ""
    before = text[: min(starts)]
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def refusal(dialect: str, where: str, reason: str, hint: str) -> PlanError:
    """Return the error for a part of a query whose meaning Spark SQL cannot keep."""
    at = f", {where}" if where else ""
    return PlanError(f"the SQL of the stream ({dialect}{at}) cannot be translated: {reason}", hint=hint)
