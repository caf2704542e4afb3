"""Reads CSV exactly: bad quoting refuses the file, a row of another width or encoding is told apart; nothing is guessed.

A file is cut into whole records by one regular expression, which finds quotes that do not belong, and pyarrow splits
the records into fields. An empty field is NULL, a quoted empty field is an empty text.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any

from ematix_flow.connect.file_rows import BOM, LONGEST_RECORD, NOT_UTF8, Rows, naming, open_bytes
from ematix_flow.errors import DeclareError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

BLOCK = 8 << 20


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    """The quote itself when quotes are doubled."""
    comment: str = ""
    header: bool = True
    null_regex: str = ""
    pads_short_rows: bool = False
    terminator: str = ""
    """The one character that ends a record; empty where lines do."""

    @property
    def ends(self) -> tuple[bytes, ...]:
        """Give what a record may end with."""
        return (self.terminator.encode(),) if self.terminator else (b"\n", b"\r")


LINE_ENDS = (None, "", "\n", "\r\n", "\r")
"""Terminators that are recognised without being said."""


def dialect_of(path: str, options: Mapping[str, Any]) -> Dialect:
    """Give the dialect that the options of a connection and the name of the file say."""
    quote, terminator = str(options.get("quote") or '"'), options.get("terminator")
    dialect = Dialect(
        delimiter=str(options.get("delimiter") or ("\t" if ".tsv" in path else ",")),
        quote=quote,
        escape=str(options.get("escape") or quote),
        comment=str(options.get("comment") or ""),
        header=options.get("has_header", True) is not False,
        null_regex=str(options.get("null_regex") or ""),
        pads_short_rows=bool(options.get("truncated_rows_ok")),
        terminator="" if terminator in LINE_ENDS else str(terminator),
    )
    _check(dialect)
    return dialect


def _check(dialect: Dialect) -> None:
    """Refuse characters that are none, and a terminator that means something else too."""
    for name in ("delimiter", "quote", "escape", "comment", "terminator"):
        character = getattr(dialect, name)
        if character and (len(character) != 1 or not character.isascii() or character in "\r\n"):
            message = f"csv_read_options: {name} {character!r} is not one ASCII character"
            raise DeclareError(message)
    same = [n for n in ("delimiter", "quote", "escape", "comment") if getattr(dialect, n) == dialect.terminator != ""]
    if same:
        message = f"csv_read_options: terminator and {same[0]} are the same character {dialect.terminator!r}"
        raise DeclareError(message)


def header_of(path: str, dialect: Dialect) -> tuple[str, ...] | None:
    """Give the names of a file's columns, made up where it has no header; None for a file without a record."""
    with open_bytes(path) as stream:
        first = next(_records(stream, path, dialect, 64 << 10), None)
    if first is None:
        return None
    found = _grammar(dialect).record.match(first)
    assert found is not None  # noqa: S101 - the chunk consists of records
    try:
        fields = _fields(_in_lines(found.group(), dialect).decode(), dialect)
    except UnicodeDecodeError:
        message = f"file {path} cannot be read as csv: its first line is not UTF-8"
        raise RunError(message, hint="convert the file to UTF-8.") from None
    return tuple(fields) if dialect.header else tuple(f"_c{index}" for index in range(len(fields)))


def read_rows(path: str, dialect: Dialect) -> Iterator[Rows]:
    """Give the rows of a file, some thousand at a time, under the names of its own header."""
    names = header_of(path, dialect)
    if names is None:
        return
    skip = dialect.header
    with open_bytes(path) as stream:
        for chunk in _records(stream, path, dialect, BLOCK):
            start = _grammar(dialect).record.match(chunk).end() if skip else 0  # type: ignore[union-attr]
            skip = False
            records = chunk[start:] if dialect.terminator else chunk[start:].lstrip(b"\r\n")
            if records:
                yield _split(_in_lines(records, dialect), names, dialect)


@dataclass(frozen=True, slots=True)
class _Grammar:
    record: re.Pattern[bytes]
    records: re.Pattern[bytes]
    comment: re.Pattern[bytes] | None
    field: re.Pattern[bytes]


