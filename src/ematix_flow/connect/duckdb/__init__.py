"""DuckDB."""

from ematix_flow.connect.base.system import SystemRecord

SYSTEMS = (SystemRecord("duckdb", database=f"{__name__}.database:DuckDB"),)
