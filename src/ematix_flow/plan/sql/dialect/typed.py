"""What a dialect means by an operator depends on types, which are known with the rows: until then a call stands for it.

`translate` writes `_flow_typed(rule, dialect, where, expression)`; `with_types` replaces it once the types of all relations
are known. DataFusion's and PostgreSQL's `7 / 2` is 3, and `7.0 / 2` is not.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.scope import traverse_scope

from ematix_flow.plan.sql.dialect.annotate import CALL, UNKNOWN, UNRESOLVED, annotated
from ematix_flow.plan.sql.dialect.decimals import UNBOUNDED
from ematix_flow.plan.sql.dialect.once import once
from ematix_flow.plan.sql.dialect.refusal import refusal
from ematix_flow.plan.sql.dialects import as_operand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ematix_flow.plan.sql.dialect.annotate import Types

DIVIDE, TO_INTEGER, TO_TEXT, SUBTRACT, MOVE, TRUNCATE, ROUND, AVERAGE, ELEMENT, WHOLE_PART, QUOTIENT, IN_TEXT, LOCAL = (
    "divide", "to_integer", "to_text", "subtract", "move", "truncate", "round", "average", "element", "whole_part", "quotient", "in_text", "local",
)  # fmt: skip

PIPED = "piped"

_WHOLE = {*exp.DataType.INTEGER_TYPES}
_EXACT = {*_WHOLE, exp.DType.DECIMAL}
_FLOATING = {exp.DType.FLOAT, exp.DType.DOUBLE}
_LOCAL = {exp.DType.TIMESTAMPNTZ}
_SCALAR = {
    *_EXACT, *_FLOATING, *exp.DataType.TEXT_TYPES, *exp.DataType.TEMPORAL_TYPES, exp.DType.BOOLEAN, exp.DType.NULL,
}  # fmt: skip
"""Types that say what an operator does; lists, structs and what is unknown do not."""


_TO_EVEN = ("postgres", "mysql")
"""Dialects that round a double between two whole numbers to the even one."""


def _double(value: int) -> exp.Expr:
    return exp.cast(exp.Literal.number(value), "DOUBLE")


def _has_any_digits(node: exp.Expr) -> bool:
    """Return whether a value comes from a numeric without digits, and has not been rounded to some."""
    kinds = [kind for kind in node.find_all(exp.DataType) if kind.sql() == UNBOUNDED]
    return any(kind.find_ancestor(exp.Round, exp.Floor, exp.Ceil) is None for kind in kinds)


def _has_time(interval: exp.Expr) -> bool:
    """Return whether an interval has hours, minutes or seconds."""
    if isinstance(interval, exp.Interval):
        return interval.args["unit"].name in ("HOUR", "MINUTE", "SECOND")
    return any(interval.args[part].name != "0" for part in ("hour", "minute", "second") if interval.args.get(part))


def _is_surely_whole(node: exp.Expr) -> bool:
    """Return whether an expression is a whole number whatever it is computed from."""
    kind = annotate_types(node.copy(), dialect="spark").type
    return kind is not None and kind.this in _WHOLE


def typed_call(rule: str, dialect: str, where: str, node: exp.Expr) -> exp.Expr:
    """Return the call that stands for an expression until types are known."""
    labels = [exp.Literal.string(label) for label in (rule, dialect, where)]
    return exp.Anonymous(this=CALL, expressions=[*labels, node])


def requires_types(sql: str) -> bool:
    """Return whether types decide what the query means."""
    return CALL in sql.lower()


def with_types(sql: str, relations: Mapping[str, Mapping[str, str]], functions: Mapping[str, str]) -> str:
    """Return Spark SQL without calls that stand for something, for relations and functions with these types."""
    if not requires_types(sql):
        return sql
    types = {name: tuple(sorted(columns.items())) for name, columns in relations.items()}
    return _with_types(sql, tuple(sorted(types.items())), tuple(sorted(functions.items())))


@lru_cache(maxsize=256)
def _with_types(sql: str, relations: Types, functions: tuple[tuple[str, str], ...]) -> str:
    tree = parse_one(sql, dialect="spark")
    returned = {name.lower(): kind for name, kind in functions}
    for number, call in enumerate(_typed_calls(tree)):
        call.append("expressions", exp.Literal.number(number))
    # From the inside outwards: what an inner one becomes decides the type of the outer one, also by way of a name.
    while inner := [call for call in _typed_calls(tree) if not any(one is not call for one in _typed_calls(call))]:
        types = partial(_operand_types, tree, inner[0].expressions[1].name, relations, returned)
        known = types(strictly=True)
        ready = [call for call in inner if _are_known(known.get(call.expressions[4].name, []))]
        if not ready:
            known, ready = types(strictly=False), _in_first_query(tree, inner)
        for call in ready:
            rule, dialect, where, node, number = call.expressions
            meaning = _Typed(dialect.name, where.name, node, known.get(number.name, []))
            call.replace(meaning.of(rule.name))
    return tree.sql(dialect="spark")


def _are_known(types: list[exp.DataType]) -> bool:
    return bool(types) and not any(kind.is_type(exp.DType.UNKNOWN) for kind in types)


def _in_first_query(tree: exp.Expr, calls: list[exp.Anonymous]) -> list[exp.Anonymous]:
    """Return the calls of the first query that has some, in the order in which queries read others."""
    try:
        queries = [scope.expression for scope in traverse_scope(tree)]
    except SqlglotError:
        return calls
    within = ([call for call in calls if call.find_ancestor(exp.Query) is query] for query in queries)
    return next(filter(None, within), calls)


def _typed_calls(tree: exp.Expr) -> list[exp.Anonymous]:
    return [call for call in tree.find_all(exp.Anonymous) if str(call.this).lower() == CALL]


def _operand_types(
    tree: exp.Expr, dialect: str, relations: Types, returned: Mapping[str, str], *, strictly: bool
) -> dict[str, list[exp.DataType]]:
    """Return the types of the operands of typed expressions by the number of the call; none where they are unknown."""
    try:
        known = annotated(tree, dialect, relations, returned, strictly=strictly)
    except UNRESOLVED:
        return {}
    return {
        call.expressions[4].name: [one.type or UNKNOWN for one in _operands(call.expressions[3])]
        for call in _typed_calls(known)
    }


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    node = node.this if isinstance(node, exp.Window | exp.Filter) else node
    yield node.this
    if isinstance(node, exp.Binary):
        yield node.expression


class _Typed:
    """One typed expression with the types of its operands."""

    def __init__(self, dialect: str, where: str, node: exp.Expr, types: list[exp.DataType]) -> None:
        self._dialect = dialect
        self._where = where
        self._node = node
        self._kinds = [kind.this for kind in types] or [exp.DType.UNKNOWN]

    def of(self, rule: str) -> exp.Expr:
        """Return the expression in Spark SQL."""
        rules = {
            DIVIDE: self._divided, TO_INTEGER: self._whole, TO_TEXT: self._text, SUBTRACT: self._subtracted,
            MOVE: self._moved, TRUNCATE: self._truncated, ROUND: self._rounded, AVERAGE: self._average,
            ELEMENT: self._element, WHOLE_PART: self._whole_part, QUOTIENT: self._quotient,
            IN_TEXT: self._in_text, PIPED: self._piped, LOCAL: self._local,
        }  # fmt: skip
        return rules[rule]()

    def _all(self, kinds: set[exp.DType]) -> bool:
        return all(kind in kinds for kind in self._kinds)

    def _check_known(self, what: str) -> None:
        if any(kind not in _SCALAR for kind in self._kinds):
            reason = f"{what} depends on the type of its operands, which is not known"
            raise refusal(self._dialect, self._where, reason, "write the type, as in CAST(a AS BIGINT).")

    def _divided(self) -> exp.Expr:
        self._check_known("/")
        left, right = self._node.this, self._node.expression
        if self._dialect != "mysql":
            if left.is_string or right.is_string:
                raise refusal(self._dialect, self._where, "a text is divided", "write the number without quotes.")
            return exp.paren(exp.IntDiv(this=left, expression=right)) if self._all(_WHOLE) else self._node
        if exp.DType.DECIMAL in self._kinds and self._all(_EXACT):
            reason = "the digits of a quotient of MySQL depend on both operands"
            raise refusal(self._dialect, self._where, reason, "write CAST(... AS DOUBLE) around one of them.")
        right = exp.func("NULLIF", right, exp.Literal.number(0))
        if not self._all(_WHOLE):
            return exp.Div(this=left, expression=right)
        exact = exp.Div(this=exp.cast(left, "DECIMAL(20, 0)"), expression=exp.cast(right, "DECIMAL(20, 0)"))
        return exp.cast(exact, "DECIMAL(24, 4)")  # MySQL's div_precision_increment

    def _quotient(self) -> exp.Expr:
        self._check_known("//")
        if not self._all(_WHOLE):
            raise refusal(self._dialect, self._where, "// of numbers that are not whole", "write floor(a / b).")
        return self._node

    def _whole(self) -> exp.Expr:
        self._check_known("a cast to a whole number")
        operand = self._node.this
        if exp.DType.DECIMAL in self._kinds:
            operand.replace(exp.func("ROUND", operand.copy()))
        elif self._all(_FLOATING):
            operand.replace(exp.Anonymous(this="RINT", expressions=[operand.copy()]))
        return self._node

    def _text(self) -> exp.Expr:
        self._check_known("the text of a value")
        if self._all(_FLOATING) or (self._dialect == "mysql" and self._all({exp.DType.BOOLEAN})):
            reason = f"{self._dialect} and Spark write a {self._kinds[0].value} as different texts"
            raise refusal(self._dialect, self._where, reason, "cast it to a DECIMAL or a whole number first.")
        if self._dialect == "postgres" and _has_any_digits(self._node.this):
            reason = "the text of a numeric has the digits that it was written with"
            raise refusal(self._dialect, self._where, reason, "give it digits, as in NUMERIC(20, 2) or round(a, 2).")
        return self._node

    def _piped(self) -> exp.Expr:
        """Return an operand of ||, which may be a list."""
        if self._all({*_FLOATING, exp.DType.DECIMAL}) and self._dialect != "datafusion":
            self._text()
        value: exp.Expr = self._node.this
        return value

    def _in_text(self) -> exp.Expr:
        """Return the text of a part of a text; what is of no known type is left to Spark."""
        value: exp.Expr = self._node.this
        if not self._all(_SCALAR) or self._all({*exp.DataType.TEXT_TYPES}):
            return value
        if self._dialect == "postgres" and self._all({exp.DType.BOOLEAN}):
            return exp.If(this=value, true=exp.Literal.string("t"), false=exp.Literal.string("f"))
        if self._dialect != "datafusion":
            self._text()
        return exp.cast(value, "STRING", dialect="spark")

    def _local(self) -> exp.Expr:
        """Return a text as a local time, whose zone PostgreSQL leaves out."""
        if self._all({*exp.DataType.TEXT_TYPES}):
            self._node.this.replace(exp.cast(self._node.this.copy(), "TIMESTAMP_NTZ", dialect="spark"))
        return self._node

    def _subtracted(self) -> exp.Expr:
        if self._dialect == "mysql" and any(kind in exp.DataType.TEMPORAL_TYPES for kind in self._kinds):
            reason = "MySQL adds and subtracts dates as numbers"
            raise refusal(self._dialect, self._where, reason, "use DATEDIFF(a, b) or an INTERVAL.")
        if isinstance(self._node, exp.Add) or not self._all({exp.DType.DATE}):
            return self._node
        return exp.Anonymous(this="DATEDIFF", expressions=[self._node.this, self._node.expression])

    def _moved(self) -> exp.Expr:
        if self._dialect == "mysql":
            return self._moved_by_mysql()
        return self._moved_as("TIMESTAMP_NTZ") if exp.DType.DATE in self._kinds else self._node

    def _moved_by_mysql(self) -> exp.Expr:
        """Return a date for a date as long as the interval has whole days, and a text for a text."""
        has_time = _has_time(self._node.expression)
        if exp.DType.DATE in self._kinds:
            return self._moved_as("TIMESTAMP_NTZ") if has_time else self._node
        if not set(self._kinds) & exp.DataType.TEXT_TYPES:
            return self._node
        moved = exp.cast(self._moved_as("TIMESTAMP_NTZ"), "STRING", dialect="spark")
        if has_time:
            return moved
        is_long = exp.GT(this=exp.Length(this=self._node.this.copy()), expression=exp.Literal.number(len("2024-01-31")))
        return exp.If(this=is_long, true=moved, false=exp.cast(self._moved_as("DATE"), "STRING", dialect="spark"))

    def _moved_as(self, kind: str) -> exp.Expr:
        moved = self._node.copy()
        moved.set("this", exp.cast(moved.this, kind, dialect="spark"))
        return moved

    def _truncated(self) -> exp.Expr:
        """Return a local time for a local time; Spark makes an instant of it."""
        return exp.cast(self._node, "TIMESTAMP_NTZ", dialect="spark") if self._all(_LOCAL) else self._node

    def _rounded(self) -> exp.Expr:
        if self._dialect == "postgres":
            self._check_known("round()")
        if not self._all(_FLOATING):
            return self._node
        value, digits = self._node.this, self._node.args.get("decimals")
        if digits is not None:  # of a product, as there; Spark's takes the digits that are shown
            value = exp.Mul(this=exp.paren(value), expression=_double(10 ** int(digits.name)))
        whole = exp.Anonymous(this="RINT", expressions=[value]) if self._dialect in _TO_EVEN else exp.Round(this=value)
        return whole if digits is None else exp.paren(exp.Div(this=whole, expression=_double(10 ** int(digits.name))))

    def _whole_part(self) -> exp.Expr:
        """Return floor, ceil or trunc as a number of the type that it has there; Spark makes a BIGINT of a double."""
        self._check_known("the whole part of a number")
        value, is_cut = self._node.this, isinstance(self._node, exp.Paren)
        if self._all(_WHOLE):
            is_same = self._dialect == "mysql" or (self._dialect == "duckdb" and is_cut)
            return as_operand(value) if is_same else exp.cast(value, "DOUBLE")
        if not is_cut and not self._all(_FLOATING):
            return self._node
        return once(value, lambda one: self._whole_part_of(one, is_cut=is_cut))

    def _whole_part_of(self, value: exp.Expr, *, is_cut: bool) -> exp.Expr:
        below = exp.LT(this=exp.paren(value.copy()), expression=exp.Literal.number(0))
        cut = exp.If(this=below, true=exp.Ceil(this=value.copy()), false=exp.Floor(this=value.copy()))
        whole = cut if is_cut else type(self._node)(this=value.copy())
        if not self._all(_FLOATING):
            return whole
        # Doubles from here on are whole, and may be more than a BIGINT holds.
        small = exp.LT(this=exp.Abs(this=value.copy()), expression=exp.Literal.number(2**53))
        return exp.If(this=small, true=exp.cast(whole, "DOUBLE"), false=value.copy())

    def _average(self) -> exp.Expr:
        self._check_known("avg()")
        return exp.cast(self._node, "DECIMAL(24, 4)") if self._all(_WHOLE) else self._node

    def _element(self) -> exp.Expr:
        """Return the element at an index that is computed, counted from one; a map is read by its key."""
        if self._all({exp.DType.MAP}):
            return self._node
        if not self._all({exp.DType.ARRAY}) and not _is_surely_whole(self._node.expressions[0]):
            reason = "an index into what is not known to be a list or a map"
            raise refusal(self._dialect, self._where, reason, "write the number, or use get() with dialect='spark'.")
        values, index = self._node.this, exp.paren(self._node.expressions[0])
        at: exp.Expr = exp.Sub(this=index, expression=exp.Literal.number(1))
        if self._dialect != "postgres":  # where -1 is the last one
            last = exp.Add(this=exp.Anonymous(this="SIZE", expressions=[values.copy()]), expression=index.copy())
            at = exp.If(this=exp.LT(this=index.copy(), expression=exp.Literal.number(0)), true=last, false=at)
        return exp.Anonymous(this="GET", expressions=[values, at])
