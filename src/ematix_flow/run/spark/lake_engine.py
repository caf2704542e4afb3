"""The Spark session that lake tables are read and written with; it knows statements, not tables."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException

from ematix_flow.connect.base.lake_engine import NONE, EngineError
from ematix_flow.connect.types.identifiers import backticked
from ematix_flow.errors import UnsupportedError
from ematix_flow.run.spark.session import capabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

_CONFLICTS = (
    "ConcurrentAppend",
    "ConcurrentDelete",
    "ConcurrentModification",
    "ConcurrentTransaction",
    "ConcurrentWrite",
    "MetadataChanged",
    "ProtocolChanged",
    "DELTA_CONCURRENT",
    "DELTA_METADATA_CHANGED",
    "CommitFailedException",
    "ValidationException",
    "is not an ancestor of",
    # Another process is about to create the same table.
    "is not empty and also not a Delta table",
)
"""Errors of Delta and Iceberg when another writer changed the table at the same time."""


_SECRET = (".password", ".token", ".credential")
_KEYS = (".access.key", ".secret.key", ".session.token")
_TURN = threading.Lock()
_CATALOGS: WeakKeyDictionary[Any, dict[str, dict[str, str]]] = WeakKeyDictionary()
"""The catalogs that each session knows already."""

_BUCKETS: WeakKeyDictionary[Any, dict[str, dict[str, str]]] = WeakKeyDictionary()
"""The buckets that each Java process, or each session of a Connect server, knows already."""


class LakeSparkEngine:
    """A Spark session for lake tables."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._session = session

    def catalog(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a catalog known to the session; its settings stay there only until it is open."""
        spark = self._session()
        known = _CATALOGS.setdefault(spark, {})
        if known.get(name) == settings:
            return
        keys = {f"spark.sql.catalog.{name}{key}": value for key, value in settings.items()}
        for key, value in keys.items():
            spark.conf.set(key, value)
        try:
            with _translate_errors():
                spark.sql(f"SHOW NAMESPACES IN `{name}`").collect()
        except EngineError as error:
            # A catalog whose warehouse is not there yet is open all the same.
            if "NoSuchNamespaceException" not in str(error):
                raise
        for key in keys:
            if key.endswith(_SECRET):
                spark.conf.unset(key)
        known[name] = dict(settings)

    def bucket(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a bucket known to the session; Java opens it once, so that other keys would be forgotten in silence."""
        spark = self._session()
        known = _BUCKETS.setdefault(spark.sparkContext if capabilities(spark).context else spark, {})
        if name in known and _lasting_settings(known[name]) != _lasting_settings(settings):
            message = f"bucket {name!r} is used with other settings or keys in this process already"
            raise UnsupportedError(message, hint="give all connections to a bucket the same ones, or load them apart.")
        if known.get(name) != settings or spark.conf.get(next(iter(settings)), None) is None:
            for key, value in settings.items():
                spark.conf.set(key, value)
            known[name] = dict(settings)

    def setting(self, name: str) -> str:
        """Return a setting of the session, empty where it has none."""
        return self._session().conf.get(name, "") or ""

    def query(self, sql: str, settings: Mapping[str, str] = NONE) -> list[tuple[Any, ...]]:
        """Return the rows of a query, run under settings that end with it."""
        return [tuple(row) for row in self._rows(sql, settings)]

    def run(self, sql: str, settings: Mapping[str, str]) -> dict[str, int]:
        """Run a statement under settings that end with it, and return the numbers that its response names."""
        rows = self._rows(sql, settings)
        return {name: n for row in rows[:1] for name, n in row.asDict().items() if isinstance(n, int)}

    def _rows(self, sql: str, settings: Mapping[str, str]) -> list[Any]:
        spark = self._session()
        # The settings are those of the whole session, and name the one load that they are for.
        with _TURN if settings else nullcontext():
            for key, value in settings.items():
                spark.conf.set(key, value)
            try:
                with _translate_errors():
                    return list(spark.sql(sql).collect())
            finally:
                for key in settings:
                    spark.conf.unset(key)

    def view(self, name: str, paths: Sequence[str], columns: str) -> None:
        """Show Parquet files as a relation of this session; without files an empty one of these columns."""
        spark = self._session()
        with _translate_errors():
            frame = spark.read.schema(columns).parquet(*paths) if paths else spark.createDataFrame([], columns)
            # Quoted: the relation of folded events is called after its table, which may have any name.
            frame.createOrReplaceTempView(backticked(name))

    def columns(self, table: str) -> list[tuple[str, str, bool]] | None:
        """Return name, type and nullability of a table's columns, or None where there is no such table."""
        spark = self._session()
        with _translate_errors():
            if not spark.catalog.tableExists(table):
                return None
            fields = spark.table(table).schema.fields
        return [(field.name, field.dataType.simpleString(), field.nullable) for field in fields]

    def materialize(self, name: str, query: str) -> None:
        """Work out a query once and show its rows as a relation of this session."""
        with _translate_errors():
            # Not cached as a view: every mention of one is planned anew with all that it is made of.
            self._session().sql(query).localCheckpoint().createOrReplaceTempView(name)

    def forget(self, name: str) -> None:
        """Remove a relation of this session and what is cached of it."""
        spark = self._session()
        with _translate_errors():
            spark.catalog.dropTempView(name)


def _lasting_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what stays the same when keys that end are renewed."""
    renewed = any(key.endswith(".session.token") for key in settings)
    return {key: value for key, value in settings.items() if not (renewed and key.endswith(_KEYS))}


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise an error of Spark as one of the engine."""
    from py4j.protocol import Py4JError

    try:
        yield
    except (PySparkException, Py4JError) as error:
        from ematix_flow.run.spark.errors import reason_of

        answered = _is_answer(error)
        transient = not answered or any(conflict in str(error) for conflict in _CONFLICTS)
        raise EngineError(str(reason_of(error)), transient=transient, answered=answered) from error


def _is_answer(error: BaseException) -> bool:
    """Return whether the engine itself reports an error; a broken connection proves nothing about the statement."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JError):
        return isinstance(error, Py4JJavaError)
    unheard = ("SparkConnectGrpcException", "RetriesExceeded", "PySparkAssertionError")
    condition = getattr(error, "getCondition", lambda: None)() or ""
    return type(error).__name__ not in unheard and not condition.startswith("INVALID_HANDLE")
