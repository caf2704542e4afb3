"""Elements of lists as rows: a join with UNNEST is a LATERAL VIEW of Spark, which knows no condition and counts from zero."""

from __future__ import annotations

from sqlglot import exp

from ematix_flow.plan.sql.dialect.refusal import refusal, written_at

_ELEMENT, _INDEX = "flow_element", "flow_index"


def translate_unnested(query: exp.Query, dialect: str, text: str) -> None:
    """Replace the lists that a query unnests with views that have the same rows, or refuse them."""
    for select in list(query.find_all(exp.Select)):
        _translate(select, dialect, written_at(select, text))


def _translate(select: exp.Select, dialect: str, where: str) -> None:
    if sum(1 for one in select.expressions if _of_query(one, select)) > 1:
        reason = (
            "several lists that are unnested by one SELECT stand side by side, and Spark combines all of their elements"
        )
        raise refusal(dialect, where, reason, "use inline(arrays_zip(a, b)) with dialect='spark'.")
    source = select.args.get("from_")
    if source is not None and isinstance(source.this, exp.Unnest) and source.this.args.get("offset"):
        unnest = source.this
        columns = _columns(unnest, unnest.args.get("alias"))
        if columns:
            _check_positions(unnest, dialect, where)
            alias = exp.TableAlias(this=unnest.args["alias"].this, columns=columns)
            unnest.replace(exp.Table(this=_exploded(unnest), alias=alias))
    joins = list(select.args.get("joins") or ())
    for number, join in enumerate(joins):
        lateral = join.this if isinstance(join.this, exp.Lateral) else None
        unnest = join.this if lateral is None else lateral.this
        alias = join.this.args.get("alias")
        if isinstance(unnest, exp.Unnest) and alias is not None and alias.columns:
            _check_positions(unnest, dialect, where)
            _check_sides(join, joins[number + 1 :], dialect, where)
            _as_view(select, join, unnest, alias)


def _of_query(projection: exp.Expr, select: exp.Select) -> list[exp.Expr]:
    """Return the lists that a column of a query unnests, without those of queries inside of it."""
    lists = projection.find_all(exp.Explode, exp.Unnest)
    return [one for one in lists if one.find_ancestor(exp.Select) is select]


def _check_positions(unnest: exp.Unnest, dialect: str, where: str) -> None:
    if unnest.args.get("offset") and len(unnest.expressions) > 1:
        raise refusal(dialect, where, "positions in several lists have no translation", "unnest one list.")


def _check_sides(join: exp.Join, later: list[exp.Join], dialect: str, where: str) -> None:
    """Refuse a join with a list that keeps rows by more than a view can."""
    hint = "join the rows of a subquery that unnests the list."
    if join.side == "LEFT" and not _is_always(join):
        raise refusal(dialect, where, "a LEFT JOIN with a list and a condition has no translation", hint)
    if any(one.side in ("RIGHT", "FULL") for one in (join, *later)):
        raise refusal(dialect, where, "a RIGHT or FULL JOIN with a list, or behind one, has no translation", hint)


def _is_always(join: exp.Join) -> bool:
    condition = join.args.get("on")
    return condition is None or (isinstance(condition, exp.Boolean) and bool(condition.this))


def _as_view(select: exp.Select, join: exp.Join, unnest: exp.Unnest, alias: exp.TableAlias) -> None:
    view = exp.TableAlias(this=alias.this, columns=_columns(unnest, alias))
    select.append("laterals", exp.Lateral(this=_exploded(unnest), view=True, outer=join.side == "LEFT", alias=view))
    if not _is_always(join):
        select.where(join.args["on"].copy(), copy=False)
    join.pop()


def _columns(unnest: exp.Unnest, alias: exp.TableAlias | None) -> list[exp.Expr]:
    """Return the names of the elements and, where it is asked for, of their positions."""
    names = [one.copy() for one in alias.columns] if alias is not None else []
    position = unnest.args.get("offset")
    if not position or not names:
        return names
    return [*names, position.copy() if isinstance(position, exp.Identifier) else exp.to_identifier("ordinality")]


def _exploded(unnest: exp.Unnest) -> exp.Expr:
    """Return the rows of lists, which have their positions, counted from one, as their last column on request."""
    first, *others = (one.copy() for one in unnest.expressions)
    if others:
        return exp.Inline(this=exp.Anonymous(this="ARRAYS_ZIP", expressions=[first, *others]))
    if not unnest.args.get("offset"):
        return exp.Explode(this=first)
    element, position = (exp.to_identifier(name) for name in (_ELEMENT, _INDEX))
    counted = exp.cast(exp.Add(this=position.copy(), expression=exp.Literal.number(1)), "BIGINT")
    fields = [exp.Literal.string("element"), element.copy(), exp.Literal.string("position"), counted]
    row = exp.Lambda(this=exp.Anonymous(this="NAMED_STRUCT", expressions=fields), expressions=[element, position])
    return exp.Inline(this=exp.Transform(this=first, expression=row))
