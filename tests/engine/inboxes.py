"""A folder that files come to, and a pipeline that loads each of them once; plain data, which a child can be sent."""

from __future__ import annotations

import io
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.files.table import FileTables
from ematix_flow.connect.registry import target_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.plan.sql.render import native_name
from ematix_flow.run_log import SqliteRunLog

COLUMNS = (
    Column(BigInt(), nullable=False, primary_key=True, name="id"),
    Column(Text(), nullable=True, name="label"),
)


@dataclass(frozen=True)
class Inbox:
    """The root of a source of CSV files, the settings of its target, and the options of the load."""

    root: str
    target: dict[str, Any]
    run_log: str
    options: dict[str, Any] = field(default_factory=dict)
    schema: str = "main"
    name: str = "inbox"
    path: str = "in"
    source: dict[str, Any] = field(default_factory=dict)
    """Settings of a source that is no folder of this machine."""

    def put(self, name: str, *ids: object) -> Path:
        """Write a file of these rows, whole or not at all, in place of whatever is there."""
        path = Path(self.root, "in", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}")
        draft.write_text(content(*ids), encoding="utf-8")
        return draft.replace(path)

    def pipeline(self, **options: Any) -> Pipeline:
        """Declare the load."""
        source = self.source or {"kind": "object_store_local", "path": self.root, "format": "csv"}
        chosen = write(**{"mode": "append", "incremental": "files", **self.options, **options})
        return Pipeline(
            name=self.name,
            function=lambda: self.path,
            targets=(TargetDeclaration(self.table, chosen, self.connection),),
            source_connection=connection_from_fields("source", source),
        )

    def run(self, **options: Any) -> dict[str, Any]:
        """Load what is new, as a person would."""
        return run_pipeline(self.pipeline(**options), Options(run_log=SqliteRunLog(self.run_log)))  # type: ignore[no-any-return]

    @property
    def table(self) -> Table:
        return Table(self.schema, "items", COLUMNS)

    @property
    def connection(self) -> Any:
        return connection_from_fields("target", self.target)

    def ids(self) -> list[int]:
        """Return the numbers of all rows of the target, in order."""
        database = target_of(self.connection)
        if isinstance(database, FileTables):
            keys = [entry.key for entry in database.store.listed(f"{self.schema}/items/")]
            read = [pq.read_table(io.BytesIO(database.store.read(key) or b""), columns=["id"]) for key in keys]
            return sorted(int(row["id"]) for table in read for row in table.to_pylist())
        with closing(database.session()) as session:
            table_name = database.table_name(self.schema, "items")
            if database.find_table(session, table_name) is None:
                return []
            rows = session.query(f"SELECT id FROM {native_name(table_name, database.dialect)}")
        return sorted(int(row[0]) for row in rows)

    def remembered(self) -> list[tuple[str, int]]:
        """Return key and size of every file that the books of the target know, in order."""
        database = target_of(self.connection, (self.schema, "items"))
        ledger = Ledger(database)
        with closing(database.session()) as session:
            rows = session.query(f"SELECT file_key, size FROM {ledger.name('loaded_files')}")
        return sorted((str(key), int(size)) for key, size in rows)


def content(*ids: object) -> str:
    """Return the text of a file."""
    return "id,label\n" + "".join(f"{number},row {number}\n" for number in ids)
