"""MySQL and MariaDB as source and target: InnoDB only, staging in tables, a commit of nothing but work on rows.

Schemas are databases. Our own tables are in the connection's database, under names that begin with `ematix_flow_`.
All SQL here runs on MySQL 8 and MariaDB 10.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pymysql

from ematix_flow.connect.base.columns import ColumnSchema, SourceColumn, TableName, TableSchema
from ematix_flow.connect.base.database import Database
from ematix_flow.connect.base.session import Opened, Split
from ematix_flow.connect.base.stage import ATTEMPT
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.mysql import MYSQL
from ematix_flow.connect.mysql.existing_types import MySQLTypes
from ematix_flow.connect.mysql.reader import read_rows
from ematix_flow.connect.mysql.session import ALONE, COLLATE, MySQLSession, connect, is_transient, read_url
from ematix_flow.connect.mysql.stager import ROW, MySQLStager, own_column, reject_name
from ematix_flow.connect.mysql.types import (
    LONGEST_VARCHAR,
    ddl_type,
    described,
    exact,
    family,
    lasting,
    reflected,
    widens,
)
from ematix_flow.connect.types.fingerprint import format_fingerprint, sum_sql
from ematix_flow.connect.types.identifiers import backticked as quoted
from ematix_flow.errors import RunError, StagingLostError
from ematix_flow.wording import quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.stage import StageColumn, Stager, StageSpec, WorkTable
    from ematix_flow.declare.connection.registry import MySQLConnection
    from ematix_flow.declare.table.partitions import Partition
    from ematix_flow.declare.table.types import ColumnType
    from ematix_flow.records import TaskReport

OPTIONS = f" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 {COLLATE.format('=')}"
STAGING = "ematix-flow staging of "
"""Prefix of the comment by which staging is recognised, whatever its name."""
KEY_PREFIX = 64
DUPLICATE = (1062, 1586)
NO_TABLE = 1146

_OWN = "BIGINT UNSIGNED NOT NULL"


class MySQL(Database):
    """A database of a MySQL or MariaDB server."""

    kind = "mysql"
    dialect = "mysql"
    existing = MySQLTypes()
    capabilities = MYSQL.capabilities

    def __init__(self, connection: MySQLConnection) -> None:
        self.name = connection.name
        self.timezone = connection.timezone
        self._settings = read_url(connection.url, connection.name)

    def __repr__(self) -> str:
        at = self._settings
        return f"MySQL({self.name!r}, {at.host}:{at.port}/{at.database})"

    @property
    def errors(self) -> tuple[type[BaseException], ...]:
        """Return the driver's exceptions."""
        return (pymysql.Error,)

    def identity(self) -> tuple[str, ...]:
        """Two connections are the same when names and rights mean the same on both."""
        at = self._settings
        socket = str(dict(at.options).get("unix_socket", ""))
        return ("mysql", at.host, str(at.port), socket, at.database, at.user)

    def info(self) -> Mapping[str, object]:
        """Return where the server is and who we are there."""
        at = self._settings
        return {"host": at.host, "port": at.port, "dbname": at.database, "user": at.user}

    def session(self) -> MySQLSession:
        """Open a control connection."""
        return MySQLSession(connect(self._settings, self.name), lambda: connect(self._settings, self.name))

    def probe(self) -> str:
        """Return the server's version and the database, after a round trip."""
        session = self.session()
        try:
            version, database = session.query("SELECT VERSION(), DATABASE()")[0]
        except pymysql.Error as error:
            raise RunError(f"connection {self.name!r}: {safe_text(error)}") from None
        finally:
            session.close()
        kind = "MariaDB" if session.mariadb else "MySQL"
        return f"{kind} {str(version).split('-')[0]}, database {database or '(none)'}"

    def is_transient(self, error: BaseException) -> bool:
        """Locks, deadlocks, shutdowns and lost connections may go away."""
        return is_transient(error)

    def is_duplicate_key(self, error: BaseException) -> bool:
        """Return whether a unique constraint was violated."""
        return isinstance(error, pymysql.Error) and bool(error.args) and error.args[0] in DUPLICATE

    # Tables

    def table_name(self, schema: str, name: str) -> TableName:
        """Keep the schema: it is a database."""
        return TableName(schema, name)

    def metadata_table(self, name: str) -> TableName:
        """Our own tables are in the connection's database."""
        return TableName("", f"ematix_flow_{name}")

    def ddl_type(self, column_type: ColumnType, *, in_key: bool = False) -> str:
        """Return the DDL type."""
        return ddl_type(column_type, in_key=in_key)

    def check_clause(self, column: StageColumn) -> str:
        """Text that is too long for VARCHAR keeps its limit by a check."""
        length = getattr(column.type, "length", 0)
        return f"CHAR_LENGTH({quoted(column.name)}) <= {length}" if length > LONGEST_VARCHAR else ""

    def table_options(self, partitions: Sequence[Partition] = ()) -> str:
        """InnoDB, and text that compares by bytes."""
        del partitions
        return OPTIONS

    def fingerprint(self, session: Session, table: TableName, columns: Sequence[str]) -> str:
        """Add up a hash of every row, in whatever order they come; a column that is widened keeps its part."""
        existing = self.find_table(session, table)
        native = {column.name: column.type for column in existing.columns} if existing is not None else {}
        row = ", ".join(lasting(native.get(name, ""), quoted(name)) for name in columns)
        hashed = f"CAST(CONV(LEFT(MD5(CONCAT({row})), 15), 16, 10) AS UNSIGNED)"
        return format_fingerprint(session.query(sum_sql(_qualified(table), hashed)))

    def begin_alone(self, session: Session, tables: Sequence[TableName]) -> None:
        """Lock every row and the room between rows, which only transactions of this kind do."""
        session.execute(ALONE)
        session.begin()
        for table in tables:
            session.query(f"SELECT COUNT(*) FROM {_qualified(table)} FOR UPDATE")

    def create_schema(self, session: Session, schema: str) -> None:
        """Create the database when it is missing; one that exists needs no right to create."""
        if schema and not session.query("SELECT 1 FROM information_schema.schemata WHERE schema_name = ?", (schema,)):
            collate = COLLATE.format(" ")
            session.execute(f"CREATE DATABASE IF NOT EXISTS {quoted(schema)} CHARACTER SET utf8mb4 {collate}")

    def find_table(self, session: Session, table: TableName) -> TableSchema | None:
        """Describe a table from the catalog."""
        entry = self._in_catalog(session, table)
        if entry is None:
            return None
        schema, name, kind, engine = entry
        columns = session.query(
            "SELECT column_name, column_type, is_nullable FROM information_schema.columns "
            "WHERE table_schema = ? AND table_name = ? AND BINARY table_name = ? ORDER BY ordinal_position",
            (schema, name, name),
        )
        documents = _json_columns(cast("MySQLSession", session), schema, name)
        indexes = _unique_indexes(session, schema, name)
        return TableSchema(
            columns=tuple(
                ColumnSchema(str(column), reflected(_decoded(native), is_json=column in documents), nullable == "YES")
                for column, native, nullable in columns
            ),
            primary_key=indexes.pop("PRIMARY", ()),
            unique=tuple(indexes.values()),
            problem=_problem(kind, engine),
        )

    def _in_catalog(self, session: Session, table: TableName) -> tuple[str, str, str, str] | None:
        """Find the name as the server has it: it may keep all names in lower case."""
        rows = session.query(
            "SELECT table_schema, table_name, table_type, COALESCE(engine, ''), @@lower_case_table_names "
            "FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) "
            "AND table_name = ?",
            (table.schema, table.name),
        )
        for schema, name, kind, engine, lower in rows:
            if name == table.name or (int(lower) and name.lower() == table.name.lower()):
                return str(schema), str(name), str(kind), str(engine)
        return None

    def widening(self, existing: str, declared: str) -> bool:
        """Return whether a column can be widened."""
        return widens(existing, declared)

    def alter_type_sql(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that widens a column; MODIFY would forget NOT NULL."""
        return f"ALTER TABLE {table} MODIFY COLUMN {column} {declared}{' NULL' if nullable else ' NOT NULL'}"

    # Reading

    def describe(self, session: Session, sql: str) -> tuple[SourceColumn, ...]:
        """Return the columns as the server describes a result without rows."""
        fields = cast("MySQLSession", session).columns(sql)
        return tuple(SourceColumn(f.name, family(f), described(f)) for f in fields)

    def interchange(self, column: SourceColumn, expression: str) -> str:
        """Return nothing: `open_read` sees the types of the final query and reads each of them exactly."""
        del column
        return expression

    def open_read(self, session: Session, sql: str, parallel: int) -> Opened:
        """One split: no snapshot can be shared between connections."""
        del parallel
        fields = cast("MySQLSession", session).columns(sql)
        expressions = [exact(field, quoted(field.name)) for field in fields]
        if any(text != quoted(field.name) for text, field in zip(expressions, fields, strict=True)):
            named = ", ".join(f"{text} AS {quoted(f.name)}" for text, f in zip(expressions, fields, strict=True))
            sql = f"SELECT {named} FROM ({sql}\n) AS _exact"
        return Opened((Split(sql=sql),))

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        """Stream the rows; a value that the server had to alter is an error, as it would be in an INSERT."""
        yield from read_rows(self._settings, self.name, split.sql)

    # Staging

    def open_stage(self, session: Session, spec: StageSpec) -> StageSpec:
        """Create the tables of rows and rejects."""
        own = [own_column(spec, ATTEMPT), own_column(spec, ROW)]
        key = tuple(column for column in spec.columns if column.in_key) if spec.lookup else ()
        self._create(session, spec.name, spec.name, [*_own_lines(own), *self._lines(spec.columns), *_index(key, self)])
        names = ("reason", "column_name", "source_position", "row_json")
        rejects = [*_own_lines([ATTEMPT, ROW]), *(f"{quoted(name)} LONGTEXT NULL" for name in names)]
        self._create(session, reject_name(spec), spec.name, rejects)
        return spec

    def _create(self, session: Session, table: str, owner: str, lines: Sequence[str]) -> None:
        session.execute(f"CREATE TABLE {quoted(table)} ({', '.join(lines)}){OPTIONS} COMMENT='{STAGING}{owner}'")

    def _lines(self, columns: Sequence[StageColumn]) -> list[str]:
        return [f"{quoted(c.name)} {ddl_type(c.type, in_key=c.in_key)} NULL" for c in columns]

    def stager(self, spec: StageSpec, partition: int, attempt: int) -> Stager:
        """Stage one attempt; its number is unique in this staging."""
        del partition
        return MySQLStager(self._settings, self.name, spec, attempt)

    def verify_stage(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> None:
        """Count the rows and rejects of every named attempt."""
        counted = " UNION ALL ".join(
            f"SELECT {kind}, {quoted(column)}, COUNT(*) FROM {quoted(table)} GROUP BY {quoted(column)}"
            for kind, column, table in ((0, own_column(spec, ATTEMPT), spec.name), (1, ATTEMPT, reject_name(spec)))
        )
        try:
            counts = {(int(kind), int(attempt)): int(rows) for kind, attempt, rows in session.query(counted)}
        except pymysql.Error as error:
            if error.args[0] != NO_TABLE:
                raise
            raise _changed(f"staging {spec.name} is gone") from None
        for report in reports:
            rows, rejected = counts.get((0, report.attempt), 0), counts.get((1, report.attempt), 0)
            if (rows, rejected) != (report.rows, report.rejected):
                raise _changed(
                    f"staging {spec.name} has {quantity(rows, 'row')} and {quantity(rejected, 'reject')} of partition "
                    f"{report.partition}, {report.rows} and {report.rejected} were staged"
                )

    def staged_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Select the rows of the named attempts; staging has the target's types already."""
        del session
        columns = ", ".join(quoted(column.name) for column in spec.columns)
        return f"(SELECT {columns} FROM {quoted(spec.name)} WHERE {_named(own_column(spec, ATTEMPT), reports)})"

    def reject_relation(self, session: Session, spec: StageSpec, reports: Sequence[TaskReport]) -> str:
        """Select the rejects of the named attempts."""
        del session
        columns = "reason, column_name, source_position, row_json"
        return f"(SELECT {columns} FROM {quoted(reject_name(spec))} WHERE {_named(ATTEMPT, reports)})"

    def drop_stage(self, session: Session, spec: StageSpec) -> None:
        """Drop the tables of a staging, or one scratch table that a crash left behind."""
        session.execute(f"DROP TABLE IF EXISTS {quoted(spec.name)}, {quoted(reject_name(spec))}")

    def stages(self, session: Session) -> Iterable[tuple[str, float]]:
        """List staging by its comment, scratch tables too."""
        rows = session.query(
            "SELECT SUBSTRING(table_comment, ?), MAX(TIMESTAMPDIFF(SECOND, create_time, NOW())) "
            "FROM information_schema.tables WHERE table_schema = DATABASE() AND table_comment LIKE ? GROUP BY 1",
            (len(STAGING) + 1, f"{STAGING}%"),
        )
        return [(str(name), float(age or 0)) for name, age in rows]

    def create_work_table(self, session: Session, table: WorkTable, incarnation: str) -> str:
        """Create an InnoDB table: MySQL cannot read a temporary one twice in a statement."""
        name = f"{table.name}_{incarnation}"
        # Left over when the connection of an earlier attempt at this same commit broke.
        session.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
        counter = f"`_flow_row` {_OWN} AUTO_INCREMENT PRIMARY KEY"
        key = tuple(column for column in table.columns if column.name in table.key)
        self._create(session, name, name, [counter, *self._lines(table.columns), *_index(key, self)])
        cast("MySQLSession", session).drop_on_close(quoted(name))
        return quoted(name)

    def explain(self, session: Session, sql: str) -> None:
        """Have the server prepare the query; EXPLAIN would evaluate parts of it."""
        cast("MySQLSession", session).columns(sql)


def _qualified(table: TableName) -> str:
    return ".".join(quoted(part) for part in (table.schema, table.name) if part)


def _decoded(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _problem(kind: str, engine: str) -> str:
    if "VIEW" in kind:
        return "it is a view"
    return (
        "" if engine == "InnoDB" else f"its storage engine {engine} has no transactions; ALTER TABLE ... ENGINE=InnoDB"
    )


def _json_columns(session: MySQLSession, schema: str, name: str) -> set[str]:
    """MariaDB keeps JSON as LONGTEXT with a check; MySQL has a type of its own."""
    if not session.mariadb:
        return set()
    rows = session.query(
        "SELECT constraint_name, check_clause FROM information_schema.check_constraints "
        "WHERE constraint_schema = ? AND table_name = ? AND level = 'Column'",
        (schema, name),
    )
    return {str(column) for column, clause in rows if clause == f"json_valid({quoted(str(column))})"}


def _unique_indexes(session: Session, schema: str, name: str) -> dict[str, tuple[str, ...]]:
    """Return the unique indexes over whole columns, by name."""
    rows = session.query(
        "SELECT index_name, column_name, sub_part FROM information_schema.statistics WHERE table_schema = ? "
        "AND table_name = ? AND BINARY table_name = ? AND non_unique = 0 ORDER BY index_name, seq_in_index",
        (schema, name, name),
    )
    partial = {index for index, column, part in rows if column is None or part is not None}
    indexes: dict[str, tuple[str, ...]] = {}
    for index, column, _ in rows:
        if index not in partial:
            indexes[str(index)] = (*indexes.get(str(index), ()), str(column))
    return indexes


def _own_lines(own: Sequence[str]) -> list[str]:
    attempt, row = (quoted(name) for name in own)
    return [f"{attempt} {_OWN}", f"{row} {_OWN}", f"PRIMARY KEY ({attempt}, {row})"]


def _index(key: Sequence[StageColumn], database: MySQL) -> list[str]:
    """Return an index on the key; of long text only the beginning, since an index entry has 3,072 bytes."""
    parts = []
    for column in key:
        native = database.ddl_type(column.type, in_key=column.in_key)
        prefix = native.startswith(("VARCHAR", "LONG", "VARBINARY", "JSON"))
        length = min(KEY_PREFIX, getattr(column.type, "length", KEY_PREFIX))
        parts.append(quoted(column.name) + (f"({length})" if prefix else ""))
    return [f"KEY ({', '.join(parts)})"] if parts else []


def _named(column: str, reports: Sequence[TaskReport]) -> str:
    attempts = ", ".join(str(int(report.attempt)) for report in reports)
    return f"{quoted(column)} IN ({attempts})" if attempts else "FALSE"


def _changed(what: str) -> StagingLostError:
    return StagingLostError(what, hint="the staging was changed from outside; run the load again.")
