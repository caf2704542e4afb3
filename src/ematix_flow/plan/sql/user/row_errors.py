"""The query for the rows that the SQL of a stream fails at, and why: every step reports errors next to its rows.

It uses three functions that run/transform/row_errors.py registers, none of which fails at a value: `flow_error` returns the text of
an error or NULL, `flow_value` a value or NULL, and `flow_value_or_error` turns what a function of the user reported into
an error again. A row that has an error in one step does not reach the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.plan.sql.user.batch_path import NotSupportedError, Spine, relations
from ematix_flow.plan.sql.user.stream import SOURCE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from ematix_flow.plan.sql.user.batch_path import Lookups

ROW = "_flow_row"
"""Column of the batch that identifies its rows, and of the result."""

ERROR = "_flow_error"
"""Column of the answer: what is wrong with the row."""

TRYING = "_flow_try_"
"""How the name of a function of the user begins that reports errors instead of failing."""

_STEP = "_flow_step_"


def errors_query(sql: str, fields: Collection[str], lookups: Lookups, functions: Collection[str]) -> str | None:
    """Return Spark SQL for number and error of every row that `sql` fails at; None where it cannot be rewritten."""
    try:
        return _Rewriting(Spine(sql, fields, lookups), frozenset(name.lower() for name in functions)).answer()
    except NotSupportedError:
        return None


class _Rewriting:
    """One query on its way, step by step from the batch outwards."""

    def __init__(self, spine: Spine, functions: frozenset[str]) -> None:
        self._spine = spine
        self._functions = functions
        self._steps: list[tuple[str, exp.Select]] = []

    def answer(self) -> str:
        """Return the query over all steps."""
        others = [cte.copy() for cte in self._spine.ctes.values() if not self._spine.reads(cte.this)]
        self._step(self._spine.tree)
        self._spine.refuse_other_reads()
        selects = [
            exp.select(ROW, ERROR).from_(name).where(f"{ERROR} IS NOT NULL AND {ROW} IS NOT NULL")
            for name, _ in self._steps
        ]
        union: exp.Query = selects[0]
        for other in selects[1:]:
            union = exp.union(union, other, distinct=False)
        ctes = [*others, *(exp.CTE(this=step, alias=_alias(name)) for name, step in self._steps)]
        union.set("with_", exp.With(expressions=ctes))
        return union.sql(dialect="spark")

    def _step(self, select: exp.Expr) -> str:
        """Add the steps of a query and return the name of the last one, whose rows include those with errors."""
        spine = self._spine.of(select)
        assert isinstance(select, exp.Select)  # noqa: S101 - or it would have been refused
        alias = spine.alias_or_name
        self._spell_casts(select, alias)
        before = self._before_joins(select, spine, alias)
        query = select.copy()
        query.set("with_", None)
        relation = next(one for one in relations(query) if one.alias_or_name == alias)
        relation.replace(_good(before, alias) if before else exp.to_table(SOURCE).as_(alias, table=True))
        self._guard_joins(query, alias)
        terms = self._terms_of_where(query)
        columns = [self._safe_column(one, terms) for one in select.expressions]
        outer = [] if select is self._spine.tree else columns
        row = exp.column(ROW, table=alias)
        query.set("expressions", [exp.alias_(row, ROW), exp.alias_(_first(terms), ERROR), *outer])
        return self._named(query)

    def _named(self, step: exp.Select) -> str:
        name = f"{_STEP}{len(self._steps)}"
        self._steps.append((name, step))
        return name

    def _before_joins(self, select: exp.Select, spine: exp.Expr, alias: str) -> str:
        """Add what has to be known of a row before it is joined; empty where that is nothing beyond the batch itself."""
        inner = self._spine.inner(spine)
        base = self._step(inner) if inner is not None else ""
        parts = [one for expression in _join_expressions(select) for one in _only_of(expression, alias)]
        if not parts:
            return base
        if any(self._calls(one) for one in parts):
            raise NotSupportedError
        relation = _good(base, alias) if base else exp.to_table(SOURCE).as_(alias, table=True)
        terms = [_call("flow_error", one.copy()) for one in parts]
        step = exp.select(exp.Column(this=exp.Star(), table=exp.to_identifier(alias, quoted=True))).from_(relation)
        return self._named(step.select(exp.alias_(_first(terms), ERROR)))

    def _spell_casts(self, select: exp.Select, alias: str) -> None:
        """Write out how Spark reads a value of the batch that is compared with a column of a lookup of another type."""
        tables = {one.alias_or_name: one.name.lower() for one in relations(select) if isinstance(one, exp.Table)}
        for same in [one for expression in _join_expressions(select) for one in expression.find_all(exp.EQ)]:
            for mine, theirs in ((same.this, same.expression), (same.expression, same.this)):
                kinds = (
                    self._spine.lookups.get(tables.get(theirs.table, ""), {}) if isinstance(theirs, exp.Column) else {}
                )
                if mine.find(exp.Column) and _is_of(mine, alias) and theirs.name.lower() in kinds:
                    kind = exp.cast(exp.Null(), kinds[theirs.name.lower()], dialect="spark")
                    mine.replace(_call("coalesce", mine.copy(), kind))

    def _guard_joins(self, select: exp.Select, alias: str) -> None:
        """Let no value of the batch fail where rows are joined; whether one would was determined before."""
        for expression in _join_expressions(select):
            for one in list(_only_of(expression, alias)):
                one.replace(_call("flow_value", one.copy()))

    def _terms_of_where(self, select: exp.Select) -> list[exp.Expr]:
        """Return the errors of the condition, which lets rows with one of them pass."""
        where = select.args.get("where")
        if where is None:
            return []
        terms: list[exp.Expr] = []
        condition = self._tried(where.this, terms)
        terms.append(_call("flow_error", condition))
        wrong = exp.Is(this=_first([one.copy() for one in terms]), expression=exp.Null())
        where.set("this", exp.or_(exp.Not(this=wrong), _call("flow_value", condition.copy())))
        return terms

    def _safe_column(self, expression: exp.Expr, terms: list[exp.Expr]) -> exp.Expr:
        """Return a column of a step that never fails; what is wrong with it is added to the terms."""
        value, name = expression.unalias(), expression.alias_or_name
        if isinstance(value, exp.Star):
            raise NotSupportedError
        tried = self._tried(value, terms)
        if isinstance(tried, exp.Explode):
            terms.append(_call("flow_error", tried.this.copy()))
            tried.set("this", _call("flow_value", tried.this.copy()))
            return exp.alias_(tried, name, quoted=True)
        if not isinstance(tried, exp.Column | exp.Literal):
            terms.append(_call("flow_error", tried.copy()))
        return exp.alias_(_call("flow_value", tried), name, quoted=True)

    def _tried(self, expression: exp.Expr, terms: list[exp.Expr]) -> exp.Expr:
        """Return an expression whose functions of the user report their errors; those are added to the terms.

        Spark calls such functions before it evaluates what is around them, with arguments that must not fail either.
        """
        wrapped = exp.Paren(this=expression.copy())
        for call in sorted(self._calls(wrapped), key=lambda one: -one.depth):
            arguments = list(call.expressions)
            terms += [_call("flow_error", one.copy()) for one in arguments if not isinstance(one, exp.Column)]
            trying = _call(f"{TRYING}{str(call.this).lower()}", *(_call("flow_value", one) for one in arguments))
            checked = _call("flow_value_or_error", trying)
            terms.append(_call("flow_error", checked.copy()))
            call.replace(checked)
        for one in [one for one in wrapped.find_all(exp.In) if one.args.get("query") is not None]:
            # Spark makes a join of it, whose keys are evaluated before what is around them.
            terms.append(_call("flow_error", one.this.copy()))
            one.set("this", _call("flow_value", one.this.copy()))
        result: exp.Expr = wrapped.this
        result.pop()
        return result

    def _calls(self, tree: exp.Expr) -> list[exp.Anonymous]:
        return [call for call in tree.find_all(exp.Anonymous) if str(call.this).lower() in self._functions]


def _join_expressions(select: exp.Select) -> Iterator[exp.Expr]:
    """Return the expressions of a query that are evaluated before there are joined rows."""
    for join in select.args.get("joins") or ():
        if join.args.get("using"):
            raise NotSupportedError
        if join.args.get("on") is not None:
            yield join.args["on"]
    for lateral in select.args.get("laterals") or ():
        yield lateral.this


def _only_of(tree: exp.Expr, alias: str) -> Iterator[exp.Expr]:
    """Return the largest expressions that only have columns of one relation, and more than a column."""
    if tree.find(exp.Column) is None or isinstance(tree, exp.Column):
        return
    if _is_of(tree, alias) and not isinstance(tree, exp.Explode | exp.Inline):
        yield tree
        return
    for child in list(tree.iter_expressions()):
        yield from _only_of(child, alias)


def _is_of(tree: exp.Expr, alias: str) -> bool:
    return all(column.table == alias for column in tree.find_all(exp.Column))


def _good(step: str, alias: str) -> exp.Expr:
    """Return the rows of a step that have no error."""
    return exp.select(f"* EXCEPT ({ERROR})", dialect="spark").from_(step).where(f"{ERROR} IS NULL").subquery(alias)


def _first(terms: Sequence[exp.Expr]) -> exp.Expr:
    """Return the first error of several."""
    if not terms:
        return exp.cast(exp.Null(), "string", dialect="spark")
    return terms[0] if len(terms) == 1 else _call("coalesce", *terms)


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name))
