"""Parquet parts: staging for databases that no task can write to; one file per task attempt, no database here."""

from __future__ import annotations

import atexit
import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from ematix_flow.connect.base.scratch import open_scratch
from ematix_flow.connect.base.stage import Stager
from ematix_flow.connect.storage.base import sync
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.errors import StagingLostError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ematix_flow.connect.base.scratch import Scratch
    from ematix_flow.connect.base.stage import StageSpec
    from ematix_flow.records import TaskReport


class ParquetStager(Stager):
    """Writes the rows of one attempt to files that are renamed into place when they are whole."""

    def __init__(self, spec: StageSpec, partition: int, attempt: int) -> None:
        schema = pa.ipc.read_schema(pa.py_buffer(spec.schema))
        stem = f"part-{partition:05d}-{attempt}"
        # A task of another machine stages to a folder of its own, from which the parts are carried to the driver.
        self._folder = Path(spec.folder) if spec.folder else _own_folder()
        self._rows = _StagedParquetFile(self._folder / f"{stem}.parquet", schema)
        self._rejects = _StagedParquetFile(self._folder / f"{stem}.rejects.parquet", REJECTS)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows to the file."""
        self._rows.write(batch)

    def reject(self, batch: pa.RecordBatch) -> None:
        """Add rejects to their own file."""
        self._rejects.write(batch)

    def finish(self) -> tuple[str, str]:
        """Close and rename; an attempt without rows leaves no file."""
        self._rows.close()
        self._rejects.close()
        failpoint("stage.before_task_commit")
        paths = self._rows.finish(), self._rejects.finish()
        if not any(paths):
            _drop_own(self._folder)
        return paths

    def abandon(self) -> None:
        """Remove unfinished files."""
        self._rows.abandon()
        self._rejects.abandon()
        _drop_own(self._folder)


_OWN: dict[Path, Scratch] = {}
"""The folders of attempts whose parts have not been carried away."""


def _own_folder() -> Path:
    scratch = open_scratch("stage")
    folder = scratch.folder / "parts"
    folder.mkdir(mode=0o700)
    _OWN[folder] = scratch
    return folder


def _drop_own(folder: Path) -> None:
    scratch = _OWN.pop(folder, None)
    if scratch is not None:
        scratch.remove()


def carried_away(file: Path) -> None:
    """Remove a part that the driver has, and with the last one the folder of the attempt."""
    file.unlink(missing_ok=True)
    if not any(file.parent.glob("*")):
        _drop_own(file.parent)


class _StagedParquetFile:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._open = path.with_suffix(".open")
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            # Staged rows are read once: searching for repeated values takes longer than it saves.
            self._writer = pq.ParquetWriter(
                self._open, self._schema, compression="lz4", use_dictionary=False, write_page_checksum=True
            )
        self._writer.write_batch(batch)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def finish(self) -> str:
        if self._writer is None:
            return ""
        sync(self._open)
        self._open.rename(self._path)
        sync(self._path.parent)
        return str(self._path)

    def abandon(self) -> None:
        self.close()
        self._open.unlink(missing_ok=True)


def check_parts(spec: StageSpec, parts: Sequence[TaskReport]) -> None:
    """Compare the rows in each named file with the report of the attempt that wrote it."""
    for part in parts:
        _check(spec, part.partition, "rows", part.path, part.rows)
        _check(spec, part.partition, "rejects", part.reject_path, part.rejected)


def _check(spec: StageSpec, partition: int, what: str, path: str, expected: int) -> None:
    try:
        actual = int(pq.read_metadata(path).num_rows) if path else 0
    except (OSError, pa.ArrowInvalid):
        raise changed(spec, f"the {what} of partition {partition} are gone or unreadable") from None
    if actual != expected:
        raise changed(spec, f"partition {partition} has {actual} {what}, {expected} were staged")


def changed(spec: StageSpec, fact: str) -> StagingLostError:
    """Return the error for a staging that is not what the tasks reported."""
    hint = "the staging was changed from outside; run the load again."
    return StagingLostError(f"staging {spec.name}: {fact}", hint=hint)


def batches(spec: StageSpec, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read the rows of the named files; damage is noticed by the checksums in them."""
    for path in paths:
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                yield from file.iter_batches()
        except (OSError, pa.ArrowInvalid):
            raise changed(spec, f"the file {Path(path).name} is gone or unreadable") from None


# Folders


def create_folder(root: Path, spec: StageSpec) -> StageSpec:
    """Make the folder of one load; a folder that is there already is an error."""
    folder = root / spec.name
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileNotFoundError:
        # Another process removed the empty root between its making and ours.
        folder.mkdir(mode=0o700, parents=True)
    return replace(spec, folder=str(folder))


def drop_folder(root: Path, name: str) -> None:
    """Remove the folder of one load, and with the last one the folder of all."""
    shutil.rmtree(root / name, ignore_errors=True)
    with suppress(OSError):
        root.rmdir()


def folders(root: Path) -> Iterator[tuple[str, float]]:
    """Return the loads that have a folder, with the seconds since something was last added to it."""
    now = time.time()
    for entry in sorted(root.iterdir()) if root.is_dir() else ():
        try:
            yield entry.name, now - entry.stat().st_mtime
        except FileNotFoundError:
            continue


def process_folder() -> Path:
    """Return a folder that ends with this process, for what belongs to a database in memory."""
    return _process_folder(os.getpid())


@cache
def _process_folder(pid: int) -> Path:
    scratch = open_scratch(str(pid))
    atexit.register(scratch.remove)
    return scratch.folder