@lru_cache(maxsize=8)
def _grammar(dialect: Dialect) -> _Grammar:
    quote, escape, end = (re.escape(c.encode()) for c in (dialect.quote, dialect.escape, dialect.delimiter))
    ends = b"".join(re.escape(one) for one in dialect.ends)
    if dialect.escape == dialect.quote:
        inside = b"[^%b]*+(?:%b%b[^%b]*+)*+" % (quote, quote, quote, quote)
        plain = b"[^%b%b%b][^%b%b]*+" % (quote, end, ends, end, ends)
    else:
        inside = b"[^%b%b]*+(?:%b.[^%b%b]*+)*+" % (quote, escape, escape, quote, escape)
        plain = b"(?:[^%b%b%b%b]|%b.)(?:[^%b%b%b]|%b.)*+" % (
            quote, end, escape, ends, escape, end, escape, ends, escape,
        )  # fmt: skip
    field = b"(?:%b%b%b|%b)?+" % (quote, inside, quote, plain)
    line_end = ends if dialect.terminator else b"(?:\r\n|\n|\r)"
    record = b"%b(?:%b%b)*+%b" % (field, end, field, line_end)
    comment = b"%b[^%b]*+%b" % (re.escape(dialect.comment.encode()), ends, line_end) if dialect.comment else b""
    record = b"(?:%b|%b)" % (comment, record) if comment else record
    made = [re.compile(pattern, re.DOTALL) for pattern in (record, b"(?:%b)*+" % record, field)]
    return _Grammar(made[0], made[1], re.compile(comment) if comment else None, made[2])


def _in_lines(chunk: bytes, dialect: Dialect) -> bytes:
    """Give whole records as lines; what was no end of a line before is put into quotes."""
    if not dialect.terminator:
        return chunk
    found = _grammar(dialect).record.finditer(chunk)
    return b"".join(_line(match.group()[:-1], dialect) + b"\n" for match in found)


def _line(record: bytes, dialect: Dialect) -> bytes:
    if b"\n" not in record and b"\r" not in record:
        return record
    quote, escape = dialect.quote.encode(), dialect.escape.encode()
    place, fields = 0, []
    while place <= len(record):
        found = _grammar(dialect).field.match(record, place)
        text = found.group() if found is not None else b""
        place += len(text) + 1
        plain = not text.startswith(quote) and (b"\n" in text or b"\r" in text)
        fields.append(quote + text.replace(quote, escape + quote) + quote if plain else text)
    return dialect.delimiter.encode().join(fields)


def _records(stream: IO[bytes], path: str, dialect: Dialect, size: int) -> Iterator[bytes]:
    """Cut a file into chunks of whole records, without the byte order mark, blank beginnings and comments."""
    grammar, rest, line, started = _grammar(dialect), b"", 1, False
    while True:
        with naming(path):
            block = stream.read(max(size, len(rest)))
        data = rest + block
        if not started:
            started, data = True, data.removeprefix(BOM)
        data = data if block else _finished(data, dialect)
        end = _end_of_records(data, dialect, grammar)
        whole, rest = data[:end], data[end:]
        line += _lines(whole, dialect)
        if rest and (not block or len(rest) > LONGEST_RECORD):
            message = f"file {path} cannot be read as csv: the quotes of the record at line {line} do not match"
            raise RunError(message, hint="a quote inside a quoted field is written twice; nothing was loaded.")
        whole = _without_comments(whole, grammar)
        whole = whole if dialect.terminator else whole.lstrip(b"\r\n")
        if whole:
            yield whole
        if not block:
            return


def _finished(rest: bytes, dialect: Dialect) -> bytes:
    """Give the end of a file with the end of its last record; the line end that editors put behind that is no record."""
    if dialect.terminator and not rest.strip(b"\r\n"):
        return b""
    return rest if not rest or rest.endswith(dialect.ends) else rest + dialect.ends[0]


def _lines(whole: bytes, dialect: Dialect) -> int:
    if dialect.terminator:
        return whole.count(dialect.ends[0])
    return whole.count(b"\n") + (whole.count(b"\r") - whole.count(b"\r\n") if b"\r" in whole else 0)


