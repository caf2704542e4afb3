"""A folder of files loaded into DuckDB with rejects set aside, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from ematix_flow import register_connection
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.decorators import ematix
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.engine.rejects import list_rejects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ematix_flow.declare.pipeline.pipeline import Pipeline

    Content = bytes | Callable[[Path], object]
    """What a file holds, or the function that writes it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows that a load put into its table, and the others."""

    rows: dict[Any, tuple[Any, ...]]
    """By the first column."""
    rejects: list[tuple[str, str, str]]
    """The name of the file, the column and the reason."""
    sources: list[tuple[str, str]]
    """The path of the file and the rejected row as JSON."""
    watermark: object = None
    """How far an incremental load came."""

    def reasons(self, file: str) -> list[str]:
        """Return the reasons against rows of one file."""
        return sorted(reason for name, _, reason in self.rejects if name == file)


def load(folder: Path, files: Mapping[str, Content], columns: Mapping[str, Any], **options: Any) -> Outcome:
    """Write the files, load the folder and say what happened."""
    for name, content in files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            content(folder / name)
    pipeline = declared_load(folder, columns, **options)
    result = run_pipeline(pipeline, Options(spark=options.get("spark")))
    with duckdb.connect(str(database_of(folder))) as connection:
        rows = connection.sql("SELECT * EXCLUDE (_loaded_at, _batch_id) FROM main.loaded").fetchall()
        watermarks = tuple(connection.sql("SELECT last_value FROM ematix_flow.watermarks").fetchall())
    rejected_rows = list_rejects(pipeline, limit=1_000_000)
    assert (result["rows_inserted"], result["rows_rejected"]) == (len(rows), len(rejected_rows))
    rejects = [(str(r.source_position).rpartition("/")[2], str(r.column_name), r.reason) for r in rejected_rows]
    sources = sorted((str(r.source_position), r.row_json) for r in rejected_rows)
    return Outcome({row[0]: row[1:] for row in rows}, rejects, sources, watermarks)


def declared_load(folder: Path, columns: Mapping[str, Any], **options: Any) -> Pipeline:
    """Return the pipeline of a folder into a DuckDB file beside it."""
    PROJECT.clear()
    options.pop("spark", None)
    declared = {"kind": "object_store_local", "path": str(folder), "format": options.pop("format", "csv")}
    register_connection(connection_from_fields("raw", {**declared, **options.pop("settings", {})}))
    fields = {"kind": "duckdb", "path": str(database_of(folder))}
    register_connection(connection_from_fields("warehouse", fields))
    table = ematix.table(schema="main", name="loaded")(type("Loaded", (), {"__annotations__": dict(columns)}))
    query = options.pop("query", "")

    @ematix.pipeline(
        name="load",
        target=table,
        source_connection="raw",
        target_connection="warehouse",
        **{"mode": "append", "on_bad_row": "reject", **options},
    )
    def source(conn: Any) -> str:
        return str(query)

    return source.pipeline  # type: ignore[no-any-return]


def database_of(folder: Path) -> Path:
    """Return the DuckDB file that a folder is loaded into."""
    return folder.parent / f"{folder.name}.duckdb"
