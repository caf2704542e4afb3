"""The connection object that user functions and post steps receive: plain SQL on one database, nothing planned."""

from __future__ import annotations

import importlib
from contextlib import contextmanager, nullcontext
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.commit.ledger import HistoryRow, Ledger, transaction
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.formats.json_lines import written
from ematix_flow.connect.formats.values import tree
from ematix_flow.declare.connection.frame_methods import FrameMethods
from ematix_flow.declare.connection.registry import dsn_of
from ematix_flow.declare.table.spec import table_from_spec
from ematix_flow.errors import RunError
from ematix_flow.plan.post_steps import first_keyword

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from ematix_flow.connect.base.database import Database
    from ematix_flow.connect.base.session import Session
    from ematix_flow.declare.connection.registry import Connection as Declared

ENGINE = "ematix_flow.engine"
"""Imported at the call: a load passes this object to functions of the user, which may start loads with it again."""

ROW_WORK = (
    "select",
    "with",
    "values",
    "insert",
    "update",
    "delete",
    "replace",
    "merge",
    "call",
    "set",
    "explain",
    "show",
)
"""First words of statements that stay inside a transaction on databases that commit at any DDL."""


class Connection(FrameMethods):
    """SQL on one database, opened at the first use."""

    def __init__(self, database: Database, declared: Declared) -> None:
        self._database = database
        self._declared = declared
        self._session: Session | None = None
        self._within = False

    @property
    def connection_ref(self) -> Declared:
        """Return the declared connection behind this handle."""
        return self._declared

    @property
    def database(self) -> Database:
        """Return the system behind this handle."""
        return self._database

    @property
    def in_transaction(self) -> bool:
        """Return whether a transaction of this handle is open."""
        return self._within

    def session(self) -> Session:
        """Return the open session."""
        if self._session is None:
            self._session = self._database.session()
        return self._session

    @contextmanager
    def _translating_errors(self) -> Iterator[Session]:
        """Run a block whose driver errors become ours, without secrets."""
        try:
            yield self.session()
        except self._database.errors as error:
            raise RunError(safe_text(error)) from None

    def connection_info(self) -> dict[str, object]:
        """Return host, port, dbname and user."""
        return dict(self._database.info())

    def dialect(self) -> str:
        """Return the name of the database's SQL."""
        return self._database.dialect

    def dsn(self) -> str | None:
        """Return the address with its secrets; it is the user's own."""
        return dsn_of(self._declared)

    def ping(self) -> None:
        """Check that the database answers."""
        with self._translating_errors() as session:
            session.query("SELECT 1")

    def execute(self, sql: str) -> int:
        """Run one statement and return the number of rows it changed."""
        with self._translating_errors() as session:
            if (
                self._within
                and not self._database.capabilities.transactional_ddl
                and first_keyword(sql) not in ROW_WORK
            ):
                # What this database would do by itself, made explicit: earlier statements are committed.
                session.commit()
                changed = session.execute(sql)
                session.begin()
                return changed
            return session.execute(sql)

    def execute_in_transaction(self, statements: Sequence[str]) -> None:
        """Run statements in one transaction, all of them or none; inside a post step it is the step's own."""
        with nullcontext() if self._within else self.transaction():
            for statement in statements:
                self.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a block in one transaction; any error inside rolls back all of it."""
        with self._translating_errors() as session, transaction(session):
            self._within = True
            try:
                yield
            finally:
                self._within = False

    def fetch_scalar_int(self, sql: str) -> int | None:
        """Return the first value of the first row as a number."""
        with self._translating_errors() as session:
            rows = session.query(sql)
        return None if not rows or rows[0][0] is None else int(rows[0][0])

    def query(self, sql: str, max_rows: int | None = None) -> dict[str, Any]:
        """Return columns, rows and whether rows were left off; a sample, not a way to move data."""
        with self._translating_errors() as session:
            columns = self._database.describe(session, sql.strip().rstrip(";"))
            session.show_all_values()
            rows = session.query(sql)
        returned = rows if max_rows is None else rows[:max_rows]
        labels = {"integer": "int", "decimal": "double", "float": "double", "boolean": "bool", "binary": "binary"}
        labels |= {"timestamp": "timestamp", "timestamp_tz": "timestamp", "date": "timestamp"}
        return {
            "columns": [{"name": c.name, "type": labels.get(c.family, "string")} for c in columns],
            "rows": [[_json_value(value) for value in row] for row in returned],
            "truncated": len(returned) < len(rows),
        }

    def read_watermark(self, pipeline_name: str) -> dict[str, str] | None:
        """Return how far a pipeline has read, or None."""
        ledger = Ledger(self._database)
        with self._translating_errors() as session:
            watermark = ledger.watermark(session, pipeline_name) if ledger.exists(session) else None
        if watermark is None:
            return None
        return {"pipeline_name": pipeline_name, "column_name": watermark.column, "last_value": watermark.value}

    def ensure_table(self, spec_json: str | dict[str, Any], on_drift: str = "error") -> dict[str, Any]:
        """Create the table of a spec where it is missing; return the action and the differences."""
        result: dict[str, Any] = _engine().ensure_table(table_from_spec(spec_json), self, on_drift)
        return result

    def record_transform_history(  # noqa: PLR0913 - the columns of one history row
        self,
        run_id: str,
        pipeline_name: str,
        step_name: str,
        status: str = "transform_success",
        *,
        started_at: datetime | None = None,
        finished_at: datetime | None = None,
        parent_run_id: str | None = None,
        error_message: str | None = None,
        metrics_json: str | None = None,
    ) -> None:
        """Write one step into the run history of this database."""
        now = SYSTEM_CLOCK.now()
        row = HistoryRow(
            run_id=run_id,
            pipeline=pipeline_name,
            schema="",
            table="",
            mode="transform",
            path="post",
            started_at=started_at or now,
            status=status,
            finished_at=finished_at or now,
            error=error_message,
            parent_run_id=parent_run_id,
            step=step_name,
            metrics=metrics_json,
        )
        ledger = Ledger(self._database)
        with self._translating_errors() as session:
            ledger.ensure(session)
            with transaction(session):
                ledger.record(session, row)

    def run_append(self, target: Any, source: Any, **keywords: Any) -> dict[str, Any]:
        """Append a source to a table of this database and return the result."""
        return self._run("append", target, source, keywords)

    def run_truncate(self, target: Any, source: Any, **keywords: Any) -> dict[str, Any]:
        """Replace the rows of a table of this database and return the result."""
        return self._run("truncate", target, source, keywords)

    def run_merge(self, target: Any, source: Any, **keywords: Any) -> dict[str, Any]:
        """Merge a source into a table of this database and return the result."""
        return self._run("merge", target, source, keywords)

    def run_scd2(self, target: Any, source: Any, **keywords: Any) -> dict[str, Any]:
        """Add versions to a table of this database and return the result."""
        return self._run("scd2", target, source, keywords)

    def _run(self, mode: str, target: Any, source: Any, keywords: dict[str, Any]) -> dict[str, Any]:
        table = table_from_spec(target) if isinstance(target, str | dict) else target
        result: dict[str, Any] = _engine().sync(
            target=table, source=source, target_connection=self, mode=mode, **keywords
        )
        return result

    def close(self) -> None:
        """Close the session if one was opened."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def __repr__(self) -> str:
        return f"<connection {self._declared.name!r} ({self._database.kind})>"


class PlaceholderConnection:
    """Stands for a connection while only a plan is requested; any use raises."""

    def __init__(self, reference: str | Declared) -> None:
        self.connection_ref = reference
        self._name = reference if isinstance(reference, str) else reference.name

    def __getattr__(self, attribute: str) -> Any:
        message = f"connection {self._name!r} is not open while a plan is previewed (its {attribute} was used)"
        raise RunError(message, hint="compute the SQL without asking the database, or use dry-run.")


def _engine() -> ModuleType:
    return importlib.import_module(ENGINE)


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, dict | list | tuple):
        return str(written(tree(value)))
    return value if isinstance(value, int | float | str | bool | type(None)) else str(value)
