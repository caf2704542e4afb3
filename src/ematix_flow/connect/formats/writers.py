"""Writers of the file formats: Arrow batches in, bytes out, in the spelling that the readers here take back exactly.

Bytes are hexadecimal digits in text formats, and stay digits when they are read as text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.formats.json_documents import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AS_DIGITS = ("bytes",)
"""Kinds that text files hold as something else than their value: these are read back as hexadecimal digits."""

EXTENSIONS = {"parquet": "parquet", "csv": "csv", "json_lines": "jsonl", "orc": "orc"}

_ESCAPED = r'[\x00-\x1f"\\]'
"""What cannot be in a JSON text as it is."""


class Writer(Protocol):
    """Writes the rows of one file."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    def close(self) -> None:
        """Write what belongs at the end; the stream stays open."""


def writer(file_format: str, stream: IO[bytes], schema: pa.Schema, options: Mapping[str, Any]) -> Writer:
    """Return the writer of a format."""
    match file_format:
        case "parquet":
            return _Parquet(stream, schema, str(options.get("parquet_compression") or "snappy"))
        case "orc":
            return _Orc(stream)
        case "csv":
            return _Csv(stream, schema, _style(options))
        case _:
            return _JsonLines(stream)


class _Parquet:
    def __init__(self, stream: IO[bytes], schema: pa.Schema, compression: str) -> None:
        import pyarrow.parquet as pq

        chosen = "none" if compression == "uncompressed" else compression
        self._writer = pq.ParquetWriter(stream, schema, compression=chosen, write_page_checksum=True)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Orc:
    def __init__(self, stream: IO[bytes]) -> None:
        from pyarrow import orc

        self._writer = orc.ORCWriter(pa.PythonFile(stream, mode="w"), compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        # Spark refuses a file with ORC's own type for instants, so they are written as the time in UTC.
        kinds = [_without_zone(field) for field in batch.schema]
        self._writer.write(pa.Table.from_batches([batch]).cast(pa.schema(kinds)))

    def close(self) -> None:
        self._writer.close()


def _without_zone(field: pa.Field) -> pa.Field:
    zoned = pa.types.is_timestamp(field.type) and field.type.tz
    return field.with_type(pa.timestamp(field.type.unit)) if zoned else field


_SPELLED = frozenset("0123456789+-.:TZeEtrufalsin")
"""What numbers, timestamps and truth values are spelled with."""


@dataclass(frozen=True, slots=True)
class _Style:
    delimiter: str
    quote: str
    escape: str
    null: str
    header: bool

    @property
    def touches_numbers(self) -> bool:
        """Return whether anything else than a text could be taken for NULL or for two fields."""
        return bool(_SPELLED & {self.delimiter, self.quote, self.escape} or (self.null and set(self.null) <= _SPELLED))


def _style(options: Mapping[str, Any]) -> _Style:
    quote = str(options.get("csv_quote") or '"')
    return _Style(
        delimiter=str(options.get("csv_delimiter") or ","),
        quote=quote,
        escape=str(options.get("csv_escape") or quote),
        null=str(options.get("csv_null_value") or ""),
        header=options.get("csv_header", True) is not False,
    )


class _Csv:
    """A value is quoted where it could be taken for something else: for NULL, for two fields or for two lines."""

    def __init__(self, stream: IO[bytes], schema: pa.Schema, style: _Style) -> None:
        self._stream = stream
        self._style = style
        special = {style.delimiter, style.quote, style.escape, "\r", "\n", " ", "\t"}
        self._special = f"[{''.join(map(re.escape, sorted(special)))}]|^$|^{re.escape(style.null)}$"
        if style.header:
            names = pa.array(schema.names, pa.string())
            self._stream.write(style.delimiter.join(self._quoted(names).to_pylist()).encode() + b"\n")

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [self._column(column) for column in batch.columns]
        _write_lines(self._stream, pc.binary_join_element_wise(*columns, self._style.delimiter))

    def close(self) -> None:
        """Write nothing: the file has no footer."""

    def _column(self, column: pa.Array) -> pa.Array:
        written = as_text(column)
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type) or self._style.touches_numbers:
            written = self._quoted(written)
        return pc.fill_null(written, self._style.null)

    def _quoted(self, plain: pa.Array) -> pa.Array:
        style, column = self._style, plain
        if style.escape != style.quote:
            column = pc.replace_substring(column, style.escape, style.escape * 2)
        inner = pc.replace_substring(column, style.quote, style.escape + style.quote)
        whole = pc.binary_join_element_wise(style.quote, inner, style.quote, "")
        return pc.if_else(pc.match_substring_regex(plain, self._special), whole, plain)


