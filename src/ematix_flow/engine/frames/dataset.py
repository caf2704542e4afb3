"""A loaded table as a value that gives its rows to any library: `ematix.dataset("pipeline or table")`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.lookup import resolve_connection
from ematix_flow.connect.registry import FILES
from ematix_flow.declare.pipeline.pipeline import Pipeline
from ematix_flow.declare.project import PROJECT
from ematix_flow.declare.table.class_body import ManagedTable, table_of
from ematix_flow.engine.api.references import reference_to
from ematix_flow.engine.frames.convert import frame_of, lazy_polars
from ematix_flow.engine.frames.on_spark import value_on_spark
from ematix_flow.engine.frames.read import rows_of
from ematix_flow.errors import UnknownNameError, did_you_mean
from ematix_flow.plan.source import SourceValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.declare.connection.registry import Connection as Declared
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.engine.frames.read import Rows


@dataclass(frozen=True, slots=True)
class Dataset:
    """The rows of one table; every call reads them as they are then."""

    name: str
    connection: str | Declared | None
    columns: tuple[str, ...] = ()
    """The columns that are read; all where there are none."""

    def select(self, *columns: str) -> Dataset:
        """Return the dataset with only these columns."""
        return replace(self, columns=columns)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns as Arrow types."""
        return self._rows().schema

    def batches(self) -> pa.RecordBatchReader:
        """Return the rows as they come, for tables that are larger than memory."""
        return self._rows().reader()

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self._rows().table()

    def to_df(self, prefer: str = "auto") -> Any:
        """Return the rows as a frame of the preferred library."""
        return frame_of(self.to_arrow(), prefer)

    def to_polars(self) -> Any:
        """Return the rows as a frame of polars."""
        return self.to_df("polars")

    def to_pandas(self) -> Any:
        """Return the rows as a frame of pandas."""
        return self.to_df("pandas")

    def to_duckdb(self) -> Any:
        """Return the rows as a relation of DuckDB."""
        return self.to_df("duckdb")

    def to_pyspark(self, spark: Any = None) -> Any:
        """Return the table as a frame of Spark, which reads it when it is evaluated."""
        return value_on_spark(self._value(), spark)

    def lazy(self) -> Any:
        """Return a lazy frame of polars, which reads the columns and rows that it uses when it is collected."""

        def rows(columns: Sequence[str] | None) -> Rows:
            return self.select(*columns)._rows() if columns else self._rows()  # noqa: SLF001 - its own

        return lazy_polars(self.schema, rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows by Arrow's stream protocol, which frame libraries read."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def _rows(self) -> Rows:
        return rows_of(self._value())

    def _value(self) -> SourceValue:
        schema, _, name = self.name.rpartition(".")
        declared = resolve_connection("default" if self.connection is None else self.connection)
        columns = self.columns or None
        if declared.kind in FILES:
            return SourceValue(declared, path=f"{schema}/{name}" if schema else name, columns=columns)
        return SourceValue(declared, table=(schema, name), columns=columns)


def dataset(what: Any, connection: Any = None) -> Dataset:
    """Return a loaded table by the name of its pipeline, by its own name, or by what was declared."""
    known = _target_of(what)
    if known is not None and (connection is None or not isinstance(what, str)):
        return Dataset(known.table.qualified_name, reference_to(connection) or known.connection)
    if isinstance(what, type) and issubclass(what, ManagedTable):
        return dataset(table_of(what).qualified_name, connection)
    name = str(what)
    if "." not in name and connection is None:
        message = f"{name!r} is neither a declared pipeline nor a table"
        raise UnknownNameError(
            message, hint=f'a table is "schema.table"; pipelines: {did_you_mean(name, _pipelines())}'
        )
    return Dataset(name, reference_to(connection))


def _target_of(what: Any) -> TargetDeclaration | None:
    """Return the target that a pipeline, its name or the name of its table means; None where no pipeline is declared so."""
    pipeline = PROJECT.pipelines.get(what) if isinstance(what, str) else getattr(what, "pipeline", what)
    if isinstance(pipeline, Pipeline) and pipeline.targets:
        if len(pipeline.targets) > 1:
            names = ", ".join(target.table.qualified_name for target in pipeline.targets)
            message = f"pipeline {pipeline.name!r} loads several tables"
            raise UnknownNameError(message, hint=f"name one of them: {names}.")
        return pipeline.targets[0]
    loaded = (target for one in PROJECT.pipelines.values() for target in one.targets)
    return next((target for target in loaded if target.table.qualified_name == what), None)


def _pipelines() -> list[str]:
    return [name for name, one in PROJECT.pipelines.items() if one.targets]
