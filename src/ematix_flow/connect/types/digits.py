"""How many digits a number may have on its way: as many as Arrow, DuckDB and Spark hold; no value is inspected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from ematix_flow.declare.table.types import ColumnType

MAX_DIGITS = 38


def digits_of(column_type: ColumnType) -> tuple[int, int]:
    """Return the digits of a decimal type and how many of them come after the point; more than can be carried are refused."""
    precision, scale = getattr(column_type, "precision", 0), getattr(column_type, "scale", 0)
    if precision > MAX_DIGITS:
        message = f"Numeric[{precision}, {scale}] has more digits than a load can carry"
        raise PlanError(message, hint=f"declare at most {MAX_DIGITS} digits.")
    return precision, scale
