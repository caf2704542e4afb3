"""Rows of databases that the SQL of a stream joins: read at the start, and again in the background; a batch sees one state."""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ematix_flow.connect.redact import safe_text
from ematix_flow.connect.registry import open_database
from ematix_flow.engine.looking import wait_for
from ematix_flow.errors import FlowError, RunError
from ematix_flow.plan.source import table_query
from ematix_flow.plan.sql.render import render

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from ematix_flow.connect.base import Database
    from ematix_flow.declare.stream_options import Lookup


class LookupRows:
    """The rows of one lookup, as they were read last."""

    def __init__(self, name: str, lookup: Lookup) -> None:
        self.name = name
        self._lookup = lookup
        self._database = open_database(lookup.connection)
        self._failures: tuple[type[BaseException], ...] = (FlowError, *self._database.failures)
        self._over = threading.Event()
        self._rows = self._read()
        if lookup.refresh_interval_ms is not None:
            threading.Thread(target=self._refresh, name=f"flow-lookup-{name}", daemon=True).start()

    def __call__(self) -> pa.Table:
        """Give the rows."""
        return self._rows

    def close(self) -> None:
        """Read no more."""
        self._over.set()

    def _refresh(self) -> None:
        assert self._lookup.refresh_interval_ms is not None  # noqa: S101 - or there would be no thread
        pause = self._lookup.refresh_interval_ms / 1000
        while not self._over.wait(pause):
            try:
                rows = self._read()
            except self._failures as error:
                self._say(f"could not be read again, the rows from before stay: {safe_text(error)}")
                continue
            if rows.schema != self._rows.schema:
                self._say("has other columns now; the rows from before stay until the stream is started again")
                continue
            self._rows = rows

    def _say(self, text: str) -> None:
        warnings.warn(f"lookup {self.name!r} {text}", UserWarning, stacklevel=2)

    def _read(self) -> pa.Table:
        return read_rows(self._database, _query(self._lookup, self._database))


def open_lookups(lookups: Mapping[str, Lookup], kept: ExitStack) -> dict[str, LookupRows]:
    """Give the rows of all lookups; `kept` ends their threads."""
    opened = {}
    for name, lookup in lookups.items():
        try:
            opened[name] = LookupRows(name, lookup)
        except FlowError as error:
            error.what = f"lookup {name!r}: {error.what}"
            raise
        kept.callback(opened[name].close)
    return opened


def read_rows(database: Database, sql: str) -> pa.Table:
    """Give the rows of a query."""
    import pyarrow as pa

    from ematix_flow.run.frames import declared_batch, declared_schema, interchange_query

    if not database.exists():
        message = f"the database {database.info()['dbname']} does not exist"
        raise RunError(message)
    session = wait_for(database)
    try:
        columns = database.describe(session, sql)
        opened = database.open_read(session, interchange_query(database, columns, sql), 1)
        with ExitStack() as kept:
            if opened.keep_open is not None:
                kept.enter_context(opened.keep_open)
            batches = [declared_batch(batch, columns) for split in opened.splits for batch in database.read(split)]
    except database.errors as error:
        message = f"the query cannot be run: {safe_text(error)}"
        raise RunError(message) from None
    finally:
        session.close()
    return pa.Table.from_batches(batches) if batches else declared_schema(columns).empty_table()


def _query(lookup: Lookup, database: Database) -> str:
    if lookup.query is not None:
        return lookup.query
    return render(table_query(database.place(lookup.schema, str(lookup.table)), None), database.dialect)
