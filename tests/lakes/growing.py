"""Lake tables that grow, streams that follow them, and what arrives in a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.registry import open_stream
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.stream.build import stream_from_keywords
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.batch.target import engine_on
from ematix_flow.engine.spark.session import session_for
from ematix_flow.engine.stream.control import move_stream
from ematix_flow.engine.stream.options import StreamOptions
from ematix_flow.engine.stream.run import run_stream
from tests.streams.feeds import duckdb_at, rows_in

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.connect.lake.stream_source import LakeStream
    from ematix_flow.declare.stream.stream import Stream


@dataclass
class Growing:
    """A table of a lake, and the database that a stream brings its rows to."""

    fields: dict[str, Any]
    folder: Path

    @property
    def connection(self) -> Any:
        """Return the connection to the lake."""
        return connection_from_fields("lake", self.fields)

    @property
    def is_delta(self) -> bool:
        """Say which of the two formats it is."""
        return self.fields["kind"] != "iceberg"

    def source(self) -> LakeStream:
        """Open the table as a stream does."""
        source: Any = open_stream(self.connection, "shop.things")
        source.use(lambda: engine_on(session_for(Options())))
        return source

    def sql(self, text: str) -> Any:
        """Run a statement; `{table}` stands for the table."""
        source = self.source()
        engine = source.engine()
        if not self.is_delta:
            engine.query(f"CREATE NAMESPACE IF NOT EXISTS {source.relation.split('.')[0]}.shop")
        return engine.query(text.format(table=source.relation))

    def create(self, columns: str = "id BIGINT, word STRING, amount DECIMAL(38,4)", more: str = "") -> None:
        """Make the table."""
        self.sql(f"CREATE TABLE {{table}} ({columns}) USING {'delta' if self.is_delta else 'iceberg'} {more}")

    def add(self, *numbers: int) -> None:
        """Append rows in one commit."""
        rows = ", ".join(f"({number}, 'w{number}', {number}.5)" for number in numbers)
        self.sql(f"INSERT INTO {{table}} VALUES {rows}")

    def compact(self) -> None:
        """Write the rows anew, in fewer files."""
        if self.is_delta:
            self.sql("OPTIMIZE {table}")
            return
        catalog = self.source().relation.split(".")[0]
        self.sql(f"CALL {catalog}.system.rewrite_data_files('shop.things', options => map('rewrite-all', 'true'))")

    def stream(self, **keywords: Any) -> Stream:
        """Declare the stream."""
        given = {"name": "things", "source": self.connection, "source_query": "shop.things"}
        return stream_from_keywords(given | {"target": duckdb_at(self.database_file)} | keywords, None)

    def follow(self, **keywords: Any) -> int:
        """Run the stream to its end and return how many rows it took."""
        return int(run_stream(self.stream(**keywords), StreamOptions(available_now=True))["total_rows"])

    def rewind(self, where: str, **keywords: Any) -> None:
        """Let the stream go on from elsewhere."""
        move_stream(self.stream(**keywords), where, StreamOptions())

    @property
    def database_file(self) -> Path:
        """Return the file of the database."""
        return self.folder / "place.duckdb"

    def ids(self, table: str = "shop.copies") -> list[int]:
        """Return the numbers of all rows that arrived, in order."""
        return [row[0] for row in rows_in(self.database_file, f"SELECT id FROM {table} ORDER BY id")]
