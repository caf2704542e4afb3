"""PostgreSQL: rows by binary COPY into an unlogged staging table, applied by the driver in one transaction."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from ematix_flow.connect.base.columns import ColumnSchema, SourceColumn, TableName, TableSchema
from ematix_flow.connect.base.database import Database
from ematix_flow.connect.base.session import Opened, Split
from ematix_flow.connect.base.target import RelayTarget
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.postgres import POSTGRES, types
from ematix_flow.connect.postgres import stager as staging
from ematix_flow.connect.postgres.copy_relay import relay_errors, relay_query, relay_rows
from ematix_flow.connect.postgres.existing_types import PostgresTypes
from ematix_flow.connect.postgres.session import PostgresSession, is_transient
from ematix_flow.connect.postgres.splits import split_query
from ematix_flow.connect.types.fingerprint import format_fingerprint, qualified
from ematix_flow.connect.types.identifiers import quoted
from ematix_flow.errors import DeclareError, RunError, StagingLostError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.connect.base.stage import Stager, StageSpec, WorkTable
    from ematix_flow.declare.connection.registry import PostgresConnection
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import TaskReport

DROP_WAIT = "5s"

_LINK = {
    "connect_timeout": "10",
    "keepalives": "1",
    "keepalives_idle": "20",
    "keepalives_interval": "10",
    "keepalives_count": "4",
    "tcp_user_timeout": "60000",
    "application_name": "ematix-flow",
}
"""Deadlines of every connection, unless its URL sets others."""

_PROBLEMS = {
    "v": "it is a view",
    "m": "it is a materialized view",
    "f": "it is a foreign table, whose rows another server commits",
}


class Postgres(Database, RelayTarget):
    """A PostgreSQL database."""

    kind = "postgres"
    dialect = "postgres"
    existing = PostgresTypes()
    task_imports = ("ematix_flow.connect.postgres.reader", "adbc_driver_postgresql")
    capabilities = POSTGRES.capabilities

    def __init__(self, connection: PostgresConnection) -> None:
        self.name = connection.name
        self.timezone = connection.timezone
        self._url = connection.url

    def __repr__(self) -> str:
        return f"Postgres({self.name!r})"

    # Identity and health

    def conninfo(self) -> str:
        """Return the connection string with deadlines; it holds the password."""
        return make_conninfo(**{**_LINK, **self._settings()})

    def _settings(self) -> dict[str, Any]:
        try:
            return conninfo_to_dict(self._url)
        except psycopg.ProgrammingError as error:
            # libpq repeats parts of the URL, and which part is the password is what it could not parse.
            known = str(error).startswith("invalid URI query parameter")
            what = str(error).strip() if known else "it is not a valid URL"
            hint = "write postgresql://user:password@host:5432/database, with special characters percent-encoded."
            raise DeclareError(f"postgres connection {self.name!r} cannot be used: {what}", hint=hint) from None

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when one can see and do exactly what the other can."""
        settings = self._effective()
        named = ("service", "host", "hostaddr", "port", "dbname", "user", "options")
        return ("postgres", *(str(settings.get(key) or "") for key in named))

    def info(self) -> Mapping[str, object]:
        """Return the location and the user."""
        settings = self._effective()
        port = str(settings.get("port") or "")
        return {
            "host": settings.get("host") or settings.get("hostaddr"),
            "port": int(port) if port.isdigit() else port or None,
            "dbname": settings.get("dbname"),
            "user": settings.get("user"),
        }

    def _effective(self) -> dict[str, Any]:
        """Return the settings with what the environment and the library fill in."""
        defaults = {o.keyword.decode(): o.val.decode() for o in Conninfo.get_defaults() if o.val is not None}
        settings = {**defaults, **self._settings()}
        return {**settings, "dbname": settings.get("dbname") or settings.get("user")}

    def session(self) -> PostgresSession:
        """Open a control connection in UTC, with deadlines and durable commits."""
        conninfo = self.conninfo()
        try:
            connection = psycopg.connect(
                conninfo, autocommit=True, prepare_threshold=None, cursor_factory=psycopg.RawCursor
            )
        except psycopg.OperationalError as error:
            if not is_transient(error):
                raise
            raise TransientError(f"postgres connection {self.name!r} does not work: {safe_text(error)}") from None
        session = PostgresSession(connection, conninfo)
        try:
            session.prepare()
        except BaseException:
            session.close()
            raise
        return session

    def probe(self) -> str:
        """Connect and return the server's version."""
        try:
            with closing(self.session()) as session:
                return f"PostgreSQL {session.query('SHOW server_version')[0][0]}"
        except psycopg.Error as error:
            kind = TransientError if is_transient(error) else DeclareError
            raise kind(f"postgres connection {self.name!r} does not work: {safe_text(error)}") from None

    def is_transient(self, error: BaseException) -> bool:
        """Lost connections, conflicts, lock waits and exhausted servers may be gone the next time."""
        return is_transient(error)

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether a unique constraint was violated."""
        return getattr(error, "sqlstate", None) == "23505"

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions of the control driver and of the Arrow driver."""
        import adbc_driver_manager

        return (psycopg.Error, adbc_driver_manager.Error)

    # Tables

    def table_name(self, schema: str, name: str) -> TableName:
        """PostgreSQL has real schemas."""
        return TableName(schema, name)

    def metadata_table(self, name: str) -> TableName:
        """Our own tables live in the schema ematix_flow."""
        return TableName("ematix_flow", name)

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the DDL type; keys need no other."""
        del in_key
        return types.ddl_type(column_type)

    def create_schema(self, session: Session, schema: str) -> None:
        """Create the schema when it is missing; an existing one needs no right to create any."""
        if session.query("SELECT 1 FROM pg_namespace WHERE nspname = ?", (schema,)):
            return
        try:
            session.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        except psycopg.errors.UniqueViolation:
            # Another run created it at the same time.
            session.rollback()

    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe a table from the catalog."""
        named = (qualified(table),)
        entries = session.query("SELECT oid, relkind, relpersistence FROM pg_class WHERE oid = to_regclass(?)", named)
        if not entries:
            return None
        oid, kind, persistence = entries[0]
        columns = session.query(
            "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull, "
            "CASE typtype WHEN 'd' THEN format_type(typbasetype, typtypmod) ELSE '' END "
            "FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
            "WHERE attrelid = ?::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (oid,),
        )
        keys = session.query(
            "SELECT i.indisprimary, array_agg(a.attname::text ORDER BY k.place) FROM pg_index i "
            "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indrelid = ?::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL "
            "AND i.indexprs IS NULL AND k.place <= i.indnkeyatts GROUP BY i.indexrelid, i.indisprimary "
            "ORDER BY i.indexrelid",
            (oid,),
        )
        return TableSchema(
            columns=tuple(ColumnSchema(n, types.spelled(t), bool(null), types.spelled(b)) for n, t, null, b in columns),
            primary_key=next((tuple(names) for primary, names in keys if primary), ()),
            unique=tuple(tuple(names) for primary, names in keys if not primary),
            problem=_problem(str(kind), str(persistence)),
        )

    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Add up a hash of every row, in whatever order they come."""
        return format_fingerprint(
            session.query(types.fingerprint_sql(self.find_table(session, table), qualified(table), columns))
        )

    def begin_alone(self, session: Session, tables: Sequence[TableName]) -> None:
        """Let others read the tables meanwhile, but not write."""
        session.begin()
        for table in tables:
            session.execute(f"LOCK TABLE {qualified(table)} IN SHARE ROW EXCLUSIVE MODE")

    def widening(self, existing: str, declared: str) -> bool:
        """Integers, floats, decimals and texts may grow."""
        return types.widening(existing, declared)

    def alter_type_sql(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that widens a column."""
        del nullable
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {declared}"

    # Reading

    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Return the columns of a query from its description; domains count as what they are made of."""
        columns = _postgres_session(session).columns(sql)
        rows = session.query(
            "SELECT format_type(t.type, t.modifier) FROM unnest(?::oid[], ?::int[]) WITH ORDINALITY "
            "AS t(type, modifier, place) ORDER BY place",
            ([oid for _, oid, _ in columns], [modifier for _, _, modifier in columns]),
        )
        natives = [types.spelled(str(row[0])) for row in rows]
        return tuple(SourceColumn(c[0], types.family(n), n) for c, n in zip(columns, natives, strict=True))

    def interchange(self, column: SourceColumn, expression: str) -> str:
        """Return the expression that Arrow carries exactly; local times become instants when the zone is known."""
        return types.interchange(column, expression)

    def open_read(self, session: Session, sql: str, parallel: int) -> Opened:
        """Export a snapshot for all splits; it lives, with locks on the tables, until the read is closed."""
        return self.open_reads(session, (sql,), parallel)[0]

    def open_reads(self, session: Session, queries: Sequence[str], parallel: int) -> tuple[Opened, ...]:
        """Export one snapshot for all splits of all queries; the first read keeps it."""
        exact = [self._exact(session, sql) for sql in queries]
        splits = [split_query(_postgres_session(session), sql, parallel) for sql in exact]
        holder = self.session()
        try:
            holder.execute("SET idle_in_transaction_session_timeout = 0")
            holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # Planning locks the tables against anything that would move rows to other pages or change their columns.
            for sql in exact:
                self.explain(holder, sql)
            snapshot = holder.export_snapshot()
        except BaseException:
            holder.close()
            raise
        opened = tuple(Opened(tuple(Split(query, snapshot) for query in cut)) for cut in splits)
        opened[0].resources = closing(holder)
        return opened

    def _exact(self, session: Session, sql: str) -> str:
        """Return the query with every column in its interchange form, whatever the shape made of it."""
        columns = self.describe(session, sql)
        inner = [f'"{number}"' for number in range(len(columns))]
        read = [self.interchange(column, name) for column, name in zip(columns, inner, strict=True)]
        if read == inner:
            return sql
        listed = ", ".join(f"{r} AS {quoted(c.name)}" for r, c in zip(read, columns, strict=True))
        return f"SELECT {listed} FROM (\n{sql}\n) AS _read({', '.join(inner)})"

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Read one split through the exported snapshot."""
        from ematix_flow.connect.postgres.reader import read_rows

        return read_rows(self.conninfo(), split)

    # Staging

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Create the staging tables of a load; a crash of the server may empty them, which the commit notices."""
        self.create_schema(session, staging.STAGE_SCHEMA)
        session.execute(staging.create_sql(spec))
        return spec

    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Open staging for one attempt; the connection is made when there are rows."""
        del partition
        from ematix_flow.connect.postgres.reader import PostgresStager

        return PostgresStager(self.conninfo(), spec, attempt)

    def relays(self, source: SqlSource, session: Session, split: Split, spec: StageSpec) -> bool:
        """Return whether a split's rows are already what staging holds, so that `relay` may pass them unread."""
        if not isinstance(source, Postgres):
            return False
        return relay_query(source.describe(session, split.sql), spec, split.sql, 0) is not None

    def relay(
        self, source: SqlSource, split: Split, spec: StageSpec, attempt: int, count: Callable[[int], None]
    ) -> int:
        """Stage a split by passing on its bytes, and return the number of rows; runs inside a task.

        Values are checked by the staging table alone: what it refuses has to be read to find the bad rows.
        """
        with relay_errors(), closing(_postgres_session(source.session())) as reader, closing(self.session()) as writer:
            if split.snapshot:
                reader.join_snapshot(split.snapshot)
            query = relay_query(source.describe(reader, split.sql), spec, split.sql, attempt)
            if query is None:
                raise RunError("the source's columns changed while it was read", hint="run the load again.")
            writer.begin()
            rows = relay_rows(reader, query, writer, staging.rows_table(spec.name), count)
            failpoint("stage.before_task_commit")
            writer.commit()
            return rows

    def verify_stage(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> None:
        """Count rows and rejects of the named attempts, and let the planner know what is there."""
        try:
            counted = session.query(staging.counts_sql(spec, reports))
        except psycopg.errors.UndefinedTable:
            message = f"staging {spec.name} is gone"
            raise StagingLostError(message, hint="it was dropped from outside; run the load again.") from None
        staging.compare(spec, reports, {(str(what), int(attempt)): int(rows) for what, attempt, rows in counted})
        if sum(report.rows for report in reports) >= staging.ANALYZE_ROWS:
            session.execute(staging.analyze_sql(spec))

    def staged_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Return the rows of exactly the named attempts, in the types that the commit works with."""
        del session
        return staging.staged_sql(spec, reports)

    def reject_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Return the rejects of exactly the named attempts."""
        del session
        return staging.rejects_sql(spec, reports)

    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Remove the staging tables; a frozen task that still holds one makes this an error soon."""
        session.begin()
        try:
            session.execute(f"SET LOCAL lock_timeout = '{DROP_WAIT}'")
            both = f"{staging.rows_table(spec.name)}, {staging.rejects_table(spec.name)}"
            session.execute(f"DROP TABLE IF EXISTS {both}")
            session.commit()
        except BaseException:
            session.rollback()
            raise

    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List the staging tables that we made, with their age by the database's clock."""
        return [(str(name), float(age)) for name, age in session.query(staging.STAGES_SQL)]

    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Create a temporary table; it ends with the session."""
        del incarnation
        columns = ", ".join(f"{quoted(c.name)} {types.work_type(c.type)}" for c in table.columns)
        name = f"pg_temp.{quoted(table.name)}"
        session.execute(f"DROP TABLE IF EXISTS {name}; CREATE TEMPORARY TABLE {quoted(table.name)} ({columns})")
        return name


def _problem(kind: str, persistence: str) -> str:
    if kind in _PROBLEMS:
        return _PROBLEMS[kind]
    # The ledger survives a crash of the server, so the rows it refers to have to.
    return "it is UNLOGGED, a crash of the server empties it; ALTER TABLE ... SET LOGGED" if persistence == "u" else ""


def _postgres_session(session: Session) -> PostgresSession:
    assert isinstance(session, PostgresSession)  # noqa: S101 - sessions come from session() above
    return session
