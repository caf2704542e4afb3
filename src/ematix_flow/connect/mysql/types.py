"""Types of MySQL: how a declaration spells them, how the catalog shows them and how Arrow carries them.

Both kinds of timestamp are DATETIME(6) in UTC: MySQL's own TIMESTAMP ends in 2038. So a table does not distinguish
them, and drift between the two is not seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from pymysql.constants import FIELD_TYPE as CODE

from ematix_flow.connect.types.fingerprint import shortest
from ematix_flow.errors import PlanError

if TYPE_CHECKING:
    from ematix_flow.connect.mysql.protocol import Field
    from ematix_flow.declare.table.types import ColumnType

KEY_LENGTH = 255
"""Length of unbounded text and bytes in a key: an index cannot hold more."""
LONGEST_VARCHAR = 16_383
"""A row has 65,535 bytes, and a character up to four."""
ARROW_DIGITS = 38
_DIGITS, _DECIMALS = 65, 30

_PLAIN = {
    "small_int": "SMALLINT",
    "integer": "INT",
    "big_int": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "TINYINT(1)",
    "json": "JSON",
    "jsonb": "JSON",
    "uuid": "CHAR(36)",
    "date": "DATE",
    "timestamp": "DATETIME(6)",
    "timestamp_tz": "DATETIME(6)",
}

_LADDERS = (
    ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"),
    ("FLOAT", "DOUBLE"),
    ("TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
    ("TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"),
    ("DATETIME", "DATETIME(3)", "DATETIME(6)"),
)

_INTEGERS = (CODE.TINY, CODE.SHORT, CODE.INT24, CODE.LONG, CODE.LONGLONG, CODE.YEAR)
_DECIMAL_CODES = (CODE.DECIMAL, CODE.NEWDECIMAL)
_TEXTS = (
    CODE.VARCHAR, CODE.VAR_STRING, CODE.STRING, CODE.TINY_BLOB, CODE.BLOB, CODE.MEDIUM_BLOB, CODE.LONG_BLOB,
    CODE.ENUM, CODE.SET,
)  # fmt: skip


def ddl_type(column_type: ColumnType, *, in_key: bool) -> str:
    """Return the type of a declared column."""
    kind = column_type.kind
    if kind == "numeric":
        return _decimal(getattr(column_type, "precision", 0), getattr(column_type, "scale", 0))
    if kind == "string":
        length = getattr(column_type, "length", 0)
        return f"VARCHAR({length})" if length <= LONGEST_VARCHAR else "LONGTEXT"
    if kind == "text":
        return f"VARCHAR({KEY_LENGTH})" if in_key else "LONGTEXT"
    if kind == "bytes":
        return f"VARBINARY({KEY_LENGTH})" if in_key else "LONGBLOB"
    return _PLAIN[kind]


def _decimal(precision: int, scale: int) -> str:
    if precision > _DIGITS or scale > _DECIMALS:
        message = f"Numeric[{precision}, {scale}] has more digits than MySQL can store"
        raise PlanError(message, hint=f"at most {_DIGITS} digits, {_DECIMALS} of them after the point.")
    return f"DECIMAL({precision},{scale})"


def reflected(native: str, *, is_json: bool) -> str:
    """Return a type of the catalog as `ddl_type` writes it; MariaDB still shows a width for integers."""
    if is_json:
        return "JSON"
    spelled = native.upper() if not native.lower().startswith(("enum", "set")) else native
    if spelled == "TINYINT(1)":
        return spelled
    return re.sub(r"^((?:TINY|SMALL|MEDIUM|BIG)?INT)\(\d+\)", r"\1", spelled)


def widens(existing: str, declared: str) -> bool:
    """Return whether every value of one type fits the other."""
    for ladder in _LADDERS:
        if existing in ladder and declared in ladder:
            return ladder.index(existing) < ladder.index(declared)
    for pattern, long in ((r"(?:VAR)?CHAR\((\d+)\)", "LONGTEXT"), (r"(?:VAR)?BINARY\((\d+)\)", "LONGBLOB")):
        old, new = re.fullmatch(pattern, existing), re.fullmatch(pattern, declared)
        if old and (declared == long or (new and declared.startswith("VAR") and int(new[1]) > int(old[1]))):
            return True
    sizes = [re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", text) for text in (existing, declared)]
    if not (sizes[0] and sizes[1]):
        return False
    (p1, s1), (p2, s2) = ((int(m[1]), int(m[2])) for m in sizes if m)
    return existing != declared and s2 >= s1 and p2 - s2 >= p1 - s1


def lasting(native: str, name: str) -> str:
    """Return the hash of a value, which survives a wider type and distinguishes NULL from every value."""
    if native == "FLOAT":
        name = f"CAST({name} AS DOUBLE)"
    elif native.startswith("DECIMAL"):
        name = shortest(f"CAST({name} AS CHAR)")
    return f"COALESCE(MD5({name}), '-')"


def family(field: Field) -> str:
    """Return the family of a result column.

    TINYINT(1) is an integer: it may hold 5, and a boolean would turn that into true.
    """
    if field.code in _INTEGERS:
        return "decimal" if field.unsigned and field.code == CODE.LONGLONG else "integer"
    if field.code in _DECIMAL_CODES:
        return "decimal"
    if field.code == CODE.BIT:
        return "boolean" if field.length == 1 else "decimal"
    if field.code in _TEXTS:
        return "binary" if field.binary else "text"
    return {
        CODE.FLOAT: "float",
        CODE.DOUBLE: "float",
        CODE.DATE: "date",
        CODE.NEWDATE: "date",
        CODE.DATETIME: "timestamp",
        CODE.TIMESTAMP: "timestamp_tz",
        CODE.JSON: "json",
        CODE.NULL: "text",
    }.get(field.code, "other")


def described(field: Field) -> str:
    """Return the type of a result column as far as the server describes it: of numbers their digits, else the protocol's code."""
    if field.code in _DECIMAL_CODES:
        return f"DECIMAL({_digits(field)},{field.scale})"
    return "DECIMAL(20,0)" if family(field) == "decimal" else f"type {field.code}"


def _digits(field: Field) -> int:
    return field.length - (field.scale > 0) - (not field.unsigned)


def exact(field: Field, expression: str) -> str:
    """Return the expression that shows a column without loss in the text protocol."""
    if field.code == CODE.FLOAT:
        # The text of a FLOAT has six digits; as a DOUBLE it has all of them.
        return f"CAST({expression} AS DOUBLE)"
    if field.code == CODE.GEOMETRY:
        return f"ST_AsText({expression})"
    return expression


def arrow_type(field: Field) -> pa.DataType:  # noqa: PLR0911 - one line per type
    """Return the Arrow type in which a result column is read."""
    if field.code in _DECIMAL_CODES:
        # Wider numbers stay text, which every consumer can still read exactly.
        return pa.decimal128(ARROW_DIGITS, field.scale) if _digits(field) <= ARROW_DIGITS else pa.string()
    match family(field):
        case "integer":
            return pa.int64()
        case "decimal":
            return pa.decimal128(20, 0)
        case "float":
            return pa.float64()
        case "boolean":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "timestamp":
            return pa.timestamp("us")
        case "timestamp_tz":
            return pa.timestamp("us", tz="UTC")
        case "binary":
            return pa.binary()
        case _:
            return pa.string()
