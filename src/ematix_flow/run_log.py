"""The public names of run logs: opening one by its address, and the values that its methods take and return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ematix_flow.commit.runlog.leases import ClaimResult, ExpiredClaim
from ematix_flow.commit.runlog.legacy import AttemptState
from ematix_flow.commit.runlog.log import RunLog
from ematix_flow.commit.runlog.open import ddl, forgotten_run_log, from_url, open_run_log, sqlite_run_log
from ematix_flow.commit.runlog.records import Action, Backfill, Claim
from ematix_flow.errors import RunLogError
from ematix_flow.records import Incident, PipelineState, RunRecord

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "Action",
    "AttemptState",
    "AzureBlobRunLog",
    "Backfill",
    "Claim",
    "ClaimResult",
    "DuckDBRunLog",
    "ExpiredClaim",
    "GCSRunLog",
    "InMemoryRunHistory",
    "InMemoryRunLog",
    "Incident",
    "MySQLRunLog",
    "PipelineState",
    "PostgresRunLog",
    "RunLog",
    "RunLogError",
    "RunRecord",
    "S3RunLog",
    "SqliteRunLog",
    "ddl",
    "from_url",
    "open_run_log",
]


def SqliteRunLog(path: str | Path) -> RunLog:  # noqa: N802 - the name that programs call
    """Return the run log in an SQLite file."""
    return sqlite_run_log(path)


def InMemoryRunLog() -> RunLog:  # noqa: N802 - the name that programs call
    """Return a run log that ends with this process."""
    return forgotten_run_log()


InMemoryRunHistory = InMemoryRunLog


def PostgresRunLog(dsn: str, *, schema: str = "public", create_tables: bool = True) -> RunLog:  # noqa: N802
    """Return the run log in a schema of a PostgreSQL database."""
    return from_url(_with(dsn, schema=schema, create_tables=create_tables))


def MySQLRunLog(dsn: str, *, table_prefix: str = "", create_tables: bool = True) -> RunLog:  # noqa: N802
    """Return the run log in a MySQL or MariaDB database, its tables named with a prefix."""
    return from_url(_with(dsn, table_prefix=table_prefix, create_tables=create_tables))


def DuckDBRunLog(path: str | Path = ":memory:", *, create_tables: bool = True) -> RunLog:  # noqa: N802
    """Return the run log in a DuckDB file."""
    return from_url(_with(f"duckdb://{path}", create_tables=create_tables))


def S3RunLog(bucket: str, prefix: str = "", **options: str) -> RunLog:  # noqa: N802
    """Return the run log below a prefix of an S3 bucket; options as in its address."""
    return from_url(_with(f"s3://{bucket}/{prefix}", **options))


def GCSRunLog(bucket: str, prefix: str = "", **options: str) -> RunLog:  # noqa: N802
    """Return the run log below a prefix of a bucket of Google Cloud Storage; options as in its address."""
    return from_url(_with(f"gs://{bucket}/{prefix}", **options))


def AzureBlobRunLog(account: str, container: str, prefix: str = "", **options: str) -> RunLog:  # noqa: N802
    """Return the run log below a prefix of an Azure container; options as in its address."""
    return from_url(_with(f"azure://{account}/{container}/{prefix}", **options))


def _with(url: str, **options: object) -> str:
    """Return an address with options."""
    from urllib.parse import quote

    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in options.items())
    return url if not query else f"{url}{'&' if '?' in url else '?'}{query}"
