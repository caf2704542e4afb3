"""Aggregates by dialect: percentiles, lists, and the rows that they leave out."""

from __future__ import annotations

from sqlglot import exp

from ematix_flow.plan.sql.dialect.refusal import refusal

_FOLLOW_POSTGRES = ("postgres", "duckdb", "datafusion")
_PERCENTILES = (exp.PercentileCont, exp.PercentileDisc)


def translate_aggregate(node: exp.Expr, dialect: str, where: str) -> None:
    """Replace an aggregate with one that means the same in Spark, or refuse it; most stay."""
    match node:
        case exp.WithinGroup() if isinstance(node.this, _PERCENTILES):
            _within_group(node, dialect, where)
        case exp.PercentileCont() | exp.PercentileDisc() if node.expression is not None:
            _percentile(node, node, (node.this, node.expression), dialect, where)
        case exp.Quantile() if dialect == "duckdb":
            _percentile(node, exp.PercentileDisc(), (node.this, node.args["quantile"]), dialect, where)
        case exp.ArrayAgg() if dialect in _FOLLOW_POSTGRES:
            _array_agg(node, dialect, where)
        case exp.ArgMax() | exp.ArgMin() if dialect == "duckdb" and node.expression is not None:
            missing = exp.Is(this=node.this.copy(), expression=exp.Null())
            node.set("expression", exp.If(this=missing, true=exp.Null(), false=node.expression.copy()))
        case exp.Skewness() | exp.Kurtosis() if dialect == "duckdb":
            reason = "DuckDB corrects it for samples, and Spark does not"
            raise refusal(dialect, where, reason, "use skewness or kurtosis with dialect='spark'.")


def _within_group(node: exp.WithinGroup, dialect: str, where: str) -> None:
    [order] = node.expression.expressions
    _percentile(node, node.this, (order.this, node.this.this), dialect, where, falling=bool(order.args.get("desc")))


def _percentile(
    node: exp.Expr,
    kind: exp.Expr,
    operands: tuple[exp.Expr, exp.Expr],
    dialect: str,
    where: str,
    *,
    falling: bool = False,
) -> None:
    """Replace a percentile with an exact one; sqlglot takes Spark's approximation."""
    value, share = (one.copy() for one in operands)
    if isinstance(kind, exp.PercentileCont):
        if falling:
            share = exp.Sub(this=exp.Literal.number(1), expression=exp.paren(share))
        node.replace(exp.Quantile(this=value, quantile=share))
        return
    if isinstance(node.parent, exp.Filter | exp.Window) or not isinstance(share, exp.Literal):
        reason = "percentile_disc() of several shares, or with FILTER or OVER, has no translation"
        raise refusal(dialect, where, reason, "use percentile_disc with dialect='spark'.")
    values = exp.Anonymous(this="SORT_ARRAY", expressions=[exp.Anonymous(this="COLLECT_LIST", expressions=[value])])
    values.append("expressions", exp.false() if falling else exp.true())
    rank = exp.Mul(this=exp.cast(share, "DOUBLE"), expression=exp.Count(this=value.copy()))
    first = exp.func("GREATEST", exp.Ceil(this=rank), exp.Literal.number(1))
    index = exp.cast(exp.Sub(this=first, expression=exp.Literal.number(1)), "INT")
    node.replace(exp.Anonymous(this="GET", expressions=[values, index]))


def _array_agg(node: exp.ArrayAgg, dialect: str, where: str) -> None:
    """Return a list with its NULLs, which Spark's has not: a struct keeps them; no rows have no list."""
    if isinstance(node.this, exp.Order | exp.Distinct) or isinstance(node.parent, exp.Filter | exp.Window):
        reason = "Spark collects lists without ORDER BY, DISTINCT or FILTER that keep their NULLs"
        raise refusal(dialect, where, reason, "use collect_list or collect_set with dialect='spark'.")
    pair = [exp.Literal.string("v"), node.this.copy()]
    listed = exp.Anonymous(this="COLLECT_LIST", expressions=[exp.Anonymous(this="NAMED_STRUCT", expressions=pair)])
    values = exp.Dot(this=listed, expression=exp.to_identifier("v"))
    no_rows = exp.EQ(this=exp.Count(this=exp.Star()), expression=exp.Literal.number(0))
    node.replace(exp.If(this=no_rows, true=exp.Null(), false=values))
