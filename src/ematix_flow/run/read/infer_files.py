"""Files as rows with the types that their values show, for those who know no columns before: SQL and new tables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.base.stream_source import MESSAGE_OFFSET, UNREADABLE, VALUE, MessagePartition
from ematix_flow.connect.formats.json_lines import lines_of
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.plan.columns import CORRUPT, POSITION
from ematix_flow.run.read.file_partitions import split_files
from ematix_flow.run.read.infer_messages import WIDE, TypedRows, json_payload, typed_rows
from ematix_flow.run.stage.raw_json import json_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.files.source import FileSet

_LARGEST = str(2**63 - 1)
_DIGITS_19 = "|".join(
    f"{_LARGEST[:place]}[{0 if place else 1}-{int(digit) - 1}][0-9]{{{18 - place}}}"
    for place, digit in enumerate(_LARGEST)
    if digit != "0"
)
"""Whole numbers of as many digits as the largest one of 64 bits that are smaller than it."""

WHOLE = rf"^(-?(0|[1-9][0-9]{{0,17}}|{_DIGITS_19}|{_LARGEST})|-{2**63})$"
WHOLE_WIDE = r"^-?(0|[1-9][0-9]{0,37})$"
BROKEN = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
TRUTH = r"^(true|false)$"
"""How a text must be written to be a value: one like 007 is none."""

VALUE_PATTERNS = ((WHOLE, pa.int64()), (WHOLE_WIDE, WIDE), (BROKEN, pa.float64()), (TRUTH, pa.bool_()))
"""What texts may show, the first that all of them do."""

LINES = 10_000
"""Lines of JSON that are read at a time."""


def file_rows(files: FileSet, *, infer_values: bool) -> TypedRows:
    """Return the rows of files; with `shown` the texts of CSV become the values that they show."""
    if files.format == "json_lines":
        return typed_rows(line_partitions(files), json_payload, ())
    tables = [table for partition in split_files(files) for table in partition.read()]
    if files.format != "csv":
        whole = pa.concat_tables(tables)
        return TypedRows(whole.drop_columns([POSITION]), positions=whole.column(POSITION))
    rows, bad, positions = _apart(pa.concat_tables(tables))
    if infer_values:
        for number, field in enumerate(rows.schema):
            rows = rows.set_column(number, field.name, valued(rows.column(number)))
    return TypedRows(rows, bad, positions)


def line_partitions(files: FileSet) -> list[MessagePartition]:
    """Return files of JSON lines as partitions whose messages are the lines."""
    return [MessagePartition(path, 0, partial(_lines, path)) for path in files.paths]


def valued(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as the numbers or truth values that all of them show, or as they are."""
    for pattern, kind in VALUE_PATTERNS:
        if texts.null_count < len(texts) and pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            return pc.cast(texts, kind)
    return texts


def _lines(path: str) -> Iterator[pa.Table]:
    some: list[bytes] = []
    for line in lines_of(path):
        some.append(line)
        if len(some) == LINES:
            yield _messages(path, some)
            some = []
    if some:
        yield _messages(path, some)


def _messages(path: str, lines: list[bytes]) -> pa.Table:
    columns = {VALUE: pa.array(lines, pa.binary()), MESSAGE_OFFSET: pa.array([path] * len(lines), pa.string())}
    return pa.table(columns)


def _apart(rows: pa.Table) -> tuple[pa.Table, pa.Table | None, pa.ChunkedArray]:
    """Return the rows, the lines that are none as rejects, and where the rows were read."""
    good = pc.is_null(rows.column(CORRUPT))
    wrong = rows.filter(pc.invert(good))
    readable = rows.filter(good)
    rejects = rejected_lines(wrong) if wrong.num_rows else None
    return readable.drop_columns([CORRUPT, POSITION]), rejects, readable.column(POSITION)


def rejected_lines(wrong: pa.Table) -> pa.Table:
    """Return lines that are no rows as rejects."""
    texts = json_rows(wrong.select([CORRUPT]).rename_columns(["line"]), ["line"])
    rows: list[dict[str, Any]] = [
        {"reason": f"malformed line: {line}", "column_name": UNREADABLE, "source_position": path, "row_json": text}
        for line, path, text in zip(
            wrong.column(CORRUPT).to_pylist(), wrong.column(POSITION).to_pylist(), texts, strict=True
        )
    ]
    return pa.Table.from_pylist(rows, schema=REJECTS)
