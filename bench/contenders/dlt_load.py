"""dlt: a PostgreSQL table or files into PostgreSQL, DuckDB or Delta, by its Arrow backend, with the mode asked for."""

import os
import sys

import dlt

KEYS = {
    "merge": {"disposition": "merge", "strategy": "upsert"},
    "scd2": {"disposition": "merge", "strategy": "scd2", "row_version_column_name": "row_hash"},
}


def main() -> None:
    """Load once."""
    mode, source, target = sys.argv[1:4]
    if target == "postgres":
        destination = dlt.destinations.postgres(os.environ["BENCH_DST_URL"])
    elif target == "delta":
        destination = dlt.destinations.filesystem(f"file://{os.environ['BENCH_LAKE']}")
    else:
        destination = dlt.destinations.duckdb(os.environ["BENCH_DUCKDB"])
    pipeline = dlt.pipeline("bench", destination=destination, dataset_name="bench", pipelines_dir=os.environ["HOME"])
    disposition = KEYS.get(mode, "append")
    resource = rows(source)
    if mode == "scd2":
        # Arrow tables need their hash from the caller.
        from dlt.sources.helpers.transform import add_row_hash_to_table

        resource = resource.add_map(add_row_hash_to_table("row_hash"))
    table_format = {"table_format": "delta"} if target == "delta" else {}
    pipeline.run(resource, table_name="events", write_disposition=disposition, primary_key="id", **table_format)


def rows(source):
    """Return the rows of a table, or of a folder of files."""
    if source in ("csv", "parquet"):
        from dlt.sources.filesystem import filesystem, read_csv_duckdb, read_parquet

        files = filesystem(bucket_url=f"file://{os.environ['BENCH_FILES']}", file_glob=f"*.{source}")
        return files | (read_parquet() if source == "parquet" else read_csv_duckdb(use_pyarrow=True))
    from dlt.sources.sql_database import sql_table

    schema, table = source.split(".")
    url = os.environ["BENCH_SRC_URL"].replace("postgresql:", "postgresql+psycopg2:")
    return sql_table(url, table=table, schema=schema, backend="pyarrow", chunk_size=100_000)


main()
