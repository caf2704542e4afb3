"""A value that its translation needs several times, and that is written, evaluated and drawn once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME = "flow_value"


def once(value: exp.Expr, result: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Return the result for a value, which is the only element of a list if it is more than columns and operators.

    Spark has no subqueries in functions of lists; these are repeated.
    """
    calls = [one for one in value.find_all(exp.Func) if not isinstance(one, exp.Cast | exp.Connector)]
    if not calls or value.find(exp.Query):
        return result(value)
    name = exp.to_identifier(_NAME)
    function = exp.Lambda(this=result(name), expressions=[name.copy()])
    values = exp.Transform(this=exp.Array(expressions=[value.copy()]), expression=function)
    return exp.Anonymous(this="GET", expressions=[values, exp.Literal.number(0)])


def value_of(node: exp.Expr) -> exp.Expr | None:
    """Return the value of a result that `once` has written."""
    values = node.expressions[0] if isinstance(node, exp.Anonymous) and node.expressions else None
    if isinstance(values, exp.Transform) and values.expression.expressions[0].name == _NAME:
        value: exp.Expr = values.this.expressions[0]
        return value
    return None
