"""The ledger in the target: fences, tokens, watermarks, loaded files and run history; neither rejects nor user rows."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ematix_flow.commit.interrupts import uninterrupted
from ematix_flow.errors import CommitError, FencedError
from ematix_flow.failpoints import failpoint
from ematix_flow.plan.metadata_tables import COLUMNS, FORMAT, TABLES, create_metadata_sql, metadata_table
from ematix_flow.plan.sql.render import instant, native_column, native_name
from ematix_flow.records import Committed, Counts, Fence, SourceFile, SourceWatermark, run_tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.target import TargetSystem
    from ematix_flow.plan.steps import FileChoice
    from ematix_flow.records import FileScope, Token


T = TypeVar("T")

AT_ONCE = 200
"""Values of one statement."""


PLANNED = "planned"
"""Status of a run whose rows are staged and wait until they are applied."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row of the run history, as far as it is known when it is written."""

    run_id: str
    pipeline: str
    schema: str
    table: str
    mode: str
    path: str
    started_at: datetime
    status: str
    finished_at: datetime | None = None
    counts: Counts | None = None
    error: str | None = None
    parent_run_id: str | None = None
    step: str | None = None
    metrics: str | None = None
    engine: str = ""
    """The engine that moved the rows, which the history stores with what was measured; empty before there is a plan."""
    engine_reason: str = ""


