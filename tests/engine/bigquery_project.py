"""A stand-in for BigQuery and its client library: statements are read as BigQuery's and answered by DuckDB.

It shows that statements are BigQuery's as sqlglot knows it, in which order they come and what they do; not that BigQuery
takes them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp, parse_one

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator

TYPES = {pa.bool_(): "BOOLEAN", pa.int64(): "INTEGER", pa.int32(): "INTEGER", pa.float64(): "FLOAT", pa.string(): "STRING",
         pa.date32(): "DATE", pa.timestamp("us"): "DATETIME"}  # fmt: skip


class GoogleAPIError(Exception):
    """What the library raises."""

    code: int | None = None


class Conflict(GoogleAPIError):  # noqa: N818 - the name that the library has
    code = 409


class BadRequest(GoogleAPIError):  # noqa: N818 - the name that the library has
    code = 400


class ServiceUnavailable(GoogleAPIError):  # noqa: N818 - the name that the library has
    code = 503


class Project:
    """One project, and the modules of the library that lead to it."""

    def __init__(self) -> None:
        self.database = duckdb.connect()
        self.database.execute("SET TimeZone = 'UTC'")
        self.statements: list[str] = []
        self.jobs: dict[str, Job] = {}
        self.configs: list[Any] = []
        self.sessions = 0
        self.cut_at = ""
        """A statement whose answer is lost."""
        self.bigquery = SimpleNamespace(
            Client=lambda **arguments: Client(self, arguments),
            QueryJobConfig=SimpleNamespace,
            LoadJobConfig=SimpleNamespace,
            ConnectionProperty=lambda key, value: (key, value),
            SourceFormat=SimpleNamespace(PARQUET="PARQUET"),
            WriteDisposition=SimpleNamespace(WRITE_APPEND="WRITE_APPEND"),
            CreateDisposition=SimpleNamespace(CREATE_NEVER="CREATE_NEVER"),
        )
        self.exceptions = SimpleNamespace(GoogleAPIError=GoogleAPIError, Conflict=Conflict)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.database.execute(sql).fetchall()


class Client:
    def __init__(self, project: Project, arguments: dict[str, Any]) -> None:
        self.project, self.arguments = project, arguments
        self.session = project.database.cursor()
        self.session_id = ""

    def query(self, sql: str, job_config: Any) -> Job:
        project = self.project
        assert job_config.default_dataset == "proj.shop"
        if getattr(job_config, "create_session", False):
            project.sessions += 1
            self.session_id = f"session-{project.sessions}"
            return Job(None, self.session_id)
        assert job_config.connection_properties == [("session_id", self.session_id)]
        project.statements.append(sql)
        try:
            job = Job(self._run(sql))
        except duckdb.Error as error:
            raise BadRequest(str(error)) from None
        if project.cut_at and sql.startswith(project.cut_at):
            project.cut_at = ""
            raise ServiceUnavailable("503 the service is away")
        return job

    def _run(self, sql: str) -> pa.Table | None:
        if sql.startswith("CALL BQ.ABORT_SESSION"):
            return None
        tree = parse_one(sql, dialect="bigquery")
        if isinstance(tree, exp.Create):
            tree.set("properties", None)
        translated = tree.sql(dialect="duckdb")
        if isinstance(tree, exp.Select):
            return self.session.sql(translated).to_arrow_table()
        self.session.execute(translated)
        return None

    def load_table_from_file(self, file: io.BytesIO, table: str, *, job_id: str, job_config: Any) -> Job:
        if job_id in self.project.jobs:
            raise Conflict(f"409 Already Exists: Job {job_id}")
        self.project.configs.append(job_config)
        rows = pq.read_table(file)
        self.session.register("_part", rows)
        self.session.execute(f'INSERT INTO "{table.removeprefix("proj.shop.")}" BY NAME SELECT * FROM _part')
        self.project.jobs[job_id] = Job(None)
        if self.project.cut_at == "load":
            self.project.cut_at = ""
            return self.load_table_from_file(file, table, job_id=job_id, job_config=job_config)
        return self.project.jobs[job_id]

    def get_job(self, job_id: str) -> Job:
        return self.project.jobs[job_id]

    def close(self) -> None:
        self.session.close()


class Job:
    def __init__(self, table: pa.Table | None, session: str = "") -> None:
        self._table = table
        self.session_info = SimpleNamespace(session_id=session)

    def result(self) -> Rows:
        return Rows(self._table)


class Rows:
    def __init__(self, table: pa.Table | None) -> None:
        self._table = pa.table({}) if table is None else table
        self.schema = [
            SimpleNamespace(name=f.name, field_type=_type(f.type), mode="NULLABLE") for f in self._table.schema
        ]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._table.to_pylist())

    def to_arrow_iterable(self) -> Iterator[pa.RecordBatch]:
        yield from self._table.to_batches(max_chunksize=1)


def _type(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return "NUMERIC"
    return "TIMESTAMP" if pa.types.is_timestamp(kind) and kind.tz else TYPES[kind]
