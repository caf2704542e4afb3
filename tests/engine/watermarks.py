"""A table that rows come to, and a pipeline that loads what is above its watermark, into the same file or another one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.commit.ledger import Ledger
from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.pipeline import Pipeline, TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.run_log import SqliteRunLog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ematix_flow.connect.base.session import Session
    from ematix_flow.declare.table.types import ColumnType


@dataclass
class Arrivals:
    """A source table `arrivals (id, w)` whose column `w` has a native type, and its load."""

    folder: Path
    kind: str
    native: str
    declared: ColumnType
    write: dict[str, Any]
    inside: bool = False
    """Whether the target is in the same file."""
    count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.source = connection_from_fields("source", {"kind": self.kind, "path": str(self.folder / "source.db")})
        target = {"kind": "sqlite", "path": str(self.folder / "target.db")}
        self.target = self.source if self.inside else connection_from_fields("target", target)
        self.execute(f"CREATE TABLE arrivals (id BIGINT, w {self.native})")

    def session(self, connection: Any) -> closing[Session]:
        """Open a database."""
        return closing(open_database(connection).session())

    def execute(self, *statements: str) -> None:
        """Change the source."""
        with self.session(self.source) as session:
            for statement in statements:
                session.execute(statement)

    def add(self, values: Sequence[object]) -> None:
        """Let rows come, numbered as they come."""
        with self.session(self.source) as session:
            for value in values:
                self.count += 1
                session.execute("INSERT INTO arrivals VALUES (?, ?)", (self.count, value))

    def run(self) -> dict[str, Any]:
        """Load what is new."""
        columns = (Column(BigInt(), primary_key=True, name="id"), Column(self.declared, name="w"))
        declared = TargetDeclaration(
            Table("main", "loaded", columns), write(incremental_column="w", **self.write), self.target
        )
        sql = "SELECT id, w FROM arrivals"
        pipeline = Pipeline("arrivals", lambda: sql, (declared,), source_connection=self.source)
        return run_pipeline(pipeline, Options(run_log=SqliteRunLog(self.folder / "log.db")))  # type: ignore[no-any-return]

    def ids(self) -> list[int]:
        """Return the numbers of the rows that were loaded, in order."""
        with self.session(self.target) as session:
            return [int(row[0]) for row in session.query("SELECT id FROM loaded ORDER BY id")]

    def set_watermark(self, value: str) -> None:
        """Write down how far the load came, in another spelling."""
        with self.session(self.target) as session:
            table = Ledger(open_database(self.target)).name("watermarks")
            session.execute(f"UPDATE {table} SET last_value = ?", (value,))
