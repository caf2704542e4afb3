"""Names and texts in the SQL of the warehouses."""

from __future__ import annotations

import re

from ematix_flow.connect.types.identifiers import backticked, quoted, spark_text, text

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def name_sql(name: str, kind: str) -> str:
    """Return a name in SQL; one of plain letters means in Snowflake what it means without quotes."""
    if kind == "bigquery":
        return backticked(name)
    return quoted(name.upper() if kind == "snowflake" and _SIMPLE.fullmatch(name) else name)


def text_sql(value: str, kind: str) -> str:
    """Return a text literal; a backslash begins an escape in Snowflake and BigQuery."""
    return text(value) if kind == "redshift" else spark_text(value)
