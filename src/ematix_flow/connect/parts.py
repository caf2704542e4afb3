"""Parquet parts: staging for databases that no task can write to; one file per task attempt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ematix_flow.connect.arrow import REJECTS
from ematix_flow.connect.base import Stager
from ematix_flow.errors import CommitError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.connect.base import StageSpec
    from ematix_flow.records import Part


class ParquetStager(Stager):
    """Writes the rows of one attempt to a file that is renamed into place when it is whole."""

    def __init__(self, spec: StageSpec, partition: int, attempt: int) -> None:
        self._schema = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        stem = f"part-{partition:05d}-{attempt}"
        self._rows = _File(Path(spec.folder) / f"{stem}.parquet", self._schema)
        self._rejects = _File(Path(spec.folder) / f"{stem}.rejects.parquet", REJECTS)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the file."""
        self._rows.write(batch)

    def reject(self, batch: pa.RecordBatch) -> None:
        """Add rejects to their own file."""
        self._rejects.write(batch)

    def finish(self) -> tuple[str, str]:
        """Close and rename; an attempt without rows leaves no file."""
        return self._rows.finish(), self._rejects.finish()

    def abandon(self) -> None:
        """Remove unfinished files."""
        self._rows.abandon()
        self._rejects.abandon()


class _File:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._open = path.with_suffix(".open")
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._open, self._schema, compression="lz4")
        self._writer.write_batch(batch)

    def finish(self) -> str:
        if self._writer is None:
            return ""
        self._writer.close()
        failpoint("stage.before_task_commit")
        with self._open.open("rb") as handle:
            os.fsync(handle.fileno())
        self._open.rename(self._path)
        return str(self._path)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._open.unlink(missing_ok=True)


def check_parts(spec: StageSpec, parts: Sequence[Part]) -> None:
    """Compare the rows in each named file with the report of the attempt that wrote it."""
    for part in parts:
        found = _rows(part.path)
        if found != part.rows or _rows(part.reject_path) != part.rejected:
            message = f"staging {spec.name} has {found} rows in partition {part.partition}, {part.rows} were staged"
            raise CommitError(message, hint="the staging was changed from outside; run the load again.")


def _rows(path: str) -> int:
    if not path:
        return 0
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return -1