def _end_of_records(data: bytes, dialect: Dialect, grammar: _Grammar) -> int:
    """Give where the whole records of some bytes end; without a quote every line is one."""
    special = {dialect.quote.encode(), dialect.escape.encode()}
    if any(character in data for character in special):
        return grammar.records.match(data).end()  # type: ignore[union-attr]
    return max(data.rfind(end) for end in dialect.ends) + 1


def _without_comments(chunk: bytes, grammar: _Grammar) -> bytes:
    if grammar.comment is None:
        return chunk
    found = (match.group() for match in grammar.record.finditer(chunk))
    return b"".join(record for record in found if not grammar.comment.fullmatch(record))


def _fields(record: str, dialect: Dialect) -> list[str]:
    doubled = dialect.escape == dialect.quote
    csv.field_size_limit(LONGEST_RECORD)
    reader = csv.reader(
        [record],
        delimiter=dialect.delimiter,
        quotechar=dialect.quote,
        doublequote=doubled,
        escapechar=None if doubled else dialect.escape,
    )
    return next(reader)


def _split(chunk: bytes, names: Sequence[str], dialect: Dialect) -> Rows:
    """Split whole records into fields."""
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return _split_undecoded(chunk, names, dialect)
    table, odd = _parse_padded(chunk, names, dialect, "utf8")
    bad = tuple((row.text, dict.fromkeys(names)) for row in odd)
    return Rows(_with_nulls(table, dialect), bad)


def _parse_padded(chunk: bytes, names: Sequence[str], dialect: Dialect, encoding: str) -> tuple[pa.Table, list[Any]]:
    """Give the rows and those of another width; short ones are filled up where the dialect says so."""
    table, odd = _parse(chunk, names, dialect, encoding)
    short = [row for row in odd if dialect.pads_short_rows and row.actual_columns < row.expected_columns]
    if short:
        padded = [row.text + dialect.delimiter * (row.expected_columns - row.actual_columns) + "\n" for row in short]
        table = _joined(table, _parse("".join(padded).encode(encoding), names, dialect, encoding)[0])
    return table, [row for row in odd if row not in short]


def _split_undecoded(chunk: bytes, names: Sequence[str], dialect: Dialect) -> Rows:
    """Split records of which some are not UTF-8: each byte stands for itself until the fields are known."""
    import pyarrow as pa

    table, odd = _parse_padded(chunk, names, dialect, "latin1")
    good: list[dict[str, str | None]] = []
    bad = [(_readable(row.text), dict.fromkeys(names)) for row in odd]
    for row in table.to_pylist():
        try:
            good.append({name: None if v is None else v.encode("latin1").decode() for name, v in row.items()})
        except UnicodeDecodeError:
            shown = {name: None if v is None else _readable(v) for name, v in row.items()}
            said = dialect.delimiter.join(value or "" for value in shown.values())
            bad.append((NOT_UTF8 + said, shown))
    fitting = pa.Table.from_pylist(good, schema=table.schema)
    return Rows(_with_nulls(fitting, dialect), tuple(bad))


def _readable(text: str) -> str:
    return text.encode("latin1").decode(errors="backslashreplace")


def _parse(chunk: bytes, names: Sequence[str], dialect: Dialect, encoding: str) -> tuple[pa.Table, list[Any]]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    odd: list[Any] = []

    def set_aside(row: Any) -> str:
        odd.append(row)
        return "skip"

    doubled = dialect.escape == dialect.quote
    table = arrow_csv.read_csv(
        pa.BufferReader(chunk),
        read_options=arrow_csv.ReadOptions(
            column_names=list(names), block_size=len(chunk) + 1, use_threads=False, encoding=encoding
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=dialect.delimiter,
            quote_char=dialect.quote,
            double_quote=doubled,
            escape_char=False if doubled else dialect.escape,
            newlines_in_values=True,
            invalid_row_handler=set_aside,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return table, odd


def _joined(first: pa.Table, second: pa.Table) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables([first, second])


def _with_nulls(table: pa.Table, dialect: Dialect) -> pa.Table:
    """Give the table with NULL where a value looks like the spelling of NULL."""
    if not dialect.null_regex:
        return table
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar(None, pa.string())
    columns = [pc.if_else(pc.match_substring_regex(c, dialect.null_regex), nothing, c) for c in table.columns]
    return pa.table(columns, names=table.column_names)
