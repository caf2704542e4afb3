"""Rows of databases that the SQL of a stream joins: read at the start, and again in the background; a batch sees one state."""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import safe_text
from ematix_flow.connect.registry import open_database
from ematix_flow.engine.batch.inspect import wait_for
from ematix_flow.engine.batch.stager import translate_spark_error
from ematix_flow.engine.spark.parallelism import most_connected
from ematix_flow.errors import FlowError, RunError
from ematix_flow.plan.source import table_query
from ematix_flow.plan.sql.render import render

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from ematix_flow.connect.base.session import Session
    from ematix_flow.connect.base.source import SqlSource
    from ematix_flow.declare.stream.options import Lookup


class LookupRows:
    """The rows of one lookup, as they were read last: by this process, or as a frame that tasks of Spark have read."""

    def __init__(self, name: str, lookup: Lookup, spark: Callable[[], Any] | None = None) -> None:
        self.name = name
        self._lookup = lookup
        self._spark = spark
        self._database = open_database(lookup.connection)
        self._failures: tuple[type[BaseException], ...] = (FlowError, *self._database.failures)
        self._over = threading.Event()
        self._first = threading.Lock()
        self._turn = threading.Lock()
        self._holders = 0
        self._before: Any = None
        self._next: Any = None
        """Rows that are read already, and wait until the batch under way no longer needs those of before."""
        self._rows: Any = self._read() if spark is None else None
        self.column_names: Sequence[str] = self._described() if self._rows is None else self._rows.column_names
        """The names of its columns; no row has to be read for them."""
        if lookup.refresh_interval_ms is not None:
            threading.Thread(target=self._refresh, name=f"flow-lookup-{name}", daemon=True).start()

    def __call__(self) -> pa.Table | DataFrame:
        """Return the rows."""
        with self._first:
            if self._rows is None:
                self._rows = self._read()
        return self._rows

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let this block see one state of the rows, which stay as long as it lasts."""
        with self._turn:
            self._holders += 1
        try:
            yield
        finally:
            with self._turn:
                self._holders -= 1
                if not self._holders and self._next is not None:
                    self._show(self._next)
                    self._next = None

    def close(self) -> None:
        """Read no more."""
        with self._turn:
            self._over.set()
            self._release(self._before, self._rows, self._next)

    def _release(self, *frames: Any) -> None:
        """Release frames that Spark has cached."""
        for frame in frames if self._spark is not None else ():
            # Spark may be gone, with everything it cached.
            with suppress(Exception):
                if frame is not None:
                    frame.unpersist()

    def _refresh(self) -> None:
        assert self._lookup.refresh_interval_ms is not None  # noqa: S101 - or there would be no thread
        pause = self._lookup.refresh_interval_ms / 1000
        while not self._over.wait(pause):
            if self._rows is None:
                continue
            try:
                self._renew()
            except self._failures as error:
                if self._over.is_set():
                    return
                self._warn(f"could not be read again, the rows from before stay: {safe_text(error)}")

    def _renew(self) -> None:
        """Read the rows again; a batch that is under way goes on with those of before."""
        rows = self._read()
        if rows.schema != self._rows.schema:
            self._warn("has other columns now; the rows from before stay until the stream is started again")
            self._release(rows)
            return
        with self._turn:
            if self._over.is_set():
                self._release(rows)
            elif self._holders:
                self._release(self._next)
                self._next = rows
            else:
                self._show(rows)

    def _show(self, rows: Any) -> None:
        """Let the next batch see rows; those before stay once more, for a task that works its last batch out again."""
        self._release(self._before)
        self._before, self._rows = self._rows, rows

    def _warn(self, text: str) -> None:
        warnings.warn(f"lookup {self.name!r} {text}", UserWarning, stacklevel=2)

    def _read(self) -> Any:
        sql = _lookup_sql(self._lookup, self._database)
        if self._spark is None:
            return read_rows(self._database, sql)
        try:
            return read_frame(self._database, sql, self._spark())
        except Exception as error:
            reason = translate_spark_error(error)
            raise reason if isinstance(reason, FlowError) else error from error

    def _described(self) -> list[str]:
        with _lookup_session(self._database) as session:
            columns = self._database.describe(session, _lookup_sql(self._lookup, self._database))
            return [column.name for column in columns]


def open_lookups(
    lookups: Mapping[str, Lookup], resources: ExitStack, spark: Callable[[], Any] | None = None
) -> dict[str, LookupRows]:
    """Return the rows of all lookups; `resources` ends their threads. With `spark` tasks read them."""
    opened = {}
    for name, lookup in lookups.items():
        try:
            opened[name] = LookupRows(name, lookup, spark)
        except FlowError as error:
            error.what = f"lookup {name!r}: {error.what}"
            raise
        resources.callback(opened[name].close)
    return opened


@contextmanager
def held(lookups: Collection[LookupRows]) -> Iterator[None]:
    """Let this block see one state of every lookup."""
    with ExitStack() as states:
        for one in lookups:
            states.enter_context(one.held())
        yield


def read_rows(database: SqlSource, sql: str) -> pa.Table:
    """Return the rows of a query."""
    import pyarrow as pa

    from ematix_flow.run.read.frames import declared_batch, declared_schema, interchange_query

    with _lookup_session(database) as session, ExitStack() as resources:
        columns = database.describe(session, sql)
        opened = database.open_read(session, interchange_query(database, columns, sql), 1)
        if opened.resources is not None:
            resources.enter_context(opened.resources)
        batches = [declared_batch(batch, columns) for split in opened.splits for batch in database.read(split)]
    return pa.Table.from_batches(batches) if batches else declared_schema(columns).empty_table()


def read_frame(database: SqlSource, sql: str, spark: Any) -> DataFrame:
    """Return the rows of a query as a frame that tasks have read and Spark caches."""
    from ematix_flow.run.read.frames import database_frame, interchange_query

    with _lookup_session(database) as session, ExitStack() as resources:
        columns = database.describe(session, sql)
        opened = database.open_read(session, interchange_query(database, columns, sql), 1)
        if opened.resources is not None:
            resources.enter_context(opened.resources)
        frame = database_frame(spark, database, opened.splits, columns, most_connected(database, session)).persist()
        frame.count()
    return frame


@contextmanager
def _lookup_session(database: SqlSource) -> Iterator[Session]:
    """Return a session of a database, and report what it refuses as an error of the lookup's query."""
    if not database.exists():
        message = f"the database {database.info()['dbname']} does not exist"
        raise RunError(message)
    session = wait_for(database)
    try:
        yield session
    except database.errors as error:
        message = f"the query cannot be run: {safe_text(error)}"
        raise RunError(message) from None
    finally:
        session.close()


def _lookup_sql(lookup: Lookup, database: SqlSource) -> str:
    if lookup.query is not None:
        return lookup.query
    return render(table_query(database.table_name(lookup.schema, str(lookup.table)), None), database.dialect)
