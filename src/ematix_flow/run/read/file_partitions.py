"""Files cut into partitions that can be read on their own, as Arrow tables; a bad line is marked, never dropped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.connect.formats.text import (
    StoredFile,
    for_arrow,
    naming,
    side_by_side,
    size_of,
    translating_read_errors,
    unreadable,
)
from ematix_flow.errors import RunError
from ematix_flow.plan.columns import CORRUPT, POSITION
from ematix_flow.run.read.arrival import MAX_PARTITIONS
from ematix_flow.run.stage.buffers import repeated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ematix_flow.connect.files.source import FileSet
    from ematix_flow.connect.formats.text import ParsedRows

PARTITION_BYTES = 64 << 20
"""Bytes that are read as one partition where there is much to read."""

SMALLEST = 16 << 20
"""Bytes that are worth a partition of their own where there are slots for more of them."""

MOST_TASKS = 64
"""Tasks that many small partitions are put together into, unless there are slots for more."""

ROWS = 1 << 17
"""Rows of a typed file that are read at a time."""


@dataclass(frozen=True, slots=True)
class FilePartition:
    """A part of a file that can be read without the others."""

    path: str
    size: int
    """About how many bytes are read."""
    read: Callable[[], Iterator[pa.Table]]
    """Returns the rows under the names of the set, with the marks of text formats and the position."""


def tasks_for(partitions: Sequence[FilePartition], slots: Callable[[], int]) -> int:
    """Return how many tasks read some partitions."""
    if len(partitions) <= MOST_TASKS:
        return max(1, len(partitions))
    return min(len(partitions), max(MOST_TASKS, 2 * slots()))


def split_files(files: FileSet, *, strict: bool = False, slots: Callable[[], int] | None = None) -> list[FilePartition]:
    """Return the partitions of a file set in its order; with `strict` a bad line is an error instead of a mark.

    Large files are cut, so that there is work for all `slots` of the engine that reads the partitions; only then they
    are counted. Without slots the partitions are read one after the other, and no file is searched for offsets to cut
    it at.
    """
    names = tuple(column.name for column in files.columns)
    every = _partition_bytes(files.paths, slots)
    match files.format:
        case "csv":
            cut = partial(_csv_partitions, files, names=names, every=every if slots else 0, strict=strict)
        case "json_lines":
            cut = partial(_json_partitions, names=names, most=files.batch_lines, every=every, strict=strict)
        case _:
            cut = partial(_stripes if files.format == "orc" else _row_groups, names=names, every=every)
    return list(chain(*side_by_side(lambda path: _of_one_file(path, cut), files.paths)))


def _of_one_file(path: str, cut: Callable[[str], list[FilePartition]]) -> list[FilePartition]:
    """Return the partitions of a file, which are read only as long as the file is the one that was cut."""
    identity = _identity(path)
    partitions = cut(path)
    if len(partitions) == 1 or identity is None:
        return partitions
    return [
        replace(partition, read=partial(_unless_replaced, path, identity, partition.read)) for partition in partitions
    ]


def _identity(path: str) -> tuple[int, int] | None:
    """Return what distinguishes a file of this machine from one that takes its name.

    A store refuses another version by itself.
    """
    if isinstance(path, StoredFile):
        return None
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _unless_replaced(
    path: str, identity: tuple[int, int], read: Callable[[], Iterator[pa.Table]]
) -> Iterator[pa.Table]:
    _refuse_replaced(path, identity)
    tables = read()
    first = next(tables, None)
    # The reader has opened the file by now, and keeps it whatever happens to its name.
    _refuse_replaced(path, identity)
    if first is not None:
        yield first
        yield from tables


def _refuse_replaced(path: str, identity: tuple[int, int]) -> None:
    if _identity(path) not in (None, identity):
        message = f"file {path} was replaced while it was read"
        raise RunError(message, hint="nothing was loaded; run it again.")


def _partition_bytes(paths: Sequence[str], slots: Callable[[], int] | None) -> int:
    sizes = [size_of(path) for path in paths]
    if sum(sizes) <= SMALLEST:
        return PARTITION_BYTES
    target_bytes = min(PARTITION_BYTES, max(SMALLEST, sum(sizes) // slots())) if slots else PARTITION_BYTES
    return max(target_bytes, max(sizes) // (MAX_PARTITIONS - 1) + 1)


def _csv_partitions(
    files: FileSet, path: str, names: Sequence[str], every: int, *, strict: bool
) -> list[FilePartition]:
    from ematix_flow.connect.formats import csv as csv_rows
    from ematix_flow.connect.formats import csv_records

    dialect = csv_rows.dialect_of(path, files.csv_options)
    if isinstance(path, StoredFile):
        every = max(every, PARTITION_BYTES) if every else 0  # to search for records in it is to fetch it once more
    parts = csv_records.byte_ranges_of(path, dialect, every) if every else [csv_records.WHOLE]
    size = size_of(path) // len(parts)
    reads = [partial(csv_rows.read_rows, path, dialect, part) for part in parts]
    return [FilePartition(path, size, partial(_text_tables, path, read, names, strict=strict)) for read in reads]


def _json_partitions(path: str, names: Sequence[str], most: int, every: int, *, strict: bool) -> list[FilePartition]:
    from ematix_flow.connect.formats import json_lines as json_rows

    partitions = json_rows.byte_ranges_of(path, every)
    size = size_of(path) // len(partitions)
    reads = [partial(json_rows.read_rows, path, partition, names, most) for partition in partitions]
    return [FilePartition(path, size, partial(_text_tables, path, read, names, strict=strict)) for read in reads]


def _text_tables(
    path: str, read: Callable[[], Iterator[ParsedRows]], names: Sequence[str], *, strict: bool
) -> Iterator[pa.Table]:
    for rows in read():
        yield from _marked(path, rows, names, strict=strict)


def _marked(path: str, rows: ParsedRows, names: Sequence[str], *, strict: bool) -> Iterator[pa.Table]:
    """Return the rows with their columns in the order of the set."""
    if strict and rows.bad:
        message = f"file {path} has a malformed line: {rows.bad[0][0][:200]}"
        raise RunError(message, hint="load the file without a query and with on_bad_row='reject' to set it aside.")
    column_names = [*names, POSITION] if strict else [*names, CORRUPT, POSITION]
    good = [rows.good.column(name) for name in names]
    failures = [] if strict else [pa.nulls(rows.good.num_rows, pa.string())]
    yield pa.table([*good, *failures, repeated(path, rows.good.num_rows)], names=column_names)
    if rows.bad:
        known = [[fields[name] for _, fields in rows.bad] for name in names]
        bad = [*known, [reason for reason, _ in rows.bad], [path] * len(rows.bad)]
        yield pa.table([pa.array(column, pa.string()) for column in bad], names=column_names)


def _row_groups(path: str, names: Sequence[str], every: int) -> list[FilePartition]:
    import pyarrow.parquet as pq

    with naming(path):
        known = pq.read_metadata(for_arrow(path))
    sizes = [known.row_group(number).total_byte_size for number in range(known.num_row_groups)]
    return [
        FilePartition(path, sum(sizes[number] for number in chosen), partial(_parquet_tables, path, chosen, names))
        for chosen in _together(sizes, every)
    ]


def _stripes(path: str, names: Sequence[str], every: int) -> list[FilePartition]:
    from pyarrow import orc

    with naming(path):
        count = orc.ORCFile(for_arrow(path)).nstripes
    sizes = [size_of(path) // max(count, 1)] * count
    return [
        FilePartition(path, sum(sizes[number] for number in chosen), partial(_orc_tables, path, chosen, names))
        for chosen in _together(sizes, every)
    ]


def _together(sizes: Sequence[int], every: int) -> Iterator[tuple[int, ...]]:
    """Return the numbers of neighbours that are read as one partition."""
    chosen: list[int] = []
    for number, _ in enumerate(sizes):
        chosen.append(number)
        if sum(sizes[one] for one in chosen) >= every:
            yield tuple(chosen)
            chosen = []
    if chosen:
        yield tuple(chosen)


def _parquet_tables(path: str, groups: tuple[int, ...], names: Sequence[str]) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    # From a store a few long ranges are fetched, and not each column by itself.
    options = {
        "coerce_int96_timestamp_unit": "us",
        "page_checksum_verification": True,
        "pre_buffer": isinstance(path, StoredFile),
    }
    try:
        # Timestamps of 96 bits reach further than nanoseconds do.
        with translating_read_errors(), pq.ParquetFile(for_arrow(path), **options) as file:
            for batch in file.iter_batches(ROWS, row_groups=list(groups), use_threads=False):
                yield typed(path, pa.Table.from_batches([batch]), names)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, str(error)) from None


def _orc_tables(path: str, stripes: tuple[int, ...], names: Sequence[str]) -> Iterator[pa.Table]:
    from pyarrow import orc

    try:
        with translating_read_errors():
            file = orc.ORCFile(for_arrow(path))
            for number in stripes:
                stripe = file.read_stripe(number)
                table = stripe if isinstance(stripe, pa.Table) else pa.Table.from_batches([stripe])
                for start in range(0, table.num_rows, ROWS):
                    yield typed(path, table.slice(start, ROWS), names)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(path, str(error)) from None


def typed(path: str, table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows of a typed file under the names of the set, with their position."""
    columns = [plain(table.column(name)) for name in names]
    for name, column in zip(names, columns, strict=True):
        _refuse_other_texts(path, name, column)
    return pa.table([*columns, repeated(path, table.num_rows)], names=[*names, POSITION])


def _refuse_other_texts(path: str, name: str, column: pa.ChunkedArray) -> None:
    """Refuse texts that are not UTF-8: Arrow passes them on, and some targets store what nobody can read again."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_nested(kind):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise unreadable(path, f"column {name!r}: {str(error).rpartition('Invalid: ')[2]}") from None


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in the types that rows are shaped from: no dictionaries, instants in UTC, microseconds."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(pc.cast(column, kind.value_type))
    if pa.types.is_date64(kind):
        return pc.cast(column, pa.date32())
    if not pa.types.is_timestamp(kind):
        return column
    if kind.unit == "ns":
        column = pc.floor_temporal(column, unit="microsecond")
    return pc.cast(column, pa.timestamp("us", tz="UTC" if kind.tz else None))
