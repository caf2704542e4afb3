"""The digits of a DECIMAL that is written without any: every system has its own."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp

_Tree = TypeVar("_Tree", bound=exp.Expr)

UNBOUNDED = "DECIMAL(38, 18)"
"""What stands for a number with as many digits as it needs, half of them behind the point."""
_UNBOUNDED_IN_DUCKDB = "DECIMAL(38, 9)"
"""The same where DuckDB evaluates it, whose products have the digits of both numbers behind the point, and fail beyond 38 digits."""
_WITHOUT_DIGITS = {
    "postgres": UNBOUNDED,
    "datafusion": "DECIMAL(38, 10)",
    "duckdb": "DECIMAL(18, 3)",
    "mysql": "DECIMAL(10, 0)",
    "spark": "DECIMAL(10, 0)",
}


def with_digits(tree: _Tree, written_in: str, runs_on: str = "spark") -> _Tree:
    """Return a tree whose decimals have the digits that the dialect means where it writes none."""
    digits = _WITHOUT_DIGITS.get(written_in, "")
    if digits == UNBOUNDED and runs_on == "duckdb":
        digits = _UNBOUNDED_IN_DUCKDB
    for kind in list(tree.find_all(exp.DataType)) if digits else ():
        if kind.this is exp.DType.DECIMAL and not kind.expressions:
            kind.replace(exp.DataType.build(digits))
    return tree
