"""The rows of a lake table through its engine; what changes them goes through the session of the table's metadata."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.lake_engine import EngineError
from ematix_flow.connect.base.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ematix_flow.connect.base.lake_engine import LakeEngine
    from ematix_flow.connect.base.session import Statement
    from ematix_flow.connect.lake.transaction import LakeSession

POINTS = "points/"
POINTS_FOLDER = "FLOW_POINTS_FOLDER"
"""Placeholder of the folder that the folded events of a load are written to."""


class RowsSession(Session):
    """The rows of the table through its engine; the statement that changes them goes through the metadata session."""

    def __init__(self, metadata: LakeSession, engine: Callable[[], LakeEngine]) -> None:
        self._metadata = metadata
        self._engine = engine
        self._expected: dict[str, str] = {}
        self._views: list[str] = []
        self._waiting: dict[str, tuple[Sequence[str], str]] = {}

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement that changes no rows."""
        del parameters
        self._register_named(sql)
        self._engine().run(sql, {})
        return 0

    def run(self, statement: Statement) -> int:
        """Run a statement of a plan; the numbers of the final one are reported."""
        if not statement.final:
            return self._prepare(statement)
        self._register_named(statement.sql)
        numbers = self._metadata.change(statement.sql)
        self.numbers = _row_counts(numbers)
        return numbers.get("num_affected_rows", 0)

    def _prepare(self, statement: Statement) -> int:
        """Run what comes before the final statement, and is seen by this session alone."""
        if not statement.cache_as and not statement.fills_points:
            return self.execute(statement.sql)
        self._register_named(statement.sql)
        if statement.cache_as:
            self._views.append(statement.cache_as)
            self._engine().materialize(statement.cache_as, statement.sql)
        else:
            self._write_points(statement.sql)
        return 0

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        del parameters
        self._register_named(sql)
        return self._engine().query(sql)

    def register_view(self, name: str, paths: Sequence[str], columns: str) -> None:
        """Show staged files as a relation until the session ends; the engine hears of it when a statement names it."""
        self._waiting[name] = paths, columns

    def expect_points(self, name: str, columns: str) -> None:
        """Show the folded events under a name once a statement uses them."""
        self._expected[name] = columns

    def _register_named(self, sql: str) -> None:
        self._register_points(sql)
        for name in [name for name in self._waiting if name in sql]:
            paths, columns = self._waiting.pop(name)
            self._views.append(name)
            self._engine().view(name, paths, columns)

    def _register_points(self, sql: str) -> None:
        for name in [name for name in self._expected if name in sql]:
            folder = self._metadata.value("points")
            paths = [self._metadata.store.path(folder)] if folder else []
            self.register_view(name, paths, self._expected.pop(name))

    def _write_points(self, sql: str) -> None:
        folder = f"{self._metadata.home}{POINTS}{uuid.uuid4().hex}"
        path = self._metadata.store.path(folder).replace("\\", "\\\\").replace("'", "\\'")
        self._engine().run(sql.replace(POINTS_FOLDER, path), {})
        self._metadata.remember("points", folder)
        self._metadata.points_written = True

    def begin(self) -> None:
        """Do nothing: a change of rows is final at once."""

    def commit(self) -> None:
        """Do nothing: a change of rows is final at once."""

    def rollback(self) -> None:
        """Do nothing: a change of rows is final at once."""

    def close(self) -> None:
        """Forget the relations of this session."""
        for name in reversed(self._views):
            with suppress(EngineError):
                self._engine().forget(name)
        self._views.clear()


def _row_counts(numbers: Mapping[str, int]) -> dict[str, int]:
    names = {"inserted": "num_inserted_rows", "updated": "num_updated_rows", "deleted": "num_deleted_rows"}
    return {name: numbers[key] for name, key in names.items() if key in numbers}
