"""Reads CSV exactly: bad quoting refuses the file, a row of another width or encoding is reported; nothing is guessed.

Records are found first, and with them quotes that do not belong; pyarrow splits them into fields. An empty field is NULL, a quoted empty field is an empty text.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.formats.csv_records import WHOLE, Dialect, bare_escapes_of, grammar_of, records_of
from ematix_flow.connect.formats.text import LONGEST_RECORD, NOT_UTF8, ParsedRows
from ematix_flow.declare.connection.file_names import has_tabs
from ematix_flow.errors import DeclareError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.formats.csv_records import ByteRange

LINE_ENDS = (None, "", "\n", "\r\n", "\r")
"""Terminators that are recognised without being configured."""


def dialect_of(path: str, options: Mapping[str, Any]) -> Dialect:
    """Return the dialect from the options of a connection and the name of the file."""
    quote, terminator = str(options.get("quote") or '"'), options.get("terminator")
    dialect = Dialect(
        delimiter=str(options.get("delimiter") or ("\t" if has_tabs(path) else ",")),
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
    """Return the names of a file's columns, made up where it has no header; None for a file without a record."""
    first = next(records_of(path, dialect, size=64 << 10), None)
    if first is None:
        return None
    match = grammar_of(dialect).record.match(first)
    assert match is not None  # noqa: S101 - the chunk consists of records
    try:
        fields = _fields(_in_lines(match.group(), dialect).decode(), dialect)
    except UnicodeDecodeError:
        message = f"file {path} cannot be read as csv: its first line is not UTF-8"
        raise RunError(message, hint="convert the file to UTF-8.") from None
    return tuple(fields) if dialect.header else tuple(f"_c{index}" for index in range(len(fields)))


def read_rows(path: str, dialect: Dialect, byte_range: ByteRange = WHOLE) -> Iterator[ParsedRows]:
    """Return the rows of a file or of a part of it, some thousand at a time, under the names of its own header."""
    names = header_of(path, dialect)
    if names is None:
        return
    skip = dialect.header and not byte_range.start
    for chunk in records_of(path, dialect, byte_range):
        start = grammar_of(dialect).record.match(chunk).end() if skip else 0  # type: ignore[union-attr]
        skip = False
        records = chunk[start:] if dialect.terminator else chunk[start:].lstrip(b"\r\n")
        if records:
            yield _split(_in_lines(_with_null_spelling(records, dialect), dialect), names, dialect)


def _with_null_spelling(records: bytes, dialect: Dialect) -> bytes:
    r"""Return records in which a bare field that is the spelling of NULL, such as `\N`, keeps what would be an escape."""
    escape = dialect.escape.encode()
    if not dialect.null_regex or dialect.escape == dialect.quote or escape not in records:
        return records
    # Nothing but the fields with an escape is handled in Python: a block has a million fields.
    parts = bare_escapes_of(dialect).split(records)
    ends = (dialect.delimiter.encode(), *dialect.ends)
    known = frozenset((b"", *ends))
    fields = [
        rest if before[-1:] in known else before[max(map(before.rfind, ends)) + 1 :] + rest
        for before, rest in zip(parts[1::3], parts[2::3], strict=True)
    ]
    nulls = _meaning_null(set(fields), dialect.null_regex)
    # An escape in front of what ends a field is one, even where a loose pattern finds NULL in the field.
    parting = (*ends, dialect.quote.encode())
    retained = {
        field: field[field.find(escape) :].replace(escape, escape * 2)
        for field in nulls
        if escape in field and not any(one in field for one in parting)
    }
    if not retained:
        return records
    parts[2::3] = [retained.get(field, rest) for field, rest in zip(fields, parts[2::3], strict=True)]
    return b"".join(parts)


def _meaning_null(fields: Iterable[bytes], null_regex: str) -> list[bytes]:
    import pyarrow as pa
    import pyarrow.compute as pc

    several = list(fields)
    texts = pa.array([field.decode(errors="replace") for field in several], pa.string())
    return [several[index] for index in pc.indices_nonzero(pc.match_substring_regex(texts, null_regex)).to_pylist()]


