"""A value into the declared type of its column, on every dialect alike; nothing is altered silently.

Text is read strictly (ISO for points in time) and what cannot be read is a failure. Numbers must fit: whole for
integer columns, in range, rounded half away from zero for decimals. A point in time without a zone is UTC; a
timestamp put into a date column becomes its UTC day. `other` is passed on, and the target decides, loudly. Two families
that have no common meaning (a date and an integer) are refused while planning.

SQLite keeps no types, so there points in time, UUIDs and JSON count as text and numbers are checked by value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from ematix_flow.declare.pipeline.datetime_format import ISO_DATE, ISO_TIMESTAMP
from ematix_flow.declare.table.types import BigInt, Integer, Numeric, SmallInt, String
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.dialects import both, case, fill, number, sql_func
from ematix_flow.plan.sql.shape.timestamps import day, matches, parse_timestamp
from ematix_flow.plan.sql.shape.value import NUMBERS, TIME_TYPES, SourceType, Value

if TYPE_CHECKING:
    from ematix_flow.declare.table.schema import Column
    from ematix_flow.declare.table.types import ColumnType

S = SourceType

INT_BITS = {SmallInt: 16, Integer: 32, BigInt: 64}
_INT_NAMES = {16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
TRUE_TEXTS = ("true", "t", "1", "yes", "y", "on")
FALSE_TEXTS = ("false", "f", "0", "no", "n", "off")
MAX_FLOAT32 = "3.4028235e38"
MAX_FLOAT64 = "1.7976931348623157e308"
MIN_FLOAT64 = "2.5e-324"
"""What is greater has a double that is not zero."""
_INT_TEXT = "^-?[0-9]+$"
_NUMERIC_TEXT = "^-?[0-9]+([.][0-9]+)?$"
_DOUBLE_TEXT = (
    "^[+-]?(([0-9]+([.][0-9]*)?|[.][0-9]+)"
    "([eE]([+-]?([0-9][0-9]?|[0-2][0-9][0-9]|30[0-8])|-(309|31[0-9]|32[0-3])))?|[3-9]([.][0-9]*)?[eE]-324)$"
)
"""Numbers that a double holds; the last alternative is the smallest one."""
_LONGEST_INT = 38
"""Characters of a whole number, leading zeros included; every dialect can compare that many digits."""
_LONGEST_NUMBER = 200
_UUID_TEXT = "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_UNTYPED = (*TIME_TYPES, S.UUID, S.JSON)


def source_value(name: str, family: str, dialect: str) -> Value:
    """Return a source column as a value."""
    known = SourceType(family)
    if dialect == "sqlite" and known in _UNTYPED:
        known = S.TEXT
    return Value(exp.column(exp.to_identifier(name, quoted=True)), known)


def convert(value: Value, column: Column, dialect: str) -> Value:
    """Return the value in the column's declared type, with the failures that this can have."""
    if value.type is S.OTHER:
        return value
    kind = column.type.kind
    match kind:
        case "text" | "string":
            return _to_text_column(value, column.type, dialect)
        case "small_int" | "integer" | "big_int":
            return _to_integer_column(value, column, dialect)
        case "numeric":
            return _to_numeric(value, column, dialect)
        case "float" | "double":
            return _to_float(value, column, dialect)
        case "boolean":
            return _to_boolean(value, column, dialect)
        case "date" | "timestamp" | "timestamp_tz":
            return _to_timestamp(value, column, S(kind), dialect)
    return _to_opaque(value, column, dialect)


def to_text(value: Value, dialect: str) -> Value:
    """Return the value as text."""
    if value.type in {S.TEXT, S.OTHER}:
        return value
    if value.type is S.BOOLEAN:
        spelled = case((value.sql, _text_literal("true")), (exp.Not(this=value.sql.copy()), _text_literal("false")))
        return value.become(spelled, S.TEXT)
    return value.become(sql_func("text", dialect, x=value.sql), S.TEXT)