class Ledger:
    """The metadata tables of one database."""

    def __init__(self, database: TargetSystem) -> None:
        self.database = database.metadata_store
        self.dialect = self.database.dialect

    def name(self, table: str) -> str:
        """Return the SQL name of one of our tables."""
        return native_name(self.database.metadata_table(table), self.dialect)

    def exists(self, session: Session, table: str = "rejects") -> bool:
        """Return whether this database has our tables; those of an older version may lack the newest."""
        return self.database.find_table(session, self.database.metadata_table(table)) is not None

    def ensure(self, session: Session) -> None:
        """Create our tables when they are missing; safe when two runs do it at once."""
        if self.exists(session, TABLES[-1]) and self._is_complete(session, "rejects"):
            return
        try:
            self._create(session)
        except self.database.errors:
            # A concurrent run created the same schema or table between our check and our statement.
            session.rollback()
            self._create(session)

    def _is_complete(self, session: Session, table: str) -> bool:
        """Return whether a table of this name has all columns that one of this version has."""
        existing = self.database.find_table(session, self.database.metadata_table(table))
        return existing is not None and {column.name for column in existing.columns} >= set(COLUMNS[table])

    def _create(self, session: Session) -> None:
        self.database.create_schema(session, self.database.metadata_table("ledger").schema)
        for table in TABLES:
            try:
                session.execute(create_metadata_sql(table, self.database))
                self._complete(session, table)
            except self.database.errors:
                # Of two runs that create all of them, the one behind may meet the other at every table.
                session.rollback()
                if not self._is_complete(session, table):
                    raise

    def _complete(self, session: Session, table: str) -> None:
        """Add the columns that a table of this name from before lacks; they are nullable, and its rows stay."""
        definition = metadata_table(table, self.database)
        existing = self.database.find_table(session, definition.place)
        have = {column.name for column in existing.columns} if existing is not None else set()
        for column in definition.columns:
            name = column.column.name
            if existing is not None and name not in have:
                native = native_column(name, self.dialect)
                kind = self.database.ddl_type(column.column.type)
                session.execute(f"ALTER TABLE {self.name(table)} ADD COLUMN {native} {kind}")

    # Fences

    def ensure_fence(self, session: Session, name: str, at: datetime) -> None:
        """Create the fence of a pipeline that runs for the first time; a concurrent run may do so at the same time."""
        fences = self.name("fences")
        if session.query(f"SELECT epoch FROM {fences} WHERE name = ?", (name,)):
            return
        try:
            with transaction(session):
                session.execute(f"INSERT INTO {fences} (name, epoch, taken_at) VALUES (?, 0, {self.at(at)})", (name,))
        except self.database.errors as error:
            if not self.database.is_duplicate_key(error):
                raise

    def take_fence(self, session: Session, name: str, at: datetime, other: str = "") -> Fence:
        """Return a new epoch; from now on every older holder is refused at its commit, also one under the other name."""
        fences = self.name("fences")
        now = self.at(at)
        # In one order, so that two runs that take both do not wait for each other.
        for one in sorted({name, other} - {""}):
            session.execute(f"UPDATE {fences} SET epoch = epoch + 1, taken_at = {now} WHERE name = ?", (one,))
        rows = session.query(f"SELECT epoch FROM {fences} WHERE name = ?", (name,))
        return Fence(name, int(rows[0][0]))

    def lock_fence(self, session: Session, fence: Fence) -> None:
        """Lock the fence row until the transaction ends, and refuse when a newer run holds it."""
        fences = self.name("fences")
        # A write locks the row on every database, also where SELECT ... FOR UPDATE does not exist.
        session.execute(f"UPDATE {fences} SET epoch = epoch WHERE name = ?", (fence.name,))
        rows = session.query(f"SELECT epoch FROM {fences} WHERE name = ?", (fence.name,))
        if not rows or int(rows[0][0]) != fence.epoch:
            message = f"a newer run of {fence.name} has taken over, this one may not commit"
            raise FencedError(message, hint="nothing was changed; running it again loads what the newer run has not.")

    # Tokens

    def insert_token(self, session: Session, token: Token, fence: Fence, schema_hash: str, at: datetime) -> None:
        """Write the token first: a duplicate of this load waits or fails here."""
        names = ("token", "pipeline_name", "target_name", "slot", "run_id", "epoch", "schema_hash", "format_version")
        session.execute(
            f"INSERT INTO {self.name('ledger')} ({', '.join(names)}, committed_at) "
            f"VALUES (?, ?, ?, ?, {self.uuid(token.run_id)}, ?, ?, ?, {self.at(at)})",
            (token.key, token.pipeline, token.target, token.slot, fence.epoch, schema_hash, FORMAT),
        )

    def finish_token(self, session: Session, token: Token, counts: Counts, lo: str | None, hi: str | None) -> None:
        """Complete the token's row with what the load did."""
        session.execute(
            f"UPDATE {self.name('ledger')} SET rows_staged = ?, rows_inserted = ?, rows_updated = ?, "
            "rows_unchanged = ?, rows_deleted = ?, rows_closed = ?, rows_rejected = ?, watermark_lo = ?, "
            "watermark_hi = ? WHERE token = ?",
            (
                counts.staged,
                counts.inserted,
                counts.updated,
                counts.unchanged,
                counts.deleted,
                counts.closed,
                counts.rejected,
                lo,
                hi,
                token.key,
            ),
        )

    def find(self, session: Session, token: Token) -> Committed | None:
        """Return the load of this token if it is committed."""
        rows = session.query(
            "SELECT rows_staged, rows_inserted, rows_updated, rows_unchanged, rows_deleted, rows_closed, "
            f"rows_rejected, {self.as_text('committed_at')}, format_version FROM {self.name('ledger')} WHERE token = ?",
            (token.key,),
        )
        if not rows:
            return None
        *numbers, at, version = rows[0]
        if int(version) > FORMAT:
            message = f"the ledger was written by a newer version (format {version}, this one knows {FORMAT})"
            raise CommitError(message, hint="upgrade ematix-flow-spark.")
        return Committed(token, token.run_id, Counts(*(int(n or 0) for n in numbers)), parse_instant(at), replayed=True)

    # Watermarks

    def watermark(self, session: Session, name: str) -> SourceWatermark | None:
        """Return how far a pipeline has read."""
        rows = session.query(
            f"SELECT column_name, last_value FROM {self.name('watermarks')} WHERE pipeline_name = ?", (name,)
        )
        return SourceWatermark(str(rows[0][0]), str(rows[0][1])) if rows else None

    def move_watermark(
        self, session: Session, name: str, before: SourceWatermark | None, after: SourceWatermark, at: datetime
    ) -> None:
        """Advance the watermark, but only from where this load started reading."""
        if self.watermark(session, name) != before:
            message = f"the watermark of {name} moved while this load was running"
            raise FencedError(message, hint="nothing was changed; run again to load what is new.")
        table, now = self.name("watermarks"), self.at(at)
        if before is None:
            session.execute(
                f"INSERT INTO {table} (pipeline_name, column_name, last_value, updated_at) VALUES (?, ?, ?, {now})",
                (name, after.column, after.value),
            )
        else:
            session.execute(
                f"UPDATE {table} SET column_name = ?, last_value = ?, updated_at = {now} WHERE pipeline_name = ?",
                (after.column, after.value, name),
            )

    # Files

    def loaded_files(self, session: Session, scope: FileScope) -> dict[str, SourceFile]:
        """Return the files that were loaded, by their ids."""
        if not self.exists(session, "loaded_files"):
            return {}
        # A range of the key, which every database finds by its index; g comes after every digit.
        rows = session.query(
            f"SELECT file_id, file_key, etag, size FROM {self.name('loaded_files')} WHERE file_id BETWEEN ? AND ?",
            (scope.prefix, f"{scope.prefix}g"),
        )
        return {str(row[0]): SourceFile(str(row[1]), str(row[2]), int(row[3])) for row in rows}

    def remember_files(self, session: Session, choice: FileChoice, token: Token, at: datetime) -> None:
        """Record the files of a load; one that is there already is refused, unless this load replaces it."""
        scope, table = choice.scope, self.name("loaded_files")
        outdated = [scope.id_of(file.key) for file in choice.reloaded]
        for ids in some_of(outdated):
            placeholders = ", ".join("?" for _ in ids)
            if session.execute(f"DELETE FROM {table} WHERE file_id IN ({placeholders})", ids) != len(ids):
                message = f"the loaded files of {scope.pipeline} changed while this load was running"
                raise FencedError(message, hint="nothing was changed; run again to load what is new.")
        row = f"(?, ?, ?, ?, ?, ?, {self.uuid(token.run_id)}, {self.at(at)})"
        names = "file_id, pipeline_name, target_name, file_key, etag, size, run_id, loaded_at"
        for files in some_of(choice.chosen):
            values = [
                value
                for file in files
                for value in (
                    scope.id_of(file.key),
                    scope.pipeline,
                    scope.table,
                    _storable_key(file.key),
                    file.etag,
                    file.size,
                )
            ]
            session.execute(f"INSERT INTO {table} ({names}) VALUES {', '.join([row] * len(files))}", values)

    # History

    def record(self, session: Session, row: HistoryRow) -> None:
        """Write or replace the history row of a run."""
        session.execute(f"DELETE FROM {self.name('run_history')} WHERE run_id = {self.uuid(row.run_id)}")
        counts = row.counts
        updated = None if counts is None else counts.updated + counts.closed
        values: dict[str, object] = {
            "pipeline_name": row.pipeline,
            "target_schema": row.schema,
            "target_table": row.table,
            "mode": row.mode,
            "path": row.path,
            "status": row.status,
            "rows_inserted": counts.inserted if counts else None,
            "error_message": row.error,
            "rows_updated": updated,
            "rows_unchanged": counts.unchanged if counts else None,
            "step_name": row.step,
            "metrics_json": row.metrics,
            "rows_deleted": counts.deleted if counts else None,
            "rows_rejected": counts.rejected if counts else None,
        }
        columns = [native_column(name, self.dialect) for name in values]
        finished = "NULL" if row.finished_at is None else self.at(row.finished_at)
        parent = "NULL" if row.parent_run_id is None else self.uuid(row.parent_run_id)
        session.execute(
            f"INSERT INTO {self.name('run_history')} (run_id, started_at, finished_at, parent_run_id, "
            f"{', '.join(columns)}) VALUES ({self.uuid(row.run_id)}, {self.at(row.started_at)}, {finished}, {parent}, "
            f"{', '.join('?' for _ in columns)})",
            tuple(values.values()),
        )

    def status_of(self, session: Session, run_id: str) -> str | None:
        """Return how a run ended or that it has not, None for one that the history does not have."""
        rows = session.query(
            f"SELECT status FROM {self.name('run_history')} WHERE CAST(run_id AS CHAR(36)) = ?", (run_id,)
        )
        return str(rows[0][0]) if rows else None

    def close_interrupted(self, session: Session, row: HistoryRow, other: str = "") -> None:
        """Record that older runs of this pipeline never ended; the fence of this run keeps them from committing.

        Under the other name of the target they are those into its table.
        """
        session.execute(
            f"UPDATE {self.name('run_history')} SET status = 'failed', finished_at = {self.at(row.started_at)}, "
            "error_message = 'interrupted' WHERE status = 'running' AND (pipeline_name = ? "
            "OR (pipeline_name = ? AND target_schema = ? AND target_table = ?))",
            (row.pipeline, other, row.schema, row.table),
        )

    def open_run_tags(self, session: Session) -> set[str]:
        """Return the tags in the names of staging of runs that have not ended, or that wait to be applied."""
        open_ = f"FROM {self.name('run_history')} WHERE status IN ('running', '{PLANNED}')"
        rows = session.query(f"SELECT {self.as_text('run_id')} {open_}")
        return {run_tag(str(row[0])) for row in rows}

    def at(self, at: datetime) -> str:
        """Return an instant as SQL."""
        # Spelled alike in canonical SQL and in every dialect, so it need not be rendered.
        return instant(at, self.dialect)

    def uuid(self, value: str) -> str:
        """Return an id as SQL."""
        return f"'{value}'" if self.dialect in ("mysql", "sqlite") else f"CAST('{value}' AS UUID)"

    def as_text(self, column: str) -> str:
        """Return a column as text, so that an instant comes back the same from every driver."""
        return f"CAST({column} AS CHAR)" if self.dialect == "mysql" else f"CAST({column} AS VARCHAR)"