def _in_lines(chunk: bytes, dialect: Dialect) -> bytes:
    """Return whole records as lines; what was no end of a line before is put into quotes."""
    if not dialect.terminator:
        return chunk
    matches = grammar_of(dialect).record.finditer(chunk)
    return b"".join(_line(match.group()[:-1], dialect) + b"\n" for match in matches)


def _line(record: bytes, dialect: Dialect) -> bytes:
    if b"\n" not in record and b"\r" not in record:
        return record
    quote, escape = dialect.quote.encode(), dialect.escape.encode()
    offset, fields = 0, []
    while offset <= len(record):
        match = grammar_of(dialect).field.match(record, offset)
        text = match.group() if match is not None else b""
        offset += len(text) + 1
        plain = not text.startswith(quote) and (b"\n" in text or b"\r" in text)
        fields.append(quote + text.replace(quote, escape + quote) + quote if plain else text)
    return dialect.delimiter.encode().join(fields)


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


def _split(chunk: bytes, names: Sequence[str], dialect: Dialect) -> ParsedRows:
    """Split whole records into fields."""
    try:
        chunk.decode()
    except UnicodeDecodeError:
        return _split_undecoded(chunk, names, dialect)
    table, odd = _parse_padded(chunk, names, dialect, "utf8")
    bad = tuple((row.text, dict.fromkeys(names)) for row in odd)
    return ParsedRows(_with_nulls(table, dialect), bad)


def _parse_padded(chunk: bytes, names: Sequence[str], dialect: Dialect, encoding: str) -> tuple[pa.Table, list[Any]]:
    """Return the rows and those of another width; short ones are filled up where the dialect says so."""
    table, odd = _parse(chunk, names, dialect, encoding)
    short = [row for row in odd if dialect.pads_short_rows and row.actual_columns < row.expected_columns]
    if short:
        padded = [row.text + dialect.delimiter * (row.expected_columns - row.actual_columns) + "\n" for row in short]
        filled, _ = _parse("".join(padded).encode(encoding), names, dialect, encoding)
        table = _in_order(table, filled, {row.number - 1 for row in odd}, [row.number - 1 for row in short])
    return table, [row for row in odd if row not in short]


def _split_undecoded(chunk: bytes, names: Sequence[str], dialect: Dialect) -> ParsedRows:
    """Split records of which some are not UTF-8: each byte stands for itself until the fields are known."""
    import pyarrow as pa

    table, odd = _parse_padded(chunk, names, dialect, "latin1")
    good: list[dict[str, str | None]] = []
    bad = [(_readable(row.text), dict.fromkeys(names)) for row in odd]
    for row in table.to_pylist():
        try:
            good.append({name: None if v is None else v.encode("latin1").decode() for name, v in row.items()})
        except UnicodeDecodeError:
            fields = {name: None if v is None else _readable(v) for name, v in row.items()}
            text = dialect.delimiter.join(value or "" for value in fields.values())
            bad.append((NOT_UTF8 + text, fields))
    fitting = pa.Table.from_pylist(good, schema=table.schema)
    return ParsedRows(_with_nulls(fitting, dialect), tuple(bad))


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
            # One block, or pyarrow loses half of a line end inside quotes; a byte of Latin-1 is up to two of UTF-8.
            column_names=list(names),
            block_size=2 * len(chunk) + 1,
            use_threads=False,
            encoding=encoding,
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


def _in_order(whole: pa.Table, filled: pa.Table, odd: set[int], row_numbers: Sequence[int]) -> pa.Table:
    """Return rows in the order of their records: of two rows for one key the last one counts."""
    import pyarrow as pa

    of_whole = (number for number in range(whole.num_rows + len(odd)) if number not in odd)
    row_order = [*of_whole, *row_numbers]
    return pa.concat_tables([whole, filled]).take(sorted(range(len(row_order)), key=row_order.__getitem__))


def _with_nulls(table: pa.Table, dialect: Dialect) -> pa.Table:
    """Return the table with NULL where a value is the spelling of NULL."""
    if not dialect.null_regex:
        return table
    import pyarrow as pa
    import pyarrow.compute as pc

    nothing = pa.scalar(None, pa.string())
    columns = [pc.if_else(pc.match_substring_regex(c, dialect.null_regex), nothing, c) for c in table.columns]
    return pa.table(columns, names=table.column_names)
