"""Brings what tasks have staged to a driver whose disk they cannot write to: in the results of tasks, or through a store.

A task stages to files of its own machine, as it would next to the target, and hands them over in chunks of bounded
size.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.event_time import note_drained
from ematix_flow.connect.changes.left_out import note_drained_columns
from ematix_flow.connect.staging.parquet import carried_away
from ematix_flow.errors import RunError
from ematix_flow.failpoints import failpoint
from ematix_flow.records import TaskReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from ematix_flow.connect.storage.base import Store

ROOT = "ematix-flow-stage/"
"""Where the parts of all loads lie in a store that they pass through."""

_CHUNK_BYTES = 1 << 20
_LEFT_BEHIND_SECONDS = 2 * 24 * 3600.0
"""After this a part in the store is one of a driver that was killed: no load stages for so long."""

MORE = ", file string, chunk binary"
"""Columns that rows with a chunk of a file have besides those of a report."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """How the parts of one load come to the driver; it travels to tasks."""

    name: str
    """The staging that the parts belong to."""
    folder: str
    """Where the driver expects them."""
    store: Store | None = None

    @property
    def _prefix(self) -> str:
        return f"{ROOT}{self.name}/"

    # In a task

    def sending(
        self, task: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
    ) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the task as one that hands over the files of each report before it reports."""

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for report in task(batches):
                for column in ("path", "reject_path"):
                    path = report.column(column)[0].as_py()
                    if path:
                        yield from self._hand_over(Path(path), report)
                yield _with_chunk(report, "", None)

        return run

    def _hand_over(self, file: Path, report: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        failpoint("carry.before_send")
        try:
            if self.store is not None:
                self._upload(self.store, file)
                return
            with file.open("rb") as content:
                while chunk := content.read(_CHUNK_BYTES):
                    yield _with_chunk(report, file.name, chunk)
        finally:
            carried_away(file)

    def _upload(self, store: Store, file: Path) -> None:
        output = store.output(f"{self._prefix}{file.name}")
        try:
            with file.open("rb") as content:
                shutil.copyfileobj(content, output.stream, _CHUNK_BYTES)
            output.finish()
        except BaseException:
            output.abandon()
            raise

    # On the driver

    def receive(self, rows: Iterable[Any]) -> tuple[TaskReport, ...]:
        """Write the files of winning attempts and return the reports, with the paths that the files have here."""
        reports = []
        try:
            for row in rows:
                values = row.asDict()
                name, chunk = values.pop("file"), values.pop("chunk")
                if name:
                    with (Path(self.folder) / name).open("ab") as file:
                        file.write(chunk)
                else:
                    reports.append(self._arrived(report_of(values)))
        finally:
            if self.store is not None:
                self.store.remove_below(self._prefix)
        return tuple(reports)

    def _arrived(self, report: TaskReport) -> TaskReport:
        names = {column: Path(getattr(report, column)).name for column in ("path", "reject_path")}
        for name in filter(None, names.values()):
            if self.store is not None:
                self._download(self.store, name)
        failpoint("carry.received")
        rows, rejects = (str(Path(self.folder) / name) if name else "" for name in names.values())
        return replace(report, path=rows, reject_path=rejects)

    def _download(self, store: Store, name: str) -> None:
        try:
            with store.reader(f"{self._prefix}{name}") as content, (Path(self.folder) / name).open("wb") as file:
                shutil.copyfileobj(content, file, _CHUNK_BYTES)
        except FileNotFoundError:
            message = f"{store.display_address} does not have {self._prefix}{name}, which a task has written"
            raise RunError(message, hint="executors and this machine must reach the same store.") from None


def report_of(report: dict[str, Any]) -> TaskReport:
    """Return what a task reports; what it has noted of the messages that it has read is noted here."""
    note_drained(report.pop("events"))
    note_drained_columns(report.pop("left_out"))
    return TaskReport(**report)


def sweep(store: Store) -> None:
    """Remove what killed drivers left in a store."""
    for entry in list(store.listed(ROOT)):
        if entry.age > _LEFT_BEHIND_SECONDS:
            store.delete(entry.key)


def _with_chunk(report: pa.RecordBatch, name: str, chunk: bytes | None) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [*report.columns, pa.array([name], pa.string()), pa.array([chunk], pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=[*report.schema.names, "file", "chunk"])