def read_integer(value: Value, dialect: str, *, failing: bool, bits: int = 64) -> Value:
    """Return text as a whole number of so many bits."""
    if dialect == "sqlite":
        whole = fill("FLOW_INTEGER(x)", dialect, x=value.sql)
        guarded = (
            case((_spelled(value.sql, _INT_TEXT, _LONGEST_INT, dialect), whole)) if value.type is S.TEXT else whole
        )
        return value.read_as(guarded, S.INTEGER, failing=failing)
    if dialect == "duckdb":
        read = fill(f"TRY_CAST(x AS {_INT_NAMES[bits]})", dialect, x=value.sql)
    else:
        high = number(2 ** (bits - 1) - 1)
        in_range = exp.Between(this=sql_func("wide", dialect, x=value.sql), low=_lowest(bits), high=high)
        read = case((in_range, sql_func("bigint", dialect, x=value.sql)))
    guarded = case((_spelled(value.sql, _INT_TEXT, _LONGEST_INT, dialect), read))
    return value.read_as(guarded, S.INTEGER, failing=failing)


def read_decimal(value: Value, precision: int, scale: int, dialect: str, *, failing: bool) -> Value:
    """Return text as a decimal number."""
    if dialect == "sqlite":
        read = fill("FLOW_DECIMAL(x, p, n)", dialect, x=value.sql, p=number(precision), n=scale)
        return value.read_as(read, S.DECIMAL, failing=failing)
    pattern, text = _NUMERIC_TEXT, value.sql
    if dialect == "mysql":
        # MySQL holds 65 digits, and more than that are an error; one decimal more than required decides the rounding.
        pattern = f"^-?0*[0-9]{{1,{64 - scale}}}([.][0-9]+)?$"
        point = fill("LOCATE('.', x)", dialect, x=text)
        cut = fill("SUBSTRING(x, 1, n + y)", dialect, x=text, n=point, y=scale + 1)
        text = case((exp.GT(this=point.copy(), expression=number(0)), cut), otherwise=text.copy())
    read = _decimal(text, precision, scale, dialect)
    spelled = _spelled(value.sql, pattern, _LONGEST_NUMBER, dialect)
    return value.read_as(case((spelled, read)), S.DECIMAL, failing=failing)


def read_boolean(
    value: Value, truthy: tuple[str, ...], falsy: tuple[str, ...], dialect: str, *, failing: bool
) -> Value:
    """Return words as a boolean."""
    lowered = sql_func("lower", dialect, x=value.sql)
    answers = [(w, exp.true()) for w in truthy] + [(w, exp.false()) for w in falsy]
    if not answers:
        return value.become(exp.null(), S.BOOLEAN)
    branches: list[tuple[exp.Expr, exp.Expr]]
    if dialect == "duckdb":
        # It would make the word small for every comparison.
        several = [
            (spellings, answer) for spellings, answer in ((truthy, exp.true()), (falsy, exp.false())) if spellings
        ]
        branches = [
            (exp.In(this=lowered.copy(), expressions=[_text_literal(w) for w in spellings]), a)
            for spellings, a in several
        ]
    else:
        branches = [(sql_func("same_text", dialect, x=lowered, y=w), answer) for w, answer in answers]
    return value.read_as(case(*branches), S.BOOLEAN, failing=failing)


def _to_text_column(value: Value, declared: ColumnType, dialect: str) -> Value:
    _refuse(value, declared, (S.BINARY,))
    value = to_text(value, dialect)
    if isinstance(declared, String):
        long = exp.GT(this=sql_func("length", dialect, x=value.sql.copy()), expression=number(declared.length))
        return Value(value.sql, S.TEXT, (*value.failures, long))
    return value


def _to_integer_column(value: Value, column: Column, dialect: str) -> Value:
    _refuse(value, column.type, (*TIME_TYPES, S.BINARY, S.JSON, S.UUID))
    bits = INT_BITS[type(column.type)]
    if value.type is S.BOOLEAN:
        return value.become(_bit(value.sql), S.INTEGER)
    if value.type is S.TEXT and dialect != "sqlite":
        return read_integer(value, dialect, failing=True, bits=bits)
    if dialect == "sqlite":
        value = read_integer(value, dialect, failing=True)
    elif value.type in {S.DECIMAL, S.FLOAT}:
        whole = exp.EQ(this=value.sql, expression=exp.func("FLOOR", value.sql.copy()))
        fits = both(whole, _within(value.sql, bits))
        return value.read_as(case((fits, sql_func("bigint", dialect, x=value.sql))), S.INTEGER, failing=True)
    if bits == 64:  # noqa: PLR2004 - an integer of a source has at most 64 bits
        return value
    return value.read_as(case((_within(value.sql, bits), value.sql.copy())), S.INTEGER, failing=True)


