"""The digits of a DECIMAL that is written without any: every system has its own."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp

_Tree = TypeVar("_Tree", bound=exp.Expr)

UNBOUNDED = "DECIMAL(38, 18)"
"""What stands for a number with as many digits as it needs, half of them behind the point."""
_WITHOUT_DIGITS = {
    "postgres": UNBOUNDED,
    "datafusion": "DECIMAL(38, 10)",
    "duckdb": "DECIMAL(18, 3)",
    "mysql": "DECIMAL(10, 0)",
    "spark": "DECIMAL(10, 0)",
}


def with_digits(tree: _Tree, dialect: str) -> _Tree:
    """Return a tree whose decimals have the digits that the dialect means where it writes none."""
    if dialect in _WITHOUT_DIGITS:
        for kind in list(tree.find_all(exp.DataType)):
            if kind.this is exp.DType.DECIMAL and not kind.expressions:
                kind.replace(exp.DataType.build(_WITHOUT_DIGITS[dialect]))
    return tree
