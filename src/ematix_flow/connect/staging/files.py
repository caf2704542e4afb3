"""Staging as files of their final format: one file per task attempt and a limit of size, reported with its bytes."""

from __future__ import annotations

import io
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ematix_flow.connect.base.stage import Stager
from ematix_flow.connect.formats.writers import EXTENSIONS, writer
from ematix_flow.connect.staging.parquet import changed
from ematix_flow.connect.storage.base import parse_staged_path
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.connect.formats.writers import Writer
    from ematix_flow.connect.storage.base import Output, Store
    from ematix_flow.records import TaskReport

STAMP = pa.schema([pa.field("_loaded_at", pa.timestamp("us", tz="UTC")), pa.field("_batch_id", pa.string())])
"""What every row of a file holds about the load that brought it."""

FIELD_IDS = "field_ids"
"""The option that holds, as JSON, which id a column of a Parquet file has and whether it is required."""


class FileStager(Stager):
    """Writes the rows of one attempt to a file that is given its key when it is whole."""

    def __init__(self, store: Store, file_format: str, spec: StageSpec, partition: int, attempt: int) -> None:
        staged = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        self._stamp = (datetime.fromisoformat(spec.stamp[0]), spec.stamp[1]) if spec.stamp[0] else ()
        options = dict(spec.options)
        self._schema = _numbered(pa.schema([*staged, *STAMP]) if self._stamp else staged, options.pop(FIELD_IDS, "{}"))
        stem = f"{spec.folder}part-{partition:05d}-{attempt}"
        self._rows = _StagedFile(store, stem, file_format, self._schema, options)
        self._rejects = _StagedFile(store, f"{stem}.rejects", "parquet", REJECTS, {})

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, with the stamp of the load."""
        stamp = [
            pa.repeat(pa.scalar(value, field.type), batch.num_rows)
            for value, field in zip(self._stamp, STAMP, strict=False)
        ]
        self._rows.write(pa.RecordBatch.from_arrays([*batch.columns, *stamp], schema=self._schema))

    def reject(self, batch: pa.RecordBatch) -> None:
        """Add rejects to their own file."""
        self._rejects.write(batch)

    def finish(self) -> tuple[str, str]:
        """Finish both files; an attempt without rows leaves none."""
        failpoint("stage.before_task_commit")
        return self._rows.finish(), self._rejects.finish()

    def abandon(self) -> None:
        """Forget unfinished files."""
        self._rows.abandon()
        self._rejects.abandon()


def _numbered(schema: pa.Schema, ids: str) -> pa.Schema:
    """Return the schema with the ids that a table has for its columns."""
    known = json.loads(ids)
    return pa.schema(
        field.with_metadata({"PARQUET:field_id": str(known[field.name][0])}).with_nullable(not known[field.name][1])
        if field.name in known
        else field
        for field in schema
    )


class _StagedFile:
    def __init__(self, store: Store, stem: str, file_format: str, schema: pa.Schema, options: dict[str, Any]) -> None:
        self._store = store
        self._stem = stem
        self._format = file_format
        self._schema = schema
        self._options = options
        self._output: Output | None = None
        self._writer: Writer | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._output = self._store.output(f"{self._stem}.{EXTENSIONS[self._format]}")
            self._writer = writer(self._format, self._output.stream, self._schema, self._options)
        self._writer.write(batch)

    def finish(self) -> str:
        if self._writer is None or self._output is None:
            return ""
        self._writer.close()
        return self._output.finish()

    def abandon(self) -> None:
        if self._output is not None:
            self._output.abandon()


def check_files(store: Store, spec: StageSpec, parts: Sequence[TaskReport]) -> None:
    """Compare the bytes of each named file with those that its path names."""
    for part in parts:
        for what, path, rows in (("rows", part.path, part.rows), ("rejects", part.reject_path, part.rejected)):
            if bool(path) != bool(rows) or (path and not _is_whole(store, path)):
                raise changed(spec, f"the {what} of partition {part.partition} are gone or of another size")


def reject_batches(store: Store, spec: StageSpec, parts: Sequence[TaskReport]) -> Iterator[pa.RecordBatch]:
    """Read the rejects of the named attempts."""
    for part in parts:
        if not part.reject_path:
            continue
        data = store.read(parse_staged_path(part.reject_path)[0])
        if data is None:
            raise changed(spec, f"the rejects of partition {part.partition} are gone")
        try:
            yield from pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True).iter_batches()
        except (OSError, pa.ArrowInvalid):
            raise changed(spec, f"the rejects of partition {part.partition} are unreadable") from None


def _is_whole(store: Store, path: str) -> bool:
    key, size = parse_staged_path(path)
    return store.size(key) == size
