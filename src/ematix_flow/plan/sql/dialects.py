"""How each dialect spells one small expression; each is one line of SQL per dialect and decides nothing.

`x`, `y`, `n` and `p` stand for the parts. `TRY_CAST` and the guards around an expression keep bad values from raising.
On SQLite, `FLOW_*` are the functions of `connect.sqlite.functions`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from sqlglot import exp, parse_one

DIALECTS = ("postgres", "mysql", "sqlite", "duckdb", "spark")

ANY = "*"

_JSON_STRING = r'"(?:[^"\\]|\\.)*"'
_NO_JSON = r"(?i)nan|inf|,\s*[\]}]"

_DIALECT_FUNCTIONS: dict[str, dict[str, str]] = {
    # text
    "text": {ANY: "CAST(x AS TEXT)", "mysql": "CAST(x AS CHAR)", "spark": "CAST(x AS STRING)"},
    "length": {ANY: "LENGTH(x)", "mysql": "CHAR_LENGTH(x)"},
    "part": {ANY: "SUBSTRING(x, n, y)"},
    "join": {ANY: "x || y", "mysql": "CONCAT(x, y)"},
    "trim": {ANY: "TRIM(x)", "duckdb": "TRIM(x, ' ')"},
    "lower": {ANY: "LOWER(x)", "sqlite": "FLOW_LOWER(x)"},
    "upper": {ANY: "UPPER(x)", "sqlite": "FLOW_UPPER(x)"},
    # MySQL compares text by collation, which ignores case and blanks at the end; its bytes are those of a charset.
    "same_text": {
        ANY: "x = y",
        "mysql": "CAST(CONVERT(x USING utf8mb4) AS BINARY) = CAST(CONVERT(y USING utf8mb4) AS BINARY)",
    },
    "matches": {
        "postgres": "x ~ p",
        # MariaDB has no REGEXP_LIKE, and both decide about case by collation unless the pattern does.
        "mysql": "REGEXP_INSTR(x, p) > 0",
        "sqlite": "FLOW_MATCHES(x, p)",
        "duckdb": "REGEXP_MATCHES(x, p)",
        "spark": "x RLIKE p",
    },
    # numbers
    "small": {ANY: "CAST(x AS INTEGER)", "mysql": "CAST(x AS SIGNED)"},
    "bigint": {ANY: "CAST(x AS BIGINT)", "mysql": "CAST(x AS SIGNED)", "sqlite": "CAST(x AS INTEGER)"},
    "wide": {
        "postgres": "CAST(x AS DECIMAL)",
        "mysql": "CAST(x AS DECIMAL(38, 0))",
        "duckdb": "TRY_CAST(x AS DECIMAL(38, 0))",
        "spark": "TRY_CAST(x AS DECIMAL(38, 0))",
    },
    "double": {
        "postgres": "CAST(x AS DOUBLE PRECISION)",
        "mysql": "CAST(x AS DOUBLE)",
        "sqlite": "FLOW_DOUBLE(x)",
        "duckdb": "TRY_CAST(x AS DOUBLE)",
        "spark": "TRY_CAST(x AS DOUBLE)",
    },
    # points in time
    "naive": {
        "postgres": "CAST(x AS TIMESTAMP)",
        "mysql": "CAST(x AS DATETIME(6))",
        "sqlite": "FLOW_TIMESTAMP(x)",
        "duckdb": "TRY_CAST(x AS TIMESTAMP)",
        "spark": "TRY_CAST(x AS TIMESTAMP_NTZ)",
    },
    "day": {
        ANY: "CAST(x AS DATE)",
        "sqlite": "FLOW_DATE(x)",
        "duckdb": "TRY_CAST(x AS DATE)",
        "spark": "TRY_CAST(x AS DATE)",
    },
    "earlier": {
        "postgres": "x - n * INTERVAL '1 MINUTE'",
        "mysql": "DATE_SUB(x, INTERVAL n MINUTE)",
        "sqlite": "FLOW_EARLIER(x, n)",
        "duckdb": "x - TO_MINUTES(n)",
        "spark": "TIMESTAMPADD(MINUTE, -n, x)",
    },
    "instant": {
        ANY: "x AT TIME ZONE 'UTC'",
        "mysql": "x",
        "sqlite": "x || '+00:00'",
        "spark": "CAST(x AS TIMESTAMP)",
    },
    "utc": {
        ANY: "x AT TIME ZONE 'UTC'",
        "mysql": "x",
        "sqlite": "SUBSTRING(x, 1, 26)",
        "spark": "CAST(x AS TIMESTAMP_NTZ)",
    },
    "midnight": {
        ANY: "CAST(x AS TIMESTAMP)",
        "mysql": "CAST(x AS DATETIME(6))",
        "sqlite": "FLOW_TIMESTAMP(x || ' 00:00:00')",
        "spark": "CAST(x AS TIMESTAMP_NTZ)",
    },
    "wall": {
        ANY: "(x AT TIME ZONE 'UTC') AT TIME ZONE p",
        "sqlite": "FLOW_WALL(x, p)",
        "spark": "CONVERT_TIMEZONE('UTC', p, x)",
    },
    # the rest
    "uuid": {"postgres": "CAST(x AS UUID)", "duckdb": "CAST(x AS UUID)", ANY: "LOWER(x)"},
    "bytes": {
        "postgres": "CONVERT_TO(x, 'UTF8')",
        "mysql": "CAST(CONVERT(x USING utf8mb4) AS BINARY)",
        "sqlite": "CAST(x AS BLOB)",
        "duckdb": "ENCODE(x)",
        "spark": "CAST(x AS BINARY)",
    },
    "valid_json": {
        ANY: "JSON_VALID(x)",
        # DuckDB also takes NaN, Infinity and a comma before the end of a list; such tokens are outside of strings.
        "duckdb": f"JSON_VALID(x) AND NOT REGEXP_MATCHES(REGEXP_REPLACE(x, '{_JSON_STRING}', '0', 'g'), '{_NO_JSON}')",
        "spark": "TRY_PARSE_JSON(x) IS NOT NULL",
    },
    "random": {ANY: "RANDOM()", "mysql": "RAND()", "spark": "RAND()", "sqlite": "FLOW_RANDOM()"},
}

_LOOSE = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.AtTimeZone, exp.Interval)


def sql_func(function: str, dialect: str, **operands: exp.Expr | str | int) -> exp.Expr:
    """Return the phrase in this dialect with its parts filled in; text becomes a literal, a number a number."""
    spellings = _DIALECT_FUNCTIONS[function]
    return fill(spellings.get(dialect) or spellings[ANY], dialect, **operands)


def fill(template: str, dialect: str, **operands: exp.Expr | str | int) -> exp.Expr:
    """Return the tree of a template of this dialect, whose columns are replaced by the parts."""
    tree = _parsed(template, dialect).copy()
    filled = {name: as_operand(value) for name, value in operands.items()}
    if isinstance(tree, exp.Column):
        return filled[tree.name]
    for column in list(tree.find_all(exp.Column)):
        column.replace(filled[column.name].copy())
    return tree


def as_operand(value: exp.Expr | str | int) -> exp.Expr:
    """Return an operand: a literal for a plain value, parentheses around what would bind too loosely."""
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, int):
        return number(value)
    return exp.paren(value) if isinstance(value, _LOOSE) else value


def number(value: int) -> exp.Expr:
    """Return a whole number; a negative one in parentheses."""
    literal = exp.Literal.number(abs(value))
    return literal if value >= 0 else exp.Paren(this=exp.Neg(this=literal))


def case(*branches: tuple[exp.Expr, exp.Expr], otherwise: exp.Expr | None = None) -> exp.Case:
    """Return a searched CASE; without `otherwise` the rest is NULL."""
    ifs = [exp.If(this=condition, true=value) for condition, value in branches]
    return exp.Case(ifs=ifs, default=otherwise)


def both(*conditions: exp.Expr) -> exp.Expr:
    """Return the conjunction."""
    return cast("exp.Expr", exp.and_(*conditions))


def is_null(value: exp.Expr) -> exp.Expr:
    """Return `value IS NULL`."""
    return exp.Is(this=as_operand(value), expression=exp.Null())


def not_null(value: exp.Expr) -> exp.Expr:
    """Return `NOT value IS NULL`."""
    return exp.Not(this=is_null(value))


@lru_cache(maxsize=512)
def _parsed(template: str, dialect: str) -> exp.Expr:
    # Alone, REPLACE(...) would be read as a statement.
    return cast("exp.Expr", parse_one(f"SELECT {template}", dialect=dialect).expressions[0])
