"""Lists by dialect: where they begin, what is behind their end, and what a search for nothing finds."""

from __future__ import annotations

from sqlglot import exp

from ematix_flow.plan.sql.dialect.refusal import refusal
from ematix_flow.plan.sql.dialect.typed import ELEMENT, typed_call

_POSITIONS = ("list_position", "list_indexof", "array_indexof")


def translate_element(node: exp.Bracket, dialect: str, where: str) -> None:
    """Return NULL behind the end of a list, as everywhere but in Spark."""
    index = node.expressions[0]
    if isinstance(index, exp.Neg):
        raise refusal(
            dialect, where, "a list is not read from its end", "use element_at(list, -1) with dialect='spark'."
        )
    if isinstance(index, exp.Slice) or len(node.expressions) > 1:
        raise refusal(dialect, where, "a part of a list has no such notation", "use slice() with dialect='spark'.")
    if index.is_string:
        return
    if dialect == "mysql":  # which has no lists: they count as in Spark
        node.replace(exp.Anonymous(this="GET", expressions=[node.this.copy(), index.copy()]))
    elif isinstance(index, exp.Literal) and index.is_int:
        at = exp.Literal.number(int(index.name) - 1)
        node.replace(exp.Anonymous(this="GET", expressions=[node.this.copy(), at]))
    else:
        node.replace(typed_call(ELEMENT, dialect, where, node.copy()))


def translate_search(node: exp.Func, dialect: str) -> None:
    """Replace a search in a list, or its distinct values, with what means the same in Spark."""
    match node:
        case exp.ArrayPosition():
            _position(node, node.this, node.expression)
        case exp.Anonymous() if str(node.this).lower() in _POSITIONS and len(node.expressions) == 2:  # noqa: PLR2004
            _position(node, *node.expressions)
        case exp.ArrayContains() if dialect != "postgres":
            match = exp.func("COALESCE", node.copy(), exp.false())
            missing = exp.or_(*(exp.Is(this=one.copy(), expression=exp.Null()) for one in (node.this, node.expression)))
            node.replace(exp.If(this=missing, true=exp.Null(), false=match))
        case exp.ArraySize() if dialect == "postgres" and node.args.get("expression"):
            node.replace(exp.func("NULLIF", exp.ArraySize(this=node.this.copy()), exp.Literal.number(0)))
        case exp.StringToArray() if (
            dialect == "postgres" and not node.args.get("null") and _is_written(node.expression)
        ):
            _split(node)
        case exp.ArrayDistinct() if dialect == "duckdb":
            node.set("this", exp.Anonymous(this="ARRAY_COMPACT", expressions=[node.this]))


def _position(node: exp.Func, values: exp.Expr, value: exp.Expr) -> None:
    """Return NULL for a value that is not in the list, where Spark returns 0."""
    match = exp.Anonymous(this="ARRAY_POSITION", expressions=[values.copy(), value.copy()])
    node.replace(exp.func("NULLIF", match, exp.Literal.number(0)))


def _is_written(text: exp.Expr) -> bool:
    return text.is_string and bool(text.name)


def _split(node: exp.StringToArray) -> None:
    """Return the parts of a text; an empty text has none."""
    parts = exp.Split(this=node.this.copy(), expression=node.expression.copy())
    is_empty = exp.EQ(this=node.this.copy(), expression=exp.Literal.string(""))
    none = exp.cast(exp.Array(), "ARRAY<STRING>", dialect="spark")
    node.replace(exp.If(this=is_empty, true=none, false=parts))
