"""Pipelines from a DuckDB table into a lake table, whose rows are read through Spark and whose books are in its store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.engine import Options
from ematix_flow.engine.batch.target import target_for
from ematix_flow.engine.spark.session import session_for
from tests.contracts.flows import Flow

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from tests.contracts.flows import Row


@dataclass
class LakeFlow(Flow):
    """A flow whose target is a lake table: `connection` leads to it, `origin` to the database of the source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.database = self._lake()

    def _lake(self) -> Database:
        return target_for(self.connection, self.table, session_for(Options()))

    def execute(self, *statements: str) -> None:
        """Run statements where they belong: on the source, on the table or in its books."""
        for statement in statements:
            if self.source_name in statement:
                super().execute(statement)
            else:
                with closing(self.database.session()) as session:
                    self._about(statement, session).execute(statement)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        if self.source_name in sql:
            return super().select(sql)
        with closing(self.database.session()) as session:
            return self._about(sql, session).query(sql)

    def _about(self, sql: str, session: Session) -> Session:
        return self.database.data(session) if self.target_name in sql else session

    def points(self, name: str) -> list[Row]:
        """Return the rows of one of our own tables; every target has books of its own."""
        tables = [target.table for target in self.pipeline.targets]
        if tables == [self.table]:
            return super().points(name)
        return [row for table in tables for row in replace(self, table=table, declared={}).points(name)]
