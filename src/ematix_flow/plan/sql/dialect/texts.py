"""Texts by dialect: patterns and their flags, characters, texts that are put together, and JSON."""

from __future__ import annotations

import re

from sqlglot import exp

from ematix_flow.plan.sql.dialect.refusal import refusal
from ematix_flow.plan.sql.dialect.typed import IN_TEXT, PIPED, typed_call

_LATIN = 256
"""How many characters Spark's chr() knows; it counts others from zero again."""
_IN_JSON = (exp.JSONExtract, exp.JSONExtractScalar)
_FORMAT = re.compile(r"%s|%%|[^%]+")


def translate_text(node: exp.Expr, dialect: str, where: str) -> None:  # noqa: C901 - one case per function
    """Replace a function or an operator of texts with one that means the same in Spark, or refuse it; most stay."""
    match node:
        case exp.RegexpLike() | exp.RegexpFullMatch():
            _flags(node, dialect, where)
        case exp.Like() | exp.ILike() if dialect == "duckdb" and not isinstance(node.parent, exp.Escape):
            _without_escapes(node)
        case exp.Chr() if dialect != "mysql" and len(node.expressions) == 1:
            _character(node)
        case exp.Hex() if dialect in ("postgres", "datafusion"):
            node.replace(exp.Lower(this=node.copy()))
        case exp.Format():
            _formatted(node, dialect, where)
        case exp.Anonymous() if dialect == "duckdb" and str(node.this).lower() == "printf":
            missing = exp.or_(*(exp.Is(this=one.copy(), expression=exp.Null()) for one in node.expressions[1:]))
            node.replace(exp.If(this=missing, true=exp.Null(), false=node.copy()))
        case exp.Concat() | exp.ConcatWs() | exp.DPipe():
            _parts_of_text(node, dialect, where)
        case exp.JSONExtract() if dialect in ("postgres", "duckdb", "mysql"):
            _json(node, dialect, where)
        case exp.Cast() if node.to.this in (exp.DType.JSON, exp.DType.JSONB) and isinstance(_user_of(node), _IN_JSON):
            node.replace(node.this.copy())  # which is text
        case exp.Anonymous() if str(node.this).lower() == "json_unquote" and isinstance(node.expressions[0], _IN_JSON):
            node.replace(node.expressions[0].copy())


def _flags(node: exp.Func, dialect: str, where: str) -> None:
    """Put the flag i into the pattern; sqlglot leaves flags out."""
    name = "flag" if isinstance(node, exp.RegexpLike) else "options"
    flags = node.args.get(name)
    if flags is None:
        return
    if not isinstance(flags, exp.Literal) or set(flags.name) - {"i", "c"}:
        reason = "of the flags of a pattern only i and c mean the same in Spark"
        raise refusal(dialect, where, reason, "write the pattern for dialect='spark'.")
    node.set(name, None)
    if flags.name.endswith("i"):
        pattern = [exp.Literal.string("(?i)"), node.expression.copy()]
        node.set("expression", exp.Anonymous(this="CONCAT", expressions=pattern))


def _without_escapes(node: exp.Binary) -> None:
    """Double what escapes characters in patterns of Spark, and nothing in those of DuckDB."""
    pattern = node.expression
    if isinstance(pattern, exp.Literal):
        pattern.set("this", pattern.name.replace("\\", "\\\\"))
    else:
        slashes = [exp.Literal.string("\\"), exp.Literal.string("\\\\")]
        node.set("expression", exp.Anonymous(this="REPLACE", expressions=[pattern.copy(), *slashes]))


def _character(node: exp.Chr) -> None:
    [code] = node.expressions
    if isinstance(code, exp.Literal):
        if int(code.name) >= _LATIN:
            node.replace(exp.Literal.string(chr(int(code.name))))
        return
    digits = exp.Anonymous(
        this="LPAD", expressions=[exp.Hex(this=code.copy()), exp.Literal.number(8), exp.Literal.string("0")]
    )
    bytes_ = exp.Anonymous(this="UNHEX", expressions=[digits])
    node.replace(exp.Anonymous(this="DECODE", expressions=[bytes_, exp.Literal.string("UTF-32")]))


def _formatted(node: exp.Format, dialect: str, where: str) -> None:
    """Return a text with values put in as concat puts them together, if that is all that the format asks for."""
    written, values = node.this, [one.copy() for one in node.expressions]
    parts = _FORMAT.findall(written.name) if isinstance(written, exp.Literal) else []
    if dialect != "postgres" or "".join(parts) != written.name or parts.count("%s") != len(values):
        reason = f"format() of {dialect} has no translation but for %s"
        raise refusal(dialect, where, reason, "use concat(), or format_string with dialect='spark'.")
    texts = {"%%": "%"}
    inner = [values.pop(0) if part == "%s" else exp.Literal.string(texts.get(part, part)) for part in parts]
    joined = exp.Concat(expressions=[exp.Literal.string(""), *inner], safe=True, coalesce=True)
    node.replace(joined)
    _parts_of_text(joined, dialect, where)


def _parts_of_text(node: exp.Expr, dialect: str, where: str) -> None:
    """Have every part of a text be written as the system does, which depends on its type."""
    parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else node.expressions
    rule = PIPED if isinstance(node, exp.DPipe) else IN_TEXT
    for part in parts:
        if not part.is_string and not isinstance(part, exp.DPipe):
            part.replace(typed_call(rule, dialect, where, exp.paren(part.copy())))


def _json(node: exp.JSONExtract, dialect: str, where: str) -> None:
    """Refuse a part of a JSON text as the result: its texts have quotes, and Spark's have not."""
    user = _user_of(node)
    is_number = isinstance(user, exp.Cast) and user.to.this not in exp.DataType.TEXT_TYPES
    is_call = isinstance(user, exp.Anonymous) and str(user.this).lower().startswith("json")
    is_compared = dialect == "mysql" and isinstance(user, exp.Binary)  # where quotes do not count, but in IN
    if not (isinstance(user, _IN_JSON) or is_number or is_call or is_compared):
        reason = f"a part of a JSON text is JSON again in {dialect}, with quotes around a text"
        hint = "take its text: ->> , JSON_UNQUOTE(...) or json_extract_string."
        raise refusal(dialect, where, reason, hint)


def _user_of(node: exp.Expr) -> exp.Expr | None:
    """Return what an expression is an operand of."""
    user = node.parent
    while isinstance(user, exp.Paren):
        user = user.parent
    return user
