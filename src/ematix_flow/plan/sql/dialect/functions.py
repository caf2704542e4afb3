"""Functions that have one name and two meanings, by the dialect they were written in."""

from __future__ import annotations

import re

from sqlglot import exp

from ematix_flow.plan.sql.dialect.lists import translate_search
from ematix_flow.plan.sql.dialect.refusal import refusal
from ematix_flow.plan.sql.dialect.times import translate_time

RENAMED = {
    "make_array": "array",
    "array_length": "size",
    "list_value": "array",
    "arrow_typeof": "typeof",
    "to_timestamp_seconds": "timestamp_seconds",
    "to_timestamp_millis": "timestamp_millis",
    "to_timestamp_micros": "timestamp_micros",
    "random": "rand",
    "struct": "named_struct",
    "character_length": "char_length",
}
_MISSING = {
    "arrow_cast": "use CAST.",
    "date_bin": "use window() or date_trunc with dialect='spark'.",
    "approx_percentile_cont": "use approx_percentile with dialect='spark'.",
    "digest": "use sha2 with dialect='spark'.",
    "age": "subtract the two timestamps.",
    "regexp_match": "it returns a list; use regexp_extract with dialect='spark'.",
}
"""Functions that other engines have and Spark has not, with what to do."""

_IN_REPLACEMENT = re.compile(r"\\(.?)|\$", re.DOTALL)
_FOLLOW_POSTGRES = ("postgres", "duckdb", "datafusion")


def translate_function(node: exp.Func, dialect: str, where: str) -> None:
    """Replace a call with one that means the same in Spark, or refuse it; most calls stay."""
    translate_search(node, dialect)
    translate_time(node, dialect, where)
    match node:
        case exp.Anonymous():
            _unknown(node, dialect, where)
        case exp.Greatest() | exp.Least() if dialect == "mysql":
            _null_if_any_is(node)
        case exp.Length() if dialect == "mysql" and node.args.get("binary"):
            node.replace(exp.Anonymous(this="OCTET_LENGTH", expressions=[node.this]))
        case exp.Substring() | exp.Left() | exp.Right():
            _check_positions(node, dialect, where)
        case _ if dialect in _FOLLOW_POSTGRES:
            _of_postgres(node, dialect, where)


def _of_postgres(node: exp.Func, dialect: str, where: str) -> None:
    match node:
        case exp.RegexpReplace():
            _regexp_replace(node, dialect, where)
        case exp.RegexpILike():
            pattern = exp.Concat(expressions=[exp.Literal.string("(?i)"), node.expression])
            node.replace(exp.RegexpLike(this=node.this, expression=pattern))
        case exp.RegexpFullMatch():
            ends = (exp.Literal.string("^(?:"), node.expression, exp.Literal.string(")$"))
            node.replace(exp.RegexpLike(this=node.this, expression=exp.Concat(expressions=list(ends))))
        case exp.Log() if node.expression is None:
            node.replace(_of_positive(node.this, exp.Anonymous(this="LOG10", expressions=[node.this.copy()])))
        case exp.Ln():
            node.replace(_of_positive(node.this, node.copy()))
        case exp.SHA2() | exp.SHA2Digest() if dialect != "duckdb":
            raise refusal(dialect, where, "it returns bytes, and Spark's sha2() their text", "write dialect='spark'.")


def _unknown(node: exp.Anonymous, dialect: str, where: str) -> None:
    name = str(node.this).lower()
    if name in _MISSING:
        raise refusal(dialect, where, f"{node.this}() has no translation into Spark SQL", _MISSING[name])
    if name in RENAMED:
        node.set("this", RENAMED[name])


def _null_if_any_is(node: exp.Func) -> None:
    """Return NULL for a NULL among the arguments, as MySQL does; Spark leaves it out."""
    values = [node.this, *node.expressions]
    missing = exp.or_(*(exp.Is(this=one.copy(), expression=exp.Null()) for one in values))
    node.replace(exp.If(this=missing, true=exp.Null(), false=node.copy()))


def _check_positions(node: exp.Func, dialect: str, where: str) -> None:
    """Refuse positions and lengths that are read differently: those before the first character."""
    number = node.args.get("start") if isinstance(node, exp.Substring) else node.expression
    if isinstance(number, exp.Literal) and number.is_string and dialect in ("postgres", "datafusion"):
        hint = "use regexp_extract with dialect='spark'."
        raise refusal(dialect, where, "substring() with a pattern has no translation", hint)
    if isinstance(number, exp.Neg) and dialect == "mysql" and isinstance(node, exp.Substring):
        return
    if isinstance(number, exp.Neg) or (isinstance(number, exp.Literal) and number.name == "0"):
        reason = "a position or length below 1 means something else in Spark"
        raise refusal(dialect, where, reason, "count from 1, or write it with dialect='spark'.")


def _regexp_replace(node: exp.RegexpReplace, dialect: str, where: str) -> None:
    flags, replacement = node.args.get("modifiers"), node.args.get("replacement")
    letters = flags.name if isinstance(flags, exp.Literal) else ""
    if "g" not in letters:
        reason = f"regexp_replace() of {dialect} replaces the first match only, and Spark's all"
        raise refusal(dialect, where, reason, "add the flag 'g', or write it with dialect='spark'.")
    if set(letters) - {"g", "i"} or not isinstance(replacement, exp.Literal):
        reason = "only the flags g and i, and replacements that are written out, mean the same in Spark"
        raise refusal(dialect, where, reason, "write it with dialect='spark'.")
    node.set("replacement", exp.Literal.string(_replacement(replacement.name, dialect)))
    node.set("modifiers", None)
    if "i" in letters:
        node.set("expression", exp.Concat(expressions=[exp.Literal.string("(?i)"), node.expression.copy()]))


def _replacement(text: str, dialect: str) -> str:
    """Return a replacement as Java writes it."""

    def part(match: re.Match[str]) -> str:
        after = match[1] or ""
        if dialect == "postgres" and after in ("&", "0"):
            return "$0" if after == "&" else "\\\\0"
        if after.isdigit():
            return f"${after}"
        written = "\\" if after == "\\" else match[0]
        return written.replace("\\", "\\\\").replace("$", "\\$")

    return _IN_REPLACEMENT.sub(part, text)


def _of_positive(value: exp.Expr, logarithm: exp.Expr) -> exp.Expr:
    """Return a logarithm that fails where there is none; Spark's is NULL there."""
    none = exp.LTE(this=value.copy(), expression=exp.Literal.number(0))
    text = exp.Literal.string("the logarithm of a number that is not positive")
    return exp.If(this=none, true=exp.Anonymous(this="RAISE_ERROR", expressions=[text]), false=logarithm)