class _JsonLines:
    """A NULL has no field; every digit of a number is preserved."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, batch: pa.RecordBatch) -> None:
        _write_lines(self._stream, json_objects(batch))

    def close(self) -> None:
        """Write nothing: the file has no footer."""


def json_objects(batch: pa.RecordBatch) -> pa.Array:
    """Return each row as the text of a JSON object; a NULL has no field."""
    pairs = [_json_pair(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)]
    # Not null_handling="skip": Arrow then leaves out rows that have nothing but NULLs.
    joined = pc.binary_join_element_wise(*pairs, "", null_handling="replace", null_replacement="")
    return pc.binary_join_element_wise("{", pc.utf8_ltrim(joined, ","), "}", "")


def _json_pair(name: str, column: pa.Array) -> pa.Array:
    """Return a field of an object with a comma before it, NULL where there is none."""
    value = documents(column) if pa.types.is_nested(column.type) else as_text(column)
    if not (_is_number(column.type) or pa.types.is_nested(column.type)):
        value = _json_text(value)
    if pa.types.is_floating(column.type):
        finite = pc.is_finite(column)
        value = pc.if_else(finite, value, pc.binary_join_element_wise('"', value, '"', ""))
    return pc.binary_join_element_wise(f",{json.dumps(name, ensure_ascii=False)}:", value, "")


def _json_text(column: pa.Array) -> pa.Array:
    special = pc.match_substring_regex(column, _ESCAPED)
    if pc.any(special).as_py():
        values = [None if v is None else json.dumps(v, ensure_ascii=False) for v in column.to_pylist()]
        return pa.array(values, pa.string())
    return pc.binary_join_element_wise('"', column, '"', "")


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def as_text(column: pa.Array) -> pa.Array:
    """Return the values as text: instants in ISO form, decimals with all their digits, bytes in hexadecimal digits."""
    kind = column.type
    spell = _SPELLINGS.get(str(kind))
    if spell is not None:
        return spell(column)
    if pa.types.is_decimal(kind) and kind.scale > _SHORT_SCALE:
        return _decimals(column)
    return column if pa.types.is_string(kind) else pc.cast(column, pa.string())


def _instants(column: pa.Array) -> pa.Array:
    return pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ")


def _format_timestamps(column: pa.Array) -> pa.Array:
    return pc.strftime(column, "%Y-%m-%dT%H:%M:%S")


_SHORT_SCALE = 6
"""Decimals after the point up to which Arrow writes a number without an exponent."""


def _decimals(column: pa.Array) -> pa.Array:
    written = pc.cast(column, pa.string())
    if not pc.any(pc.match_substring(written, "E")).as_py():
        return written
    return pa.array([None if value is None else f"{value:f}" for value in column.to_pylist()], pa.string())


def _hex(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())


_SPELLINGS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "timestamp[us, tz=UTC]": _instants,
    "timestamp[us]": _format_timestamps,
    "binary": _hex,
}


def _write_lines(stream: IO[bytes], lines: pa.Array) -> None:
    if len(lines):
        joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
        stream.write(joined[0].as_buffer())
        stream.write(b"\n")
