"""Statements in the binary log, which stand there instead of rows: what their text says of the tables that they change.

It is no parser of SQL. A statement of which it cannot tell the tables is one that may change any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.change_log.tables import TableId

if TYPE_CHECKING:
    from collections.abc import Collection

_NAME = r'`(?:[^`]|``)+`|"(?:[^"]|"")+"|[\w$]+'
_TABLE = rf"(?:(?P<schema>{_NAME})\s*\.\s*)?(?P<table>{_NAME})"
_TEXT = r"'(?:[^'\\]++|\\.|'')*+'"
_STRING = rf'{_TEXT}|"(?:[^"\\]++|\\.|"")*+"'
_OUTSIDE = re.compile(
    rf"(?P<quoted>{_STRING}|`(?:[^`]|``)*`)|/\*M?!\d*(?P<run>.*?)\*/|/\*.*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*", re.DOTALL
)
"""What may hide a word: quotes, comments that the server runs, and other comments."""
_PREFIX = re.compile(rf"SET\s+STATEMENT\s(?:{_STRING}|[^'\"])*?\sFOR\s+", re.IGNORECASE | re.DOTALL)
_END = r"\s*;?\s*"


def _pattern(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.IGNORECASE | re.DOTALL)


_EMPTIES = (
    _pattern(rf"TRUNCATE\b\s*(?:TABLE\b\s*)?{_TABLE}(?:\s+WAIT\s+\d+|\s+NOWAIT)?{_END}"),
    _pattern(rf"DELETE\s+FROM\s+{_TABLE}{_END}"),
)
_CREATES = _pattern(rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b\s*(?!IF\s+NOT\s+EXISTS\b){_TABLE}(?![\w$]).*")
"""A table that was not there, or is none any more: it begins without rows."""
_WRITES = (
    _pattern(
        r"(?:INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE)\s+)*(?:INTO\s+)?"
        + _TABLE
        + r"(?!\s*\.).*"
    ),
    _pattern(
        r"UPDATE\s+(?:(?:LOW_PRIORITY|IGNORE)\s+)*"
        + _TABLE
        + rf"(?:\s+AS\s+(?:{_NAME})|\s+(?!SET\b)(?:{_NAME}))?\s+SET\b.*"
    ),
    _pattern(
        r"DELETE\s+(?:(?:LOW_PRIORITY|QUICK|IGNORE)\s+)*FROM\s+"
        + _TABLE
        + r"(?:\s+(?:WHERE|ORDER|LIMIT|RETURNING)\b.*)"
    ),
    _pattern(rf"LOAD\s+(?:DATA|XML)\b.*?\bINTO\s+TABLE\s+{_TABLE}.*"),
    _pattern(
        rf"ALTER\s+(?:(?:ONLINE|OFFLINE|IGNORE)\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?{_TABLE}\s.*?"
        r"\b(?:TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT|CONVERT)\s+(?:PARTITION|TABLE|TABLESPACE)\b(?!.*\bWITH\s+TABLE\b).*"
    ),
)
_NAMED = _pattern(r"(?:UPDATE|DELETE|WITH|ALTER\s.*\bEXCHANGE\s+PARTITION)\b.*")
"""Changes some of the tables that it names."""
_DML = _pattern(r"\(|(?:INSERT|REPLACE|UPDATE|DELETE|LOAD|WITH|SELECT|DO|CALL|HANDLER)\b")
_UNTOLD = _pattern(r"(?:TRUNCATE|INSERT|REPLACE|LOAD|SELECT|DO|CALL|HANDLER)\b.*|\(.*")
_TOKEN = _pattern(rf"{_TEXT}|(?P<name>{_NAME})")
_TEXTS = _pattern(_TEXT)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A table that a statement emptied."""

    table: TableId


@dataclass(frozen=True, slots=True)
class Unlogged:
    """Rows that a statement changed, and that the log does not have."""

    kind: str
    """The first word of the statement."""
    tables: tuple[TableId, ...] = ()
    """The tables that it may have changed; none where it may be any."""


Effect = Emptied | Unlogged


def without_comments(statement: str) -> str:
    """Return a statement without comments and settings in front of it; what the server runs of comments stays."""
    bare = _OUTSIDE.sub(lambda match: match["quoted"] or f" {match['run'] or ''} ", statement).strip()
    return _PREFIX.sub("", bare, count=1).strip() if _PREFIX.match(bare) else bare


def changes_rows(bare: str) -> bool:
    """Return whether a statement without comments is one that changes rows within a transaction, and does not end it."""
    return _DML.match(bare) is not None


def effect_on(chosen: Collection[TableId], bare: str, schema: str) -> Effect | None:
    """Return what a statement without comments does to tables beyond what rows in the log say; None where it does nothing."""
    kind = bare.split(None, 1)[0].upper() if bare else ""
    bare = _TEXTS.sub("''", bare)  # what is said in them is no SQL
    for pattern in (*_EMPTIES, *_WRITES):
        match = pattern.fullmatch(bare)
        if match is not None:
            table = TableId(_unquoted(match["schema"] or schema), _unquoted(match["table"]))
            if table in chosen and pattern in _EMPTIES:
                return Emptied(table)
            # Whether names differ by case depends on the server, so such a statement is none that empties.
            same = tuple(one for one in chosen if _folded(one) == _folded(table))
            return Unlogged(kind, same) if same else None
    created = _CREATES.fullmatch(bare)
    if created is not None:
        table = TableId(_unquoted(created["schema"] or schema), _unquoted(created["table"]))
        return Emptied(table) if table in chosen else None
    if _NAMED.fullmatch(bare):
        names = {_unquoted(match["name"]).casefold() for match in _TOKEN.finditer(bare) if match["name"]}
        named = tuple(one for one in chosen if one.name.casefold() in names)
        return Unlogged(kind, named) if named else None
    return Unlogged(kind) if _UNTOLD.fullmatch(bare) else None


def _folded(table: TableId) -> tuple[str, str]:
    return table.schema.casefold(), table.name.casefold()


def _unquoted(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name