def _to_numeric(value: Value, column: Column, dialect: str) -> Value:
    declared = column.type
    _refuse(value, declared, (*TIME_TYPES, S.BINARY, S.JSON, S.UUID))
    assert isinstance(declared, Numeric)  # noqa: S101 - the kind says so
    if value.type is S.BOOLEAN:
        value = value.become(_bit(value.sql), S.INTEGER)
    if value.type is S.TEXT or dialect == "sqlite":
        return read_decimal(value, declared.precision, declared.scale, dialect, failing=True)
    sql = value.sql
    if value.type is S.FLOAT and dialect != "mysql":
        # The shortest text that parses to the number is the number people mean: 2.675, not 2.67499999.
        sql = sql_func("text", dialect, x=sql)
    read = _decimal(sql, declared.precision, declared.scale, dialect)
    if value.type is S.FLOAT and dialect == "mysql":
        limit = exp.Literal.number(f"1e{declared.precision - declared.scale}")
        read = case((exp.LT(this=exp.func("ABS", value.sql.copy()), expression=limit), read))
    return value.read_as(read, S.DECIMAL, failing=True)


def _to_float(value: Value, column: Column, dialect: str) -> Value:
    _refuse(value, column.type, (*TIME_TYPES, S.BINARY, S.JSON, S.UUID))
    if value.type is S.BOOLEAN:
        return value.become(_bit(value.sql), S.INTEGER)
    if value.type is not S.TEXT and dialect == "sqlite":
        return value.read_as(sql_func("double", dialect, x=value.sql), S.FLOAT, failing=True)
    if value.type is not S.TEXT:
        return value.become(sql_func("double", dialect, x=value.sql), S.FLOAT) if value.type is S.DECIMAL else value
    limit = exp.Literal.number(MAX_FLOAT32 if column.type.kind == "float" else MAX_FLOAT64)
    read = sql_func("double", dialect, x=value.sql)
    size = exp.func("ABS", fill("CAST(x AS DECIMAL)", dialect, x=value.sql) if dialect == "postgres" else read.copy())
    fits: exp.Expr = exp.LTE(this=size, expression=limit)
    if dialect == "postgres":
        # PostgreSQL raises for a number too small for a double instead of giving zero.
        visible = exp.GT(this=size.copy(), expression=exp.Literal.number(MIN_FLOAT64))
        fits = both(fits, exp.or_(visible, exp.EQ(this=size.copy(), expression=number(0))))
    spelled = _spelled(value.sql, _DOUBLE_TEXT, _LONGEST_NUMBER, dialect)
    guarded = case((spelled, case((fits, read))))
    return value.read_as(guarded, S.FLOAT, failing=True)


def _to_boolean(value: Value, column: Column, dialect: str) -> Value:
    _refuse(value, column.type, (*TIME_TYPES, S.BINARY, S.JSON, S.UUID))
    if value.type is S.BOOLEAN and dialect != "sqlite":
        return value
    if value.type in NUMBERS or value.type is S.BOOLEAN:
        one = exp.EQ(this=value.sql, expression=number(1))
        zero = exp.EQ(this=value.sql.copy(), expression=number(0))
        return value.read_as(case((one, exp.true()), (zero, exp.false())), S.BOOLEAN, failing=True)
    return read_boolean(value, TRUE_TEXTS, FALSE_TEXTS, dialect, failing=True)


def _to_timestamp(value: Value, column: Column, target_type: SourceType, dialect: str) -> Value:
    _refuse(value, column.type, (*NUMBERS, S.BOOLEAN, S.BINARY, S.JSON, S.UUID))
    if value.type is S.TEXT:
        return read_timestamp(value, target_type, dialect, failing=True)
    return convert_timestamp(value, target_type, dialect)


def read_timestamp(value: Value, target_type: SourceType, dialect: str, *, failing: bool) -> Value:
    """Return ISO text as a point in time of the requested family."""
    if target_type is S.DATE:
        return value.read_as(day(value.sql, ISO_DATE, dialect), S.DATE, failing=failing)
    time = parse_timestamp(value.sql, ISO_TIMESTAMP, dialect)
    return convert_timestamp(value.read_as(time, S.TIMESTAMP, failing=failing), target_type, dialect)


