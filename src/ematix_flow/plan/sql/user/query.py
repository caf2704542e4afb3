"""The user's own SQL as trees, read in the dialect it was written for; what cannot be read is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from sqlglot import ParseError, TokenError, TokenType, exp, parse, parse_one, tokenize
from sqlglot.errors import OptimizeError
from sqlglot.optimizer.qualify import qualify

from ematix_flow.errors import PlanError, did_you_mean
from ematix_flow.plan.sql.dialect.decimals import with_digits
from ematix_flow.plan.sql.dialects import as_operand, number
from ematix_flow.plan.sql.shape.value import SourceType

if TYPE_CHECKING:
    from collections.abc import Mapping

_Tree = TypeVar("_Tree", bound=exp.Expr)

_FAMILIES = (
    (exp.DataType.TEXT_TYPES, SourceType.TEXT),
    (exp.DataType.INTEGER_TYPES, SourceType.INTEGER),
    (exp.DataType.FLOAT_TYPES, SourceType.FLOAT),
    ({exp.DataType.Type.DECIMAL}, SourceType.DECIMAL),
    ({exp.DataType.Type.BOOLEAN}, SourceType.BOOLEAN),
    ({exp.DataType.Type.DATE}, SourceType.DATE),
    ({exp.DataType.Type.TIMESTAMPTZ}, SourceType.TIMESTAMP_TZ),
    ({exp.DataType.Type.UUID}, SourceType.UUID),
)


def read_query(text: str, written_in: str, dialect: str) -> exp.Query:
    """Return the query of a user."""
    try:
        statements = [s for s in parse(text, dialect=written_in) if s is not None]
    except (ParseError, TokenError) as error:
        raise _unreadable("query", text, written_in, error) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise PlanError(f"the source is not one query: {text}", hint="return one SELECT statement")
    return adapted(statements[0], dialect, written_in)


def statements_in(text: str, dialect: str) -> list[str]:
    """Return the statements of a text one by one, so that none of them rides along with another."""
    try:
        tokens = tokenize(text, read=dialect)
    except TokenError:
        return [text]
    ends = [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]
    cuts = [0, *(end + 1 for end in ends), len(text)]
    parts = [text[start:stop].rstrip(";").strip() for start, stop in pairwise(cuts)]
    return [
        part for part in parts if any(t.token_type is not TokenType.SEMICOLON for t in tokenize(part, read=dialect))
    ]


def check_query(text: str, tables: Mapping[str, Mapping[str, str]], dialect: str = "spark") -> None:
    """Refuse a query over tables or columns that are not there; a table without known columns has any."""
    query = read_query(text, dialect, dialect)
    own = {cte.alias_or_name for cte in query.find_all(exp.CTE)}
    for table in query.find_all(exp.Table):
        if table.name not in tables and table.name not in own:
            raise PlanError(f"the query reads {table.name!r}", hint=did_you_mean(table.name, tables))
    known: dict[str, object] = {name: dict.fromkeys(columns, "text") for name, columns in tables.items() if columns}
    if len(known) != len(tables):
        return
    try:
        qualify(query, schema=known, dialect=dialect)
    except OptimizeError as error:
        raise PlanError(f"the query cannot work: {str(error).splitlines()[0]}") from None


def read_expression(text: str, written_in: str, dialect: str) -> exp.Expr:
    """Return an expression of a user; a whole statement is refused."""
    try:
        tree = parse_one(f"SELECT {text}\n", dialect=written_in)
    except (ParseError, TokenError) as error:
        raise _unreadable("expression", text, written_in, error) from error
    others = {name for name, argument in tree.args.items() if argument} - {"expressions"}
    if not isinstance(tree, exp.Select) or others or len(tree.expressions) != 1 or tree.find(exp.Alias, exp.Star):
        raise PlanError(f"this is not one SQL expression: {text}")
    expression: exp.Expr = adapted(tree, dialect, written_in).expressions[0]
    return expression.pop()


def read_order(text: str, written_in: str, dialect: str) -> list[exp.Expr]:
    """Return the terms of an ORDER BY; NULL comes last where the text does not specify it."""
    try:
        tree = parse_one(f"SELECT 1 ORDER BY {text}\n", dialect=written_in)
    except (ParseError, TokenError) as error:
        raise _unreadable("order", text, written_in, error) from error
    order = tree.args.get("order")
    others = {name for name, argument in tree.args.items() if argument} - {"expressions", "order"}
    if order is None or others:
        raise PlanError(f"this is not an order: {text}")
    for term in order.expressions:
        if " NULLS " not in f" {text.upper()} ":
            term.set("nulls_first", False)  # noqa: FBT003 - an argument of sqlglot's node
    return list(adapted(order, dialect, written_in).expressions)


def put_in(expression: exp.Expr, column_name: str, value: exp.Expr) -> exp.Expr:
    """Return the expression with the column called `column_name` replaced by a value."""
    operand = as_operand(value)
    if isinstance(expression, exp.Column) and _is_column(expression, column_name):
        return operand
    for column in list(expression.find_all(exp.Column)):
        if _is_column(column, column_name):
            column.replace(operand.copy())
    return expression


def family_of(expression: exp.Expr) -> SourceType:
    """Return the family of an expression that states its type, else `other`."""
    if isinstance(expression, exp.Cast):
        kind = expression.to.this
        return next((family for kinds, family in _FAMILIES if kind in kinds), SourceType.OTHER)
    return SourceType.TEXT if isinstance(expression, exp.Literal) and expression.is_string else SourceType.OTHER


def _is_column(column: exp.Column, column_name: str) -> bool:
    return not column.table and column.name.lower() == column_name


def adapted(tree: _Tree, dialect: str, written_in: str) -> _Tree:
    """Return the tree in words that the dialect has too, with the meaning that they had where they were written."""
    if written_in != dialect:
        with_digits(tree, written_in, dialect)
    if dialect == "mysql":
        for node in list(tree.find_all(exp.RegexpLike)):
            if node.args.get("flag") is None:
                call = exp.Anonymous(this="REGEXP_INSTR", expressions=[node.this.copy(), node.expression.copy()])
                node.replace(exp.paren(exp.GT(this=call, expression=number(0))))
    return tree


def _unreadable(what: str, text: str, dialect: str, error: Exception) -> PlanError:
    reason = str(error).splitlines()[0]
    return PlanError(f"the {what} cannot be read as {dialect} SQL: {text}", hint=reason)
