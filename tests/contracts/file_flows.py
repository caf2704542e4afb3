"""Pipelines from a DuckDB table into a folder of files, read back through the commit records and through the folder.

A reader of the folder alone must see the same rows as one that knows the records, or the flow itself fails the test.
A bucket is such a folder too: all that it holds is fetched before it is looked at.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyarrow import orc

from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.files.table import FileTables
from ematix_flow.connect.files.transaction import FILES, REMOVED, FileSession
from ematix_flow.connect.formats import csv as csv_rows
from ematix_flow.connect.formats import json_lines as json_rows
from ematix_flow.connect.registry import open_target
from ematix_flow.connect.storage.base import LocalStore
from ematix_flow.declare.pipeline.file_options import FileOptions
from ematix_flow.declare.table.types import Text, TimestampTZ
from ematix_flow.plan.sql.render import native_name
from ematix_flow.run.stage.conform import Rules, conform
from tests.contracts.flows import Flow, parse_instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ematix_flow.connect.storage.base import Store
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.declare.table.types import ColumnType
    from tests.contracts.flows import Row


@dataclass
class FileFlow(Flow):
    """A flow whose target is a folder: `connection` leads to it, `origin` to the database of the source."""

    files: FileOptions = FileOptions()  # noqa: RUF009 - it is frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lake = open_target(self.connection)
        assert isinstance(self.lake, FileTables)

    @property
    def target(self) -> TargetDeclaration:
        return replace(super().target, files=self.files)

    @property
    def target_name(self) -> str:
        return native_name(self.lake.table_name(self.table.schema, self.table.name), "sqlite")

    def metadata_name(self, table: str) -> str:
        return Ledger(self.lake).name(table)

    def execute(self, *statements: str) -> None:
        """Run statements where they belong: on the source, or on what the store remembers."""
        for statement in statements:
            if self.source_name in statement:
                super().execute(statement)
            else:
                with closing(self.lake.session()) as session:
                    session.execute(statement)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        if self.source_name in sql:
            return super().select(sql)
        with closing(self.lake.session()) as session:
            return session.query(sql)

    def rows(self, **more: ColumnType) -> list[Row]:
        """Return the rows of the table's files in the declared types, in the order of their keys."""
        types = {column.name: column.type for column in self.table.columns} | more
        stored_rows = rows_as_recorded(self.lake, self.table.schema, self.table.name, types, self.files.prefix or "")
        return sorted(stored_rows, key=lambda row: [row[key] for key in self.table.primary_key])

    def stamps(self) -> dict[Any, tuple[Any, str]]:
        key = self.table.primary_key[0]
        rows = self.rows(_loaded_at=TimestampTZ(), _batch_id=Text())
        return {row[key]: (parse_instant(row["_loaded_at"]), row["_batch_id"]) for row in rows}


@contextmanager
def folder_of(store: Store) -> Iterator[Path]:
    """Return the folder of a store, or a copy of the bucket as it is now."""
    if isinstance(store, LocalStore):
        yield store.root
        return
    with TemporaryDirectory() as name:
        for entry in store.listed(""):
            path = Path(name, entry.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.read(entry.key) or b"")
        yield Path(name)


def rows_as_recorded(
    lake: FileTables, schema: str, name: str, types: dict[str, ColumnType], prefix: str = "", *, resolved: bool = True
) -> list[Row]:
    """Return a table's rows as its records have them; what the folder shows must be the same files.

    Right after a crash a file may still wait for its name, or one that was replaced for its end: with `resolved` False
    those are the only differences that are taken.
    """
    with closing(FileSession(lake.store)) as session:
        table = lake.table_name(schema, name).name
        listed = session.query(f"SELECT path, staged, bytes, rows FROM {FILES} WHERE table_name = ?", (table,))
        removed = {path for (path,) in session.query(f"SELECT path FROM {REMOVED}")}
    with folder_of(lake.store) as root:
        shown = {path.relative_to(root).as_posix() for path in (root / (prefix or table)).rglob("*") if path.is_file()}
        named = {path for path, _, _, _ in listed}
        waiting = {path for path, staged, _, _ in listed if staged and (root / staged).exists()}
        assert shown <= named | removed, f"files that no commit names: {shown - named - removed}"
        assert named - shown <= waiting, f"files that are named and missing: {named - shown - waiting}"
        assert not resolved or (shown == named), "every file has its name, and no other is left"
        rows: list[Row] = []
        for path, staged, size, count in listed:
            file = root / (staged if path in waiting else path)
            assert file.stat().st_size == size
            read_back = read_file(file, types)
            assert len(read_back) == count
            rows += read_back
    return rows


def read_file(path: Path, types: dict[str, ColumnType]) -> list[Row]:
    """Return the rows of one file, read by what is not the writer, in the declared types; a column it lacks is NULL."""
    rows: list[Row] = []
    for batch in _batches(path, list(types)):
        columns = [name for name in types if name in batch.schema.names]
        fitting = tuple(StageColumn(name, types[name]) for name in columns)
        good, bad = conform(batch.select(columns), Rules(fitting, frozenset()))
        assert bad is None, bad.to_pylist()
        rows += [dict.fromkeys(types) | row for row in good.to_pylist()]
    return rows


def _batches(path: Path, names: list[str]) -> Iterable[pa.RecordBatch]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_batches()
    if path.suffix == ".orc":
        return orc.read_table(path).to_batches()
    if path.suffix == ".csv":
        read_back = csv_rows.read_rows(str(path), csv_rows.dialect_of(str(path), {}))
    else:
        read_back = json_rows.read_rows(str(path), (0, -1), names)
    return [batch for rows in read_back for batch in rows.good.to_batches() if not rows.bad]
