"""A session of BigQuery by its client library: queries, staged rows and transactions."""

from __future__ import annotations

import importlib
import io
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ematix_flow.connect.bigquery.types import columns_sql, result_schema, staged_query, staged_schema
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.connect.warehouse.rows import in_common_types, parquet_parts
from ematix_flow.connect.warehouse.session import Staged, WarehouseSession
from ematix_flow.errors import MissingExtraError, RunError, TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from ematix_flow.declare.connection.registry import BigQueryConnection

_EXPIRES = "OPTIONS (expiration_timestamp = TIMESTAMP_ADD(CURRENT_TIMESTAMP(), INTERVAL 1 DAY))"
"""What is staged is gone after a day, also where a run died that had staged it."""

_PASSING = (408, 429, 500, 502, 503, 504)
_OVERTAKEN = "concurrent update"
"""What BigQuery says of a transaction that another one came before."""


class BigQuerySession(WarehouseSession):
    """One session in one dataset."""

    kind = "bigquery"
    transaction_suffix = " TRANSACTION"

    def __init__(self, connection: BigQueryConnection) -> None:
        self._name = connection.name
        self._library = _installed("google.cloud.bigquery")
        self._errors = _installed("google.api_core.exceptions")
        self._dataset = f"{connection.project}.{connection.dataset}"
        self._staged: list[str] = []
        with self._translated():
            self._client = self._opened(connection)
            job = self._client.query("SELECT 1", job_config=self._config(create_session=True))
            job.result()
            self._session = job.session_info.session_id

    def _opened(self, connection: BigQueryConnection) -> Any:
        where = {"project": connection.project, "location": connection.location}
        if connection.credentials_path:
            return self._library.Client.from_service_account_json(connection.credentials_path, **where)
        return self._library.Client(**where)

    def _config(self, **more: Any) -> Any:
        return self._library.QueryJobConfig(default_dataset=self._dataset, **more)

    def _result(self, sql: str) -> Any:
        session = self._library.ConnectionProperty(key="session_id", value=self._session)
        return self._client.query(sql, job_config=self._config(connection_properties=[session])).result()

    def read(self, sql: str) -> pa.RecordBatchReader:
        """Return the rows of a query, a page of the result at a time."""
        with self._translated():
            rows = self._result(sql)
            schema = result_schema(rows.schema)
        return pa.RecordBatchReader.from_batches(schema, self._batches(rows, schema))

    def _batches(self, rows: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._translated():
            for batch in rows.to_arrow_iterable():
                yield from pa.Table.from_batches([batch]).cast(schema).to_batches()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self._translated():
            return [tuple(row.values()) for row in self._result(sql)]

    def columns_sql(self, schema: pa.Schema) -> str:
        """Return the columns of CREATE TABLE."""
        return columns_sql(schema)

    def stage(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], token: str) -> Staged:
        """Load Parquet parts into a table of this attempt, which expires where nothing drops it."""
        staged, name = staged_schema(schema), f"_flow_rows_{token[:24]}_{uuid.uuid4().hex[:8]}"
        relation, count = backticked(name), 0
        self.query(f"CREATE TABLE {relation} ({columns_sql(staged)}) {_EXPIRES}")
        self._staged.append(relation)
        for number, (data, rows) in enumerate(parquet_parts(in_common_types(batches, staged), staged)):
            self._load(data, f"{self._dataset}.{name}", f"ematix_flow{name}_{number}")
            count += rows
        [(loaded,)] = self.query(f"SELECT COUNT(*) FROM {relation}")
        if loaded != count:
            message = f"bigquery connection {self._name!r}: {loaded} of {count} staged rows were loaded"
            raise RunError(message)
        return Staged(staged_query(relation, schema), count)

    def _load(self, data: bytes, table: str, job_id: str) -> None:
        """Load one part; a job whose answer was lost is there under its name, and is not begun twice."""
        library = self._library
        config = library.LoadJobConfig(
            source_format=library.SourceFormat.PARQUET,
            write_disposition=library.WriteDisposition.WRITE_APPEND,
            create_disposition=library.CreateDisposition.CREATE_NEVER,
            decimal_target_types=["NUMERIC", "BIGNUMERIC"],
        )
        with self._translated():
            try:
                job = self._client.load_table_from_file(io.BytesIO(data), table, job_id=job_id, job_config=config)
            except self._errors.Conflict:
                job = self._client.get_job(job_id)
            job.result()

    def close(self) -> None:
        """Drop what was staged and end the session."""
        for statement in (*(f"DROP TABLE IF EXISTS {one}" for one in self._staged), "CALL BQ.ABORT_SESSION()"):
            with suppress(RunError):
                self.query(statement)
        self._client.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Report what the library reports, without secrets, as an error that may pass or one that does not."""
        try:
            yield
        except (self._errors.GoogleAPIError, OSError) as error:
            code = getattr(error, "code", None)
            passes = code is None or code in _PASSING or _OVERTAKEN in str(error)
            kind = TransientError if passes else RunError
            raise kind(f"bigquery connection {self._name!r}: {safe_text(error)}") from None


def _installed(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError:
        message = "BigQuery needs the package google-cloud-bigquery"
        raise MissingExtraError(message, hint="pip install 'ematix-flow-spark[bigquery]'.") from None
