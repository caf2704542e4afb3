"""Where the bench runs: a PostgreSQL server of its own, an environment per contender, generated rows; it measures nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from tests.services.postgres import PostgresServer

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
WORK = Path(os.environ.get("BENCH_HOME", ROOT / "bench-work"))

ENGINES = WORK / "engines"
"""Where warm engines of the bench are known."""
ENGINES_BEFORE = WORK / "engines-before"
"""Where those of an earlier version are."""
BEFORE = "BENCH_BEFORE"
"""Names the checkout of an earlier version, which has a `.venv` of its own."""

PACKAGES = {
    "ematix": ["ematix-flow==1.0.0"],
    "dlt": ["dlt[postgres,duckdb,filesystem,deltalake]==1.31.0", "sqlalchemy", "pyarrow", "pandas<3"],
    "spark": ["pyspark==4.1.3", "pyarrow", "pandas<3", "duckdb"],
    "connectorx": ["connectorx==0.4.6", "polars", "pyarrow"],
    "adbc": ["adbc-driver-postgresql==1.13.0", "polars", "pyarrow"],
    "feast": ["feast[postgres]==0.67.0"],
}

SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "wal_level": "logical",
    "track_commit_timestamp": "on",
}
"""What differs from PostgreSQL's defaults; fsync and full_page_writes are on."""

COLUMNS = (
    "id bigint primary key, customer int not null, name text not null, code varchar(40) not null, "
    "amount numeric(12,2) not null, score double precision not null, happened_at timestamptz not null, "
    "active boolean not null"
)
NAMES = "id, customer, name, code, amount, score, happened_at, active"


def earlier() -> Path:
    """Return the checkout of the earlier version that is measured beside this one."""
    return Path(os.environ[BEFORE])


class Server(PostgresServer):
    """A durable server with room for millions of rows."""

    def __init__(self) -> None:
        super().__init__(durable=True)

    def command(self) -> list[str]:
        """Return the command line with the settings above."""
        return [
            *super().command(),
            *(argument for key, value in SETTINGS.items() for argument in ("-c", f"{key}={value}")),
        ]

    def sql(self, database: str, *statements: str) -> str:
        """Run statements by psql and return what they print."""
        command = [str(psql()), self.url(database), "-X", "-q", "-At", "-v", "ON_ERROR_STOP=1"]
        for statement in statements:
            command += ["-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def recreate(self, database: str) -> str:
        """Make a database anew and return its URL."""
        self.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        self.execute(f"CREATE DATABASE {database}")
        return self.url(database)

    def fill(self, database: str, table: str, rows: int, changed: str = "false") -> None:
        """Make a table of generated rows; those that meet a condition have another name."""
        self.sql(
            database,
            "CREATE SCHEMA IF NOT EXISTS raw",
            f"CREATE TABLE raw.{table} ({COLUMNS})",
            f"INSERT INTO raw.{table} SELECT i, i % 100000, 'customer number ' || i || CASE WHEN {changed} THEN '!' "
            "ELSE '' END, md5(i::text), (i % 1000000) * 0.01, i * 1.5, timestamptz '2026-01-01' + i * interval '1 s', "
            f"i % 2 = 0 FROM generate_series(1, {rows}) AS i",
            f"VACUUM ANALYZE raw.{table}",
        )


def psql() -> Path:
    """Return the psql program."""
    from tests.services.programs import postgres_bin

    return postgres_bin() / "psql"


def python_of(contender: str) -> Path:
    """Return the Python of a contender's environment, made when it is missing."""
    folder = WORK / "venvs" / contender
    stamp = folder / ".installed"
    required = "\n".join(PACKAGES[contender])
    if not stamp.exists() or stamp.read_text() != required:
        print(f"bench: making the environment of {contender}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = [folder / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES[contender]]
        subprocess.run(install, check=True)
        stamp.write_text(required)
    return folder / "bin" / "python"


def export(server: Server, rows: int, kind: str, *, every: int = 1, suffix: str = "", files: int = 8) -> Path:
    """Write the rows of the source, or every so manieth with a mark in its name, as files and return their folder."""
    cut = "" if files == 8 else f"-in-{files}"  # noqa: PLR2004 - what most cases read
    folder = WORK / "files" / (f"{kind}-{rows}{cut}" + (f"-{every}{suffix.replace(' ', '-')}" if every > 1 else ""))
    if (folder / ".done").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    import duckdb

    source_query = (
        f"SELECT i AS id, CAST(i % 100000 AS INT) AS customer, 'customer number ' || i || '{suffix}' AS name, md5(i::VARCHAR) AS code, "
        "CAST((i % 1000000) * 0.01 AS DECIMAL(12,2)) AS amount, CAST(i * 1.5 AS DOUBLE) AS score, "
        "TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_seconds(i) AS happened_at, i % 2 = 0 AS active"
    )
    del server
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for part in range(files):
            low, high = rows * part // files + 1, rows * (part + 1) // files
            query = f"{source_query} FROM range({low}, {high + 1}) AS r(i) WHERE i % {every} = 0"
            form = (
                "FORMAT parquet" if kind == "parquet" else "FORMAT csv, HEADER, TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%S.%fZ'"
            )
            connection.execute(f"COPY ({query}) TO '{folder}/part{part}.{kind}' ({form})")
    (folder / ".done").touch()
    return folder


def machine() -> dict[str, str]:
    """Describe the machine."""
    processor = platform.processor() or platform.machine()
    info, memory = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if info.exists():
        named = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        processor = named[0] if named else processor
    total = memory.read_text().split("\n", 1)[0].split()[1] if memory.exists() else "0"
    return {
        "processor": processor,
        "cores": str(os.cpu_count()),
        "memory": f"{int(total) / 2**20:.0f} GiB",
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _first_line(["java", "-version"]),
        "postgres": _first_line([str(psql()), "--version"]),
    }


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "?"
    return (done.stdout + done.stderr).strip().split("\n")[0]
