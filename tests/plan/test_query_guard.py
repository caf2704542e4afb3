"""Queries of strangers: what only reads passes in every dialect, with a limit; everything else is refused."""

from __future__ import annotations

import pytest

from ematix_flow.errors import DeclareError
from ematix_flow.plan.sql.guard import guarded
from tests.plan.analytics import ANALYTICS

DIALECTS = ("sqlite", "postgres", "mysql", "duckdb")

READING = {
    "SELECT 1": "SELECT 1 LIMIT 11",
    "SELECT a FROM t -- all;": "SELECT a FROM t LIMIT 11",
    "SELECT a /* x */ FROM t;": "SELECT a FROM t LIMIT 11",
    "SELECT 'a;b'": "SELECT 'a;b' LIMIT 11",
    "SELECT 1; -- x": "SELECT 1 LIMIT 11",
    "SELECT 1;;": "SELECT 1 LIMIT 11",
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

BEYOND_TABLES = (
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd'", 'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 'x.parquet'", 'SELECT * FROM "x.csv"', "SELECT * FROM 's3://bucket/x'", "ATTACH 'x' AS y", "INSTALL httpfs",
    "PRAGMA table_info(x)", "SELECT pg_read_file('/etc/passwd')", "SELECT load_extension('x')", "SELECT pg_sleep(100)",
    "SELECT LOAD_FILE('/etc/passwd')", "SELECT * FROM t INTO OUTFILE '/tmp/x'", "SELECT * FROM sqlite_scan('a', 'b')",
    "SELECT readfile('x')", "SELECT * FROM glob('*')", "SELECT read_text('/etc/passwd')", "SELECT * FROM parquet_scan('x')",
    "SELECT nextval('s')", "SELECT * FROM query('DROP TABLE t')", "SELECT getenv('HOME')", "SELECT * FROM dblink('x', 'y')",
    "SELECT a FROM t WHERE b IN (SELECT pg_read_file('x'))", "SELECT set_config('a', 'b', false)",
    "SELECT own_function(a) FROM t", "SELECT * FROM own_function(1)", "SELECT own.lower_case(a) FROM t",
    "SELECT * FROM t, LATERAL glob('*')", "SELECT sleep_ms(1000)", "SELECT getvariable('x')", "SELECT write_log('x')",
)  # fmt: skip

OF_POSTGRES = (
    # SQL in a text
    "SELECT ts_stat('SELECT 1')", "SELECT ts_rewrite('a'::tsquery, 'SELECT 1')", "SELECT crosstab('SELECT 1')",
    "SELECT * FROM crosstab('SELECT 1') AS t(a int)", "SELECT connectby('a', 'b', 'c', 'd', 0)", "SELECT query_to_xml('x', true, false, '')",
    "SELECT query_to_xmlschema('x', true, false, '')", "SELECT table_to_xml('x', true, false, '')", "SELECT xpath_table('a', 'b', 'c', 'd', 'e')",
    # files, servers, sessions, settings
    "SELECT lo_export(1, '/tmp/x')", "SELECT lo_get(1)", "SELECT loread(1, 2)", "SELECT lowrite(1, 'x')", "SELECT pg_reload_conf()",
    "SELECT pg_stat_reset()", "SELECT pg_copy_physical_replication_slot('a', 'b')", "SELECT pg_backup_start('x')",
    "SELECT brin_summarize_new_values('x')", "SELECT gin_clean_pending_list('x')", "SELECT pg_notify('a', 'b')",
    "SELECT pg_prewarm('x')", "SELECT pg_sync_replication_slots()", "SELECT current_setting('x')", "SELECT pg_current_logfile()",
    "SELECT pg_catalog.pg_notify('a', 'b')", 'SELECT "pg_notify"(1, 2)', "SELECT own.lower('A')", "SELECT * FROM own.generate_series(1, 2)",
    "SELECT * FROM ROWS FROM (generate_series(1, 2), pg_ls_dir('/'))", "SELECT inet_server_addr()", "SELECT txid_current()",
    # tables of the system
    "SELECT * FROM pg_authid", "SELECT * FROM pg_catalog.pg_authid", 'SELECT * FROM "pg_shadow"', "TABLE PG_AUTHID",
    "WITH pg_authid AS (SELECT * FROM pg_authid) SELECT * FROM pg_authid", "SELECT * FROM pg_hba_file_rules", "SELECT * FROM pg_settings",
    "SELECT * FROM pg_file_settings", "SELECT * FROM pg_user_mapping", "SELECT * FROM pg_user_mappings", "SELECT * FROM pg_largeobject",
    "SELECT * FROM pg_stat_activity", "SELECT * FROM pg_subscription", "SELECT * FROM pg_toast.pg_toast_2619",
    "SELECT * FROM information_schema.user_mapping_options", "SELECT * FROM information_schema.foreign_server_options",
)  # fmt: skip
OF_DUCKDB = (
    "SELECT * FROM (SUMMARIZE 'x.csv')", "SELECT * FROM (SUMMARIZE FROM 'x.csv')", "SELECT * FROM (DESCRIBE 'x.csv')",
    "WITH x AS (SUMMARIZE 'http://127.0.0.1/x.csv') SELECT * FROM x", "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_settings", "SELECT * FROM pg_settings", "SELECT * FROM duckdb_databases", "SELECT '/etc/passwd'.read_text()",
    "SELECT * FROM json_execute_serialized_sql('x')", "SELECT json_serialize_sql('x')", "SELECT * FROM pragma_database_list",
)  # fmt: skip
OF_MYSQL = (
    "SELECT @@secure_file_priv", "SELECT SLEEP(5)", "SELECT GET_LOCK('a', 1)", "SELECT * FROM mysql.user", "SELECT * FROM MYSQL.global_priv",
    "SELECT own.lower('A')", "SELECT master_gtid_wait('x')", "SELECT /*+ SET_VAR(max_execution_time = 0) */ 1",
    "SELECT * FROM performance_schema.threads", "SELECT * FROM information_schema.processlist", "SELECT uuid_short()",
)  # fmt: skip
OF_SQLITE = (
    "SELECT fts3_tokenizer('x')", "SELECT * FROM pragma_database_list", "SELECT * FROM pragma_table_info('x')",
    "SELECT * FROM sqlite_dbpage", "SELECT sqlite_log(1, 'x')", "SELECT zeroblob(1000000000)",
)  # fmt: skip
BY_DIALECT = {"postgres": OF_POSTGRES, "duckdb": OF_DUCKDB, "mysql": OF_MYSQL, "sqlite": OF_SQLITE}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_only_reads_passes_with_a_limit(dialect: str) -> None:
    sent = {sql: guarded(sql, dialect, 10).sql.replace('"', "").replace("`", "") for sql in READING}
    assert sent == READING
    assert guarded("explain SELECT 1", dialect, 10).is_explain


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("sql", [*CHANGING, *BEYOND_TABLES])
def test_what_changes_something_or_reaches_beyond_tables_is_refused(sql: str, dialect: str) -> None:
    with pytest.raises(DeclareError):
        guarded(sql, dialect, 10)


@pytest.mark.parametrize(("dialect", "sql"), [(dialect, sql) for dialect, many in BY_DIALECT.items() for sql in many])
def test_what_reaches_beyond_tables_in_one_dialect_is_refused(dialect: str, sql: str) -> None:
    with pytest.raises(DeclareError):
        guarded(sql, dialect, 10)


@pytest.mark.parametrize(("dialect", "sql"), [(dialect, sql) for dialect, many in ANALYTICS.items() for sql in many])
def test_ordinary_analytics_pass(dialect: str, sql: str) -> None:
    assert guarded(sql, dialect, 10).sql


SMUGGLED = (
    ("postgres", """SELECT extract("year FROM now()), pg_read_file('x'), extract(year" FROM now())"""),
    ("postgres", """SELECT extract("year FROM now()) FROM pg_authid -- " FROM now())"""),
    ("postgres", """SELECT a OPERATOR("pg_catalog.+) pg_read_file('x') OPERATOR(pg_catalog".+) b FROM t"""),
    ("duckdb", """SELECT 1::"x), read_text('a'), (1" """),
    ("duckdb", """SELECT 1::"x) FROM read_text('a') -- " """),
)


@pytest.mark.parametrize(("dialect", "sql"), SMUGGLED)
def test_sql_in_a_quoted_name_does_not_get_out_of_it(dialect: str, sql: str) -> None:
    with pytest.raises(DeclareError):
        guarded(sql, dialect, 10)


def test_operators_may_be_functions_of_the_user() -> None:
    with pytest.raises(DeclareError, match=r"the operator public\.@@@ may not be used"):
        guarded("SELECT 1 OPERATOR(public.@@@) 2", "postgres", 10)
    assert guarded("SELECT 1 OPERATOR(pg_catalog.+) 2", "postgres", 10).sql


def test_functions_and_tables_of_the_user_are_called_by_their_names() -> None:
    with pytest.raises(
        DeclareError, match=r"the function risk\.score may not be called(.|\n)*EMATIX_FLOW_QUERY_FUNCTIONS"
    ):
        guarded("SELECT risk.score(a) FROM t", "postgres", 10)
    more = frozenset({"risk.score", "series_of"})
    assert guarded("SELECT Risk.Score(a) FROM series_of(3) AS s(a)", "postgres", 10, more).sql
    with pytest.raises(DeclareError, match=r"the function score may not"):
        guarded("SELECT score(a) FROM t", "postgres", 10, more)
    with pytest.raises(DeclareError, match=r"the system table pg_orders may not be read(.|\n)*name its schema"):
        guarded("SELECT * FROM pg_orders", "postgres", 10)
    assert guarded("SELECT * FROM shop.pg_orders", "postgres", 10).sql


def test_a_limit_in_percent_is_limited_too() -> None:
    assert guarded("SELECT a FROM t LIMIT 10%", "duckdb", 10).sql.endswith("AS q LIMIT 11")
