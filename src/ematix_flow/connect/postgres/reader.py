"""Rows of PostgreSQL as Arrow, in and out by binary COPY inside a task; it plans nothing and commits no load."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import wait
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ematix_flow.background import in_background
from ematix_flow.connect.base.cancellation import watch
from ematix_flow.connect.base.stage import Stager
from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.postgres.session import PREPARE, is_transient, is_unwritable
from ematix_flow.connect.postgres.stager import STAGE_SCHEMA, attempt_column, rejects_name
from ematix_flow.connect.types.arrow import REJECTS
from ematix_flow.connect.types.digits import MAX_DIGITS
from ematix_flow.connect.types.unread import Unread, marked_batch
from ematix_flow.errors import CommitError, RunError, TransientError
from ematix_flow.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from ematix_flow.connect.base.session import Split
    from ematix_flow.connect.base.stage import StageSpec

WAITING_BATCHES = 2
"""Batches that may wait for the server; each is about 16 MiB."""

REFUSED = "PostgreSQL did not take the rows for staging"

# PostgreSQL's infinity and -infinity after the driver has moved them from the epoch 2000 to 1970; no finite value lands there.
_EPOCH_SHIFT = 946_684_800_000_000
_INFINITE_TIMES = (-(2**63) + _EPOCH_SHIFT - 1, -(2**63) + _EPOCH_SHIFT)
_INFINITE_DATES = (-(2**31) + 10_957 - 1, -(2**31) + 10_957)


class ArrowConnection:
    """A connection that returns and takes Arrow; the driver's own layer above it would load pandas and polars first."""

    def __init__(self, conninfo: str, *, autocommit: bool) -> None:
        import adbc_driver_manager
        import adbc_driver_postgresql

        self._closing, self._closed = threading.Lock(), False
        with _explained("a task cannot connect to PostgreSQL"), ExitStack() as opened:
            database = opened.enter_context(adbc_driver_postgresql.connect(conninfo))
            self._connection = opened.enter_context(adbc_driver_manager.AdbcConnection(database))
            self._connection.set_autocommit(autocommit)
            self._open = opened.pop_all()
        try:
            with _explained("a task cannot connect to PostgreSQL"):
                self.query(PREPARE).read_all()
        except BaseException:
            self.close()
            raise
        watch(self)

    def interrupt(self) -> None:
        """End the statement that runs, from another thread."""
        with self._closing:
            if not self._closed:
                self._connection.cancel()

    def execute(self, sql: str) -> None:
        """Run a statement that returns no rows."""
        with self._statement() as statement:
            statement.set_sql_query(sql)
            statement.execute_update()

    def query(self, sql: str) -> pa.RecordBatchReader:
        """Run a query and return its rows as they come; they end with the connection."""
        statement = self._open.enter_context(self._statement())
        statement.set_sql_query(sql)
        stream, _ = statement.execute_query()
        return pa.RecordBatchReader.from_stream(stream)

    def ingest(self, schema: str, table: str, rows: pa.RecordBatchReader) -> int:
        """Send rows into a table and return how many it took."""
        with self._statement() as statement:
            statement.set_options(
                **{
                    "adbc.ingest.target_table": table,
                    "adbc.ingest.target_db_schema": schema,
                    "adbc.ingest.mode": "adbc.ingest.mode.append",
                }
            )
            statement.bind_stream(rows.__arrow_c_stream__())
            return int(statement.execute_update())

    def commit(self) -> None:
        """Commit what was sent."""
        self._connection.commit()

    def close(self) -> None:
        """Close the connection, and roll back what was not committed."""
        import adbc_driver_manager

        with self._closing:
            self._closed = True
        with suppress(adbc_driver_manager.Error):
            self._open.close()

    def _statement(self) -> Any:
        import adbc_driver_manager

        return adbc_driver_manager.AdbcStatement(self._connection)


def read_rows(conninfo: str, split: Split) -> Iterator[pa.RecordBatch]:
    """Return the rows of one split, as the exported snapshot has them, a bounded batch at a time."""
    with closing(ArrowConnection(conninfo, autocommit=True)) as connection:
        if split.snapshot:
            _share(connection, split.snapshot)
        # The driver puts the query in parentheses, which a comment at its end would swallow.
        with _explained("PostgreSQL cannot run the source query"):
            batches = connection.query(f"{split.sql}\n")
        while (batch := _next(batches)) is not None:
            yield carried(batch)


