"""A run log in a database: every change is one statement that names what it replaces, so that no lock is ever held."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from ematix_flow.commit.runlog.backend import ACTIVE, RUNNING, RunLogBackend, last_of
from ematix_flow.commit.runlog.records import columns_of, format_instant, from_values, key_of, values_of, with_version
from ematix_flow.commit.runlog.sql.pool import SessionPool
from ematix_flow.commit.runlog.sql.tables import RUN_COLUMNS, RUNS
from ematix_flow.connect.base.retry import RUN_LOG_TABLES, attempts
from ematix_flow.errors import DeclareError
from ematix_flow.records import RunRecord, record_key, split_key

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ematix_flow.commit.runlog.backend import RunFilter
    from ematix_flow.commit.runlog.records import R, Record
    from ematix_flow.commit.runlog.sql.pool import SqlConnector
    from ematix_flow.commit.runlog.sql.tables import Tables
    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.sqlite.session import SQLiteSession

_MANY = 1000
"""Attempts that are read to find out whether they are all of one run."""

_TOGETHER = 100
"""Pipelines whose newest runs are selected by one statement."""

_CLOCKS = {
    "postgres": """SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US')""",
    "mysql": "SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%f')",
}
"""A server's own time; files have that of the machine."""


class SqlBackend(RunLogBackend):
    """Tables in one database."""

    def __init__(self, connector: SqlConnector, tables: Tables, *, create: bool = True) -> None:
        self._connector = connector
        self._tables = tables
        self._create = create
        self._sessions = SessionPool(connector)

    @property
    def display_address(self) -> str:
        """Return the database for people."""
        return self._connector.display_address

    @property
    def path(self) -> Path | None:
        """Return the file."""
        return self._connector.path

    def _session(self) -> AbstractContextManager[Session]:
        return self._sessions.one()

    def close(self) -> None:
        """Close the connections that are idle."""
        self._sessions.close()

    # Tables

    def ensure(self) -> None:
        """Create the tables and columns that are missing, unless that is forbidden."""
        with self._session() as session:
            missing = self._tables.missing(session)
            if not missing:
                return
            if not self._create:
                raise self._incomplete(missing)
            if self._tables.dialect == "sqlite":
                cast("SQLiteSession", session).keep_write_ahead_log()
        for attempt in attempts(RUN_LOG_TABLES):
            with attempt, self._session() as session:
                self._tables.complete(session)

    def ddl(self) -> str:
        """Return the statements that create the tables."""
        return "".join(f"{statement};\n" for statement in self._tables.ddl())

    def _incomplete(self, missing: list[str]) -> DeclareError:
        message = f"the run log {self.display_address} lacks {', '.join(missing)}, and create_tables=false forbids to make them"
        hint = "ematix_flow.run_log.ddl(URL) gives the statements; run them, or leave create_tables=false out."
        return DeclareError(message, hint=hint)

    def now(self) -> datetime:
        """Return the time of the server; a file has that of this machine."""
        clock = _CLOCKS.get(self._tables.dialect)
        if clock is None:
            return datetime.now(UTC)
        with self._session() as session:
            return datetime.fromisoformat(str(session.query(clock)[0][0])).replace(tzinfo=UTC)

    # Records

    def find(self, kind: type[R], key: tuple[str, ...]) -> R | None:
        """Select one row."""
        with self._session() as session:
            rows = session.query(f"{self._select(kind)} WHERE {self._same(kind.key)}", key)
        return from_values(kind, rows)[0] if rows else None

    def all(self, kind: type[R]) -> list[R]:
        """Select every row at once."""
        with self._session() as session:
            rows = session.query(f"{self._select(kind)} ORDER BY {self._tables.columns(kind.key)}")
        return from_values(kind, rows)

    def swap(self, before: R | None, after: R) -> R | None:
        """Insert a row, or update exactly the version that is to be replaced."""
        with self._session() as session:
            return self._inserted(session, after) if before is None else self._updated(session, before, after)

    def _inserted(self, session: Session, after: R) -> R | None:
        # A key that comes back after it was dropped must not have a version that another process still holds.
        stored = with_version(after, time.time_ns() // 1000)
        names = tuple(name for name, _ in columns_of(type(after)))
        placeholders = ", ".join("?" for _ in names)
        sql = f"INSERT INTO {self._name(after)} ({self._tables.columns(names)}) VALUES ({placeholders})"
        try:
            session.execute(sql, values_of(stored))
        except self._connector.errors as error:
            if self._connector.is_duplicate_key(error):
                return None
            raise
        return stored

    def _updated(self, session: Session, before: R, after: R) -> R | None:
        stored = with_version(after, before.version + 1)
        columns = [(n, v) for (n, _), v in zip(columns_of(type(after)), values_of(stored), strict=True)]
        changed = [(name, value) for name, value in columns if name not in type(after).key]
        assignments = ", ".join(f"{self._tables.quote(name)} = ?" for name, _ in changed)
        sql = f"UPDATE {self._name(after)} SET {assignments} WHERE {self._same((*type(after).key, 'version'))}"
        values = (*(value for _, value in changed), *key_of(after), before.version)
        return stored if session.execute(sql, values) else None

    def drop(self, record: Record) -> bool:
        """Delete exactly this version."""
        sql = f"DELETE FROM {self._name(record)} WHERE {self._same((*type(record).key, 'version'))}"
        with self._session() as session:
            return bool(session.execute(sql, (*key_of(record), record.version)))

    def _name(self, record: Record) -> str:
        return self._tables.name(type(record).table)

    def _select(self, kind: type[Record]) -> str:
        names = tuple(name for name, _ in columns_of(kind))
        return f"SELECT {self._tables.columns(names)} FROM {self._tables.name(kind.table)}"

    def _same(self, names: tuple[str, ...]) -> str:
        return " AND ".join(f"{self._tables.quote(name)} = ?" for name in names)

    # Runs

    def put_run(self, run: RunRecord) -> None:
        """Insert a run or replace the one of its id."""
        columns, quote = self._tables.columns(RUN_COLUMNS), self._tables.quote
        placeholders = ", ".join("?" for _ in RUN_COLUMNS)
        others = [quote(name) for name in RUN_COLUMNS if name != "run_id"]
        if self._tables.dialect == "mysql":
            clause = "ON DUPLICATE KEY UPDATE " + ", ".join(f"{name} = VALUES({name})" for name in others)
        else:
            clause = "ON CONFLICT (run_id) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in others)
        known = {"run_id": record_key(run), "extras": json.dumps(run.extras, default=str)}
        values = [known[name] if name in known else getattr(run, name) for name in RUN_COLUMNS]
        with self._session() as session:
            session.execute(
                f"INSERT INTO {self._tables.name(RUNS)} ({columns}) VALUES ({placeholders}) {clause}", values
            )

    def put_progress(self, run: RunRecord) -> None:
        """Update the row by one statement that requires its status."""
        sql = f"UPDATE {self._tables.name(RUNS)} SET extras = ? WHERE run_id = ? AND status = ?"
        with self._session() as session:
            session.execute(sql, (json.dumps(run.extras, default=str), record_key(run), RUNNING))

    def runs(self, run_filter: RunFilter) -> tuple[list[RunRecord], int]:
        """Count the runs and select one page of them."""
        named = (
            ("pipeline", run_filter.pipeline),
            ("status", run_filter.status),
            ("request_id", run_filter.request_id),
        )
        filters = {name: value for name, value in named if value}
        conditions = [f"{self._tables.quote(name)} = ?" for name in filters] + self._of_projects(run_filter.projects)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        values = (*filters.values(), *(run_filter.projects or ()))
        if run_filter.since is not None:
            where = f"{where} AND started_at >= ?" if where else " WHERE started_at >= ?"
            values = (*values, _second(run_filter.since))
        page = f"{where} ORDER BY started_at DESC, run_id DESC LIMIT {int(run_filter.limit)} OFFSET {int(run_filter.offset)}"
        with self._session() as session:
            rows = session.query(f"{self._select_runs()}{page}", values)
            total = len(rows)
            if run_filter.counted:
                total = session.query(f"SELECT COUNT(*) FROM {self._tables.name(RUNS)}{where}", values)[0][0]
        return [_run(row) for row in rows], int(total)

    def newest_runs(
        self, pipelines: Sequence[str], limit: int, projects: tuple[str, ...] | None = None
    ) -> list[RunRecord]:
        """Select the newest runs of many pipelines at once, each by the index of its own."""
        conditions = " AND ".join(["pipeline = ?", *self._of_projects(projects)])
        newest = f"{self._select_runs()} WHERE {conditions} ORDER BY started_at DESC, run_id DESC LIMIT {int(limit)}"
        rows: list[tuple[Any, ...]] = []
        with self._session() as session:
            for start in range(0, len(pipelines), _TOGETHER):
                some = pipelines[start : start + _TOGETHER]
                sql = " UNION ALL ".join(f"SELECT * FROM ({newest}) AS n{number}" for number in range(len(some)))
                rows += session.query(sql, [value for name in some for value in (name, *(projects or ()))])
        return [_run(row) for row in rows]

    def count_outcomes(self, since: datetime, projects: tuple[str, ...] | None = None) -> dict[tuple[str, str], int]:
        """Count by one statement."""
        conditions = " AND ".join(["started_at >= ?", *self._of_projects(projects)])
        sql = (
            f"SELECT pipeline, status, COUNT(*) FROM {self._tables.name(RUNS)} WHERE {conditions} "
            "GROUP BY pipeline, status"
        )
        with self._session() as session:
            rows = session.query(sql, (_second(since), *(projects or ())))
        return {(str(pipeline), str(status)): int(count) for pipeline, status, count in rows}

    def run(self, run_id: str, projects: tuple[str, ...] | None = None) -> RunRecord | None:
        """Select the id itself with its other attempts, then those that begin like it."""
        whole, number = split_key(run_id)
        with self._session() as session:
            if number == "#1":
                return last_of(self._matching_runs(session, "run_id = ?", (whole,), projects))
            matches = self._matching_runs(session, "run_id = ?", (run_id,), projects)
            if matches and matches[0].run_id == run_id and matches[0].request_id:
                known = (matches[0].request_id, matches[0].target)
                again = self._matching_runs(session, self._same(("request_id", "target")), known, projects)
                matches += [run for run in again if run.run_id == run_id]
            if not matches:
                like = self._matching_runs(session, f"substr(run_id, 1, {len(run_id)}) = ?", (run_id,), projects)
                matches = [run for run in like if run.run_id == run_id] or like
        return last_of(matches)

    def _matching_runs(
        self, session: Session, condition: str, values: tuple[str, ...], projects: tuple[str, ...] | None
    ) -> list[RunRecord]:
        where = " AND ".join([condition, *self._of_projects(projects)])
        sql = f"{self._select_runs()} WHERE {where} ORDER BY run_id LIMIT {_MANY}"
        return [_run(row) for row in session.query(sql, (*values, *(projects or ())))]

    def _of_projects(self, projects: tuple[str, ...] | None) -> list[str]:
        """Return the condition that a run is of one of some projects; rows of earlier versions have none."""
        if projects is None:
            return []
        placeholders = ", ".join("?" for _ in projects)
        return [f"(project IN ({placeholders}){' OR project IS NULL' if '' in projects else ''})"]

    def last_attempt(self, request_id: str, target: str | None) -> int:
        """Select the highest number."""
        filters = {"request_id": request_id} | ({} if target is None else {"target": target})
        sql = f"SELECT COALESCE(MAX(attempt), 0) FROM {self._tables.name(RUNS)} WHERE {self._same(tuple(filters))}"
        with self._session() as session:
            return int(session.query(sql, tuple(filters.values()))[0][0])

    def forget_runs(self, before: datetime, runs: Collection[str], requests: Collection[str]) -> int:
        """Delete old runs by one statement."""
        with self._session() as session:
            again = session.query(
                f"SELECT run_id, attempt FROM {self._tables.name(RUNS)} WHERE started_at < ? AND attempt > 1",
                (format_instant(before),),
            )
            keys = {*runs, *(str(key) for key, attempt in again if str(key).removesuffix(f"#{attempt}") in runs)}
            protected = [("run_id", sorted(keys)), ("request_id", sorted(requests)), ("status", list(ACTIVE))]
            conditions, values = ["started_at < ?"], [format_instant(before)]
            for name, those in protected:
                if those:
                    placeholders = ", ".join("?" for _ in those)
                    conditions.append(f"({name} IS NULL OR {name} NOT IN ({placeholders}))")
                    values += those
            return session.execute(f"DELETE FROM {self._tables.name(RUNS)} WHERE {' AND '.join(conditions)}", values)

    def _select_runs(self) -> str:
        return f"SELECT {self._tables.columns(RUN_COLUMNS)} FROM {self._tables.name(RUNS)}"


def _second(at: datetime) -> str:
    """Return an instant to the second: some are written without a fraction, which would sort before one."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"


def _run(row: tuple[Any, ...]) -> RunRecord:
    values = {name: value for name, value in zip(RUN_COLUMNS, row, strict=True) if value is not None}
    values["extras"] = json.loads(values.get("extras") or "{}")
    values["run_id"] = values["run_id"].removesuffix(f"#{values.get('attempt', 1)}")
    return RunRecord(**values)