def convert_timestamp(value: Value, target_type: SourceType, dialect: str) -> Value:
    """Return a point in time in another family; UTC replaces a missing zone."""
    if value.type is target_type or value.type not in TIME_TYPES:
        return value
    sql = value.sql
    if value.type is S.TIMESTAMP_TZ:
        sql = sql_func("utc", dialect, x=sql)
    elif value.type is S.DATE:
        sql = sql_func("midnight", dialect, x=sql)
    if target_type is S.DATE:
        return value.become(sql_func("day", dialect, x=sql), target_type)
    return value.become(sql_func("instant", dialect, x=sql) if target_type is S.TIMESTAMP_TZ else sql, target_type)


def _to_opaque(value: Value, column: Column, dialect: str) -> Value:
    """Return JSON, UUID or bytes."""
    kind = column.type.kind
    if kind == "bytes":
        _refuse(value, column.type, (*TIME_TYPES, *NUMBERS, S.BOOLEAN, S.UUID))
        return value if value.type is S.BINARY else value.become(sql_func("bytes", dialect, x=value.sql), S.BINARY)
    _refuse(value, column.type, (*TIME_TYPES, *NUMBERS, S.BOOLEAN, S.BINARY))
    if kind == "uuid":
        if value.type is S.UUID:
            return value
        read = sql_func("uuid", dialect, x=value.sql)
        return value.read_as(case((matches(value.sql, _UUID_TEXT, dialect), read)), S.UUID, failing=True)
    if value.type is S.JSON:
        return value
    if dialect == "postgres":
        # PostgreSQL 15 cannot test whether a text is JSON; its own cast stops the load with the reason.
        return value.become(fill(f"CAST(x AS {kind.upper()})", dialect, x=value.sql), S.JSON)
    return value.read_as(case((sql_func("valid_json", dialect, x=value.sql), value.sql.copy())), S.JSON, failing=True)


def _decimal(sql: exp.Expr, precision: int, scale: int, dialect: str) -> exp.Expr:
    """Return a number or its text as a decimal, rounded half away from zero; NULL when it has too many digits."""
    match dialect:
        case "duckdb" | "spark":
            return fill(f"TRY_CAST(x AS DECIMAL({precision}, {scale}))", dialect, x=sql)
        case "mysql":
            wide = fill(f"CAST(x AS DECIMAL(65, {min(scale + 1, 30)}))", dialect, x=sql)
        case _:
            wide = fill("CAST(x AS DECIMAL)", dialect, x=sql)
    rounded = exp.func("ROUND", wide, number(scale))
    limit = exp.Literal.number("1" + "0" * (precision - scale))
    fits = exp.LT(this=exp.func("ABS", rounded), expression=limit)
    return case((fits, fill(f"CAST(x AS DECIMAL({precision}, {scale}))", dialect, x=rounded.copy())))


def _spelled(text: exp.Expr, pattern: str, longest: int, dialect: str) -> exp.Expr:
    """Return the condition that a text is spelled like a number of bearable length."""
    short = exp.LTE(this=sql_func("length", dialect, x=text), expression=number(longest))
    return both(short, matches(text, pattern, dialect))


def _within(sql: exp.Expr, bits: int) -> exp.Expr:
    """Return the condition that a number fits a signed integer, with bounds that a double can hold."""
    low = exp.GTE(this=sql.copy(), expression=_lowest(bits))
    return both(low, exp.LT(this=sql.copy(), expression=number(2 ** (bits - 1))))


def _lowest(bits: int) -> exp.Expr:
    return number(-(2 ** (bits - 1)))


def _bit(sql: exp.Expr) -> exp.Expr:
    return case((sql, number(1)), (exp.Not(this=sql.copy()), number(0)))


def _text_literal(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def _refuse(value: Value, declared: ColumnType, families: tuple[SourceType, ...]) -> None:
    if value.type in families:
        raise PlanError(
            f"a {value.type} of the source cannot become {declared}",
            hint="say how with sql('...') or derive('...') on the column, or change the source query",
        )