def some_of(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return as many at a time as one statement takes."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def _storable_key(key: str) -> str:
    """Return a key as text that every database takes, also where a name is no text."""
    return key.encode(errors="backslashreplace").decode()


def parse_instant(value: Any) -> datetime:
    """Return an aware UTC instant for what a database shows as text."""
    from datetime import UTC
    from datetime import datetime as datetime_type

    text = str(value).strip()
    if text[-3:-2] in "+-" and text[-5:-4] != "-":
        text += ":00"
    parsed = datetime_type.fromisoformat(text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


@contextmanager
def transaction(session: Session) -> Iterator[None]:
    """Run a block in one transaction; any error inside rolls back all of it."""
    session.begin()
    try:
        yield
    except BaseException:
        session.rollback()
        raise
    with uninterrupted():
        session.commit()


def open_run(
    database: TargetSystem,
    token: Token,
    fence_name: str,
    history: HistoryRow,
    watermark_name: str,
    other_name: str = "",
) -> tuple[Fence, Committed | None, SourceWatermark | None]:
    """Take the fence, record the run as running and return what the ledger already has about its token.

    Runs under the other name of the target may not commit any more either.
    """
    ledger = Ledger(database)
    session = database.session()
    try:
        ledger.ensure(session)
        ledger.ensure_fence(session, fence_name, history.started_at)
        failpoint("token.before_insert")
        with transaction(session):
            fence = ledger.take_fence(session, fence_name, history.started_at, other_name)
            committed = ledger.find(session, token)
            watermark = ledger.watermark(session, watermark_name)
            if committed is None:
                ledger.close_interrupted(session, history, other_name)
                ledger.record(session, history)
        failpoint("token.after_insert")
    finally:
        session.close()
    return fence, committed, watermark