def _next(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    with _explained("reading from PostgreSQL failed"):
        return next(batches, None)


def _share(connection: ArrowConnection, snapshot: str) -> None:
    """Join the transaction of the driver; a snapshot that is gone may be taken anew by another run."""
    import adbc_driver_manager

    try:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    except adbc_driver_manager.DatabaseError as error:
        message = f"the snapshot of this read is gone, its connection must have ended: {safe_text(error)}"
        raise TransientError(message, hint="run the load again.") from None


def carried(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch in plain Arrow types, with rows marked as failed whose dates are infinite."""
    arrays = [_storage_array(batch.column(index), field) for index, field in enumerate(batch.schema)]
    unread = []
    for index, name in enumerate(batch.schema.names):
        texts = _infinite(arrays[index])
        if texts is not None:
            arrays[index] = pc.if_else(pc.is_valid(texts), pa.scalar(None, arrays[index].type), arrays[index])
            unread.append(Unread(name, texts, "is infinite, which no other system can hold"))
    return marked_batch(batch.schema.names, arrays, unread)


def _storage_array(array: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    size = int((field.metadata or {}).get(b"POSTGRESQL:typmod", -1)) - 4
    if size < 0 or (field.metadata or {}).get(b"POSTGRESQL:type") != b"numeric":
        return array
    precision, scale = size >> 16, ((size & 0x7FF) ^ 1024) - 1024
    if precision > MAX_DIGITS or not 0 <= scale <= precision:
        return array
    try:
        return pc.cast(array, pa.decimal128(precision, scale))
    except pa.ArrowInvalid:
        # A NaN stays text, and becomes a reject where a number is required.
        return array


def _infinite(array: pa.Array) -> pa.Array | None:
    """Return the texts of the values that are infinite, or None when none is."""
    if pa.types.is_timestamp(array.type):
        raw, signs = array.view(pa.int64()), pa.array(_INFINITE_TIMES, pa.int64())
    elif pa.types.is_date32(array.type):
        raw, signs = array.view(pa.int32()), pa.array(_INFINITE_DATES, pa.int32())
    else:
        return None
    lowest = pc.min(raw).as_py()
    if lowest is None or lowest > max(signs.to_pylist()):
        return None
    future, past = (pc.equal(raw, sign) for sign in signs)
    return pc.if_else(future, "infinity", pc.if_else(past, "-infinity", None))


class PostgresStager(Stager):
    """Sends the rows of one attempt by COPY; nothing is visible before `finish`."""

    def __init__(self, conninfo: str, spec: StageSpec, attempt: int) -> None:
        rows, column = pa.ipc.read_schema(pa.py_buffer(spec.schema)), attempt_column(spec)
        self._rows = CopyFeed(conninfo, spec.name, rows, (column, attempt))
        self._rejects = CopyFeed(conninfo, rejects_name(spec.name), REJECTS, (column, attempt))

    def write(self, batch: pa.RecordBatch) -> None:
        """Hand rows to the connection that sends them while the next ones are read."""
        self._rows.write(batch)

    def reject(self, batch: pa.RecordBatch) -> None:
        """Hand over rejects; PostgreSQL's text holds no NUL."""
        arrays = [pc.replace_substring(column, "\0", "\\0") for column in batch.columns]
        self._rejects.write(pa.RecordBatch.from_arrays(arrays, schema=REJECTS))

    def finish(self) -> tuple[str, str]:
        """Commit the rejects and then the rows; the attempt counts only when this returns."""
        self._rejects.drain()
        self._rows.drain()
        failpoint("stage.before_task_commit")
        self._rejects.commit()
        self._rows.commit()
        return "", ""

    def abandon(self) -> None:
        """Roll back what was sent."""
        self._rejects.abandon()
        self._rows.abandon()


class CopyFeed:
    """One COPY fed from a bounded queue, on a connection and a thread of its own that start with the first batch.

    One COPY for all batches takes half as long as one for each, and the driver pulls where the interface pushes.
    """

    def __init__(self, conninfo: str, table: str, rows: pa.Schema, attempt: tuple[str, int]) -> None:
        self._conninfo = conninfo
        self._table = table
        column, self._attempt = attempt
        self._schema = rows.append(pa.field(column, pa.int64()))
        self._queue: queue.Queue[pa.RecordBatch | None] = queue.Queue(WAITING_BATCHES)
        self._connection: ArrowConnection | None = None
        self._task: Future[int] | None = None
        self._sent = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Queue a batch, waiting while the server is behind."""
        if self._task is None:
            self._connection = ArrowConnection(self._conninfo, autocommit=False)
            self._task = in_background(self._copy, "flow-copy")
        attempt = pa.repeat(pa.scalar(self._attempt, pa.int64()), batch.num_rows)
        self._put(pa.RecordBatch.from_arrays([*batch.columns, attempt], schema=self._schema))
        self._sent += batch.num_rows

    def drain(self) -> None:
        """Wait until the server has taken every row."""
        if self._task is not None:
            self._put(None)
            copied = self._task.result()
            if copied != self._sent:
                raise CommitError(f"rows sent to staging: {self._sent}, but taken: {copied}")

    def commit(self) -> None:
        """Make the rows visible and release the connection."""
        if self._connection is not None:
            with _explained(REFUSED):
                self._connection.commit()
            self._connection.close()

    def abandon(self) -> None:
        """End without a commit; rows that still wait are not sent."""
        with suppress(queue.Empty):
            while True:
                self._queue.get_nowait()
        self._queue.put(None)
        if self._task is not None:
            # The connection is the thread's until then.
            wait([self._task])
        if self._connection is not None:
            self._connection.close()

    def _put(self, batch: pa.RecordBatch | None) -> None:
        while self._task is not None:
            if self._task.done():
                self._task.result()
            with suppress(queue.Full):
                self._queue.put(batch, timeout=1.0)
                return

    def _copy(self) -> int:
        reader = pa.RecordBatchReader.from_batches(self._schema, iter(self._queue.get, None))
        assert self._connection is not None  # noqa: S101 - the thread starts after it
        with _explained(REFUSED):
            return self._connection.ingest(STAGE_SCHEMA, self._table, reader)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn the driver's errors into ours, so that nothing but their redacted text leaves a task."""
    import adbc_driver_manager

    try:
        yield
    except (adbc_driver_manager.Error, OSError) as error:
        # Errors in the middle of a stream come from Arrow as OSError, which has no state.
        kind = TransientError if is_transient(error) else RunError
        hint = "a value of the rows is beyond what PostgreSQL's types can hold." if is_unwritable(error) else ""
        raise kind(f"{what}: {safe_text(error)}", hint=hint) from None
