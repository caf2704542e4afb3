"""Queries of strangers: what only reads passes in every dialect, with a limit; everything else is refused."""

from __future__ import annotations

import pytest

from ematix_flow.errors import DeclareError
from ematix_flow.plan.sql.guard import guarded

DIALECTS = ("sqlite", "postgres", "mysql", "duckdb")

READING = {
    "SELECT 1": "SELECT 1 LIMIT 11",
    "SELECT a FROM t -- all;": "SELECT a FROM t LIMIT 11",
    "SELECT a /* x */ FROM t;": "SELECT a FROM t LIMIT 11",
    "SELECT 'a;b'": "SELECT 'a;b' LIMIT 11",
    "WITH x AS (SELECT 1 AS a) SELECT a FROM x ORDER BY a LIMIT 5": "WITH x AS (SELECT 1 AS a) SELECT a FROM x ORDER BY a LIMIT 5",
    "SELECT a FROM t LIMIT 999999": "SELECT a FROM t LIMIT 11",
    "SELECT 1 UNION ALL SELECT 2": "SELECT 1 UNION ALL SELECT 2 LIMIT 11",
    "SELECT a FROM s.t JOIN u USING (id)": "SELECT a FROM s.t JOIN u USING (id) LIMIT 11",
}

CHANGING = (
    "", "DELETE FROM t", "UPDATE t SET a = 1", "INSERT INTO t VALUES (1)", "DROP TABLE t", "CREATE TABLE x AS SELECT 1",
    "SELECT 1; DROP TABLE t", "SELECT 1; SELECT 2", "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
    "SELECT * INTO x FROM t", "SELECT * FROM t FOR UPDATE", "EXPLAIN DELETE FROM t", "EXPLAIN ANALYZE DELETE FROM t",
    "BEGIN", "SET x = 1", "CALL x()", "VACUUM", "SHOW TABLES", "COPY t TO '/tmp/x'", "TRUNCATE TABLE t",
)  # fmt: skip

REACHING = (
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'", 'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 'x.parquet'", 'SELECT * FROM "x.csv"', "SELECT * FROM 's3://bucket/x'", "ATTACH 'x' AS y", "INSTALL httpfs",
    "PRAGMA table_info(x)", "SELECT pg_read_file('/etc/passwd')", "SELECT load_extension('x')", "SELECT pg_sleep(100)",
    "SELECT LOAD_FILE('/etc/passwd')", "SELECT * FROM t INTO OUTFILE '/tmp/x'", "SELECT * FROM sqlite_scan('a', 'b')",
    "SELECT readfile('x')", "SELECT * FROM glob('*')", "SELECT read_text('/etc/passwd')", "SELECT * FROM parquet_scan('x')",
    "SELECT nextval('s')", "SELECT * FROM query('DROP TABLE t')", "SELECT getenv('HOME')", "SELECT * FROM dblink('x', 'y')",
    "SELECT a FROM t WHERE b IN (SELECT pg_read_file('x'))", "SELECT set_config('a', 'b', false)",
)  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_only_reads_passes_with_a_limit(dialect: str) -> None:
    sent = {sql: guarded(sql, dialect, 10).sql.replace('"', "").replace("`", "") for sql in READING}
    assert sent == READING
    assert guarded("explain SELECT 1", dialect, 10).is_explain


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sql", [*CHANGING, *REACHING])
def test_what_changes_something_or_reaches_beyond_tables_is_refused(sql: str, dialect: str) -> None:
    with pytest.raises(DeclareError):
        guarded(sql, dialect, 10)
