"""DuckDB beyond the contract of all databases: one process at a time, memory and reads, on real files."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from ematix_flow.connect.base.columns import TableName
from ematix_flow.connect.base.stage import StageColumn, WorkTable
from ematix_flow.connect.duckdb import session as duckdb_session
from ematix_flow.connect.duckdb.database import DuckDB
from ematix_flow.declare.connection.registry import DuckDBConnection
from ematix_flow.declare.table.types import Numeric, String
from ematix_flow.errors import TransientError
from ematix_flow.plan.sql.modes.row_hash import _float_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.duckdb.session import DuckDBSession

HOLDER = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def database(duckdb_path: Path) -> DuckDB:
    return DuckDB(DuckDBConnection("duck", path=str(duckdb_path)))


@pytest.fixture
def session(database: DuckDB) -> Iterator[DuckDBSession]:
    with closing(database.session()) as opened:
        yield opened


def opens_in_another_process(path: Path) -> bool:
    """Return whether another process can open the file."""
    command = [sys.executable, "-c", "import duckdb, sys; duckdb.connect(sys.argv[1])", str(path)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.slow
def test_the_sessions_of_a_process_share_the_file_and_the_last_gives_it_back(
    database: DuckDB, duckdb_path: Path
) -> None:
    with closing(database.session()) as one:
        one.execute("CREATE TABLE t (x INTEGER)")
        with closing(database.session()) as two, closing(database.read_only_session()) as three:
            one.begin()
            one.execute("INSERT INTO t VALUES (1)")
            assert two.query("SELECT * FROM t") == three.query("SELECT * FROM t") == []
            one.commit()
            assert two.query("SELECT * FROM t") == three.query("SELECT * FROM t") == [(1,)]
        two.close()
        assert not opens_in_another_process(duckdb_path)
    assert opens_in_another_process(duckdb_path)


@pytest.mark.slow
def test_a_file_that_another_process_holds_is_a_transient_error_with_its_number(
    database: DuckDB, duckdb_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb_session, "DUCKDB_FILE", replace(duckdb_session.DUCKDB_FILE, seconds=0.1))
    command = [sys.executable, "-c", HOLDER, str(duckdb_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for opening in (database.session, database.read_only_session):
            with pytest.raises(TransientError, match=f"held by process {holder.pid}"):
                opening()
        holder.communicate("go\n")
    with closing(database.session()) as session:
        assert session.query("SELECT 1") == [(1,)]


def test_looking_reads_only_and_keeps_writers_waiting(database: DuckDB, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb_session, "DUCKDB_FILE", replace(duckdb_session.DUCKDB_FILE, seconds=0.1))
    assert not database.exists()
    with pytest.raises(duckdb.Error):
        database.read_only_session()
    assert not database.exists()
    database.session().close()
    with closing(database.read_only_session()) as reader:
        with pytest.raises(duckdb.InvalidInputException, match="read-only"):
            reader.execute("CREATE TABLE t (x INTEGER)")
        with pytest.raises(TransientError):
            database.session()
    assert "0 tables" in database.probe()


@pytest.mark.slow
def test_files_of_other_threads_are_left_alone(tmp_path: Path) -> None:
    def use(name: str) -> int:
        file = DuckDB(DuckDBConnection(name, path=str(tmp_path / f"{name}.duckdb")))
        for _ in range(10):
            with closing(file.session()) as session:
                session.query("SELECT count(*) FROM duckdb_columns()")
        return 10

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(use, ("a", "b", "c"))) == [10, 10, 10]


@pytest.mark.slow
def test_what_a_session_attached_goes_with_it(database: DuckDB, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    for _ in range(2):
        with closing(database.session()) as session:
            session.execute(f"ATTACH '{other}' AS other")
    assert opens_in_another_process(other)


def test_a_forked_process_does_not_use_the_file_of_its_parent(database: DuckDB, session: DuckDBSession) -> None:
    session.execute("CREATE TABLE t (a INT)")
    reader, writer = os.pipe()
    if not os.fork():
        try:
            with closing(duckdb_session.open_file(database.path, wait=0)) as inherited:
                inherited.execute("INSERT INTO t VALUES (1)")
            os.write(writer, b"opened")
        except TransientError:
            os.write(writer, b"held")
        finally:
            os._exit(0)
    assert os.read(reader, 10) == b"held"


def test_a_broken_file_is_not_taken_for_a_held_one(tmp_path: Path) -> None:
    path = tmp_path / "locked room" / "x.duckdb"
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(duckdb.IOException, match="not a valid DuckDB"):
        duckdb_session.open_file(str(path))


def test_a_schema_may_be_called_like_the_file(tmp_path: Path) -> None:
    database = DuckDB(DuckDBConnection("duck", path=str(tmp_path / "shop.duckdb")))
    with closing(database.session()) as session:
        database.create_schema(session, "shop")
        session.execute("CREATE TABLE shop.items (x INTEGER)")
        assert database.find_table(session, TableName("shop", "items")) is not None
    with closing(database.read_only_session()) as session:
        assert database.find_table(session, TableName("shop", "items")) is not None
        assert database.find_table(session, TableName("", "items")) is None


@pytest.mark.slow
def test_a_read_leaves_through_files_that_other_processes_can_open(database: DuckDB, session: DuckDBSession) -> None:
    session.execute("CREATE TABLE t AS SELECT range AS n FROM range(300000)")
    opened = database.open_read(session, "SELECT n, -n AS m FROM t -- all of them", 2)
    session.execute("DELETE FROM t")
    assert opened.resources is not None
    with opened.resources:
        batches = [batch for split in opened.splits for batch in database.read(split)]
        assert max(batch.num_rows for batch in batches) <= 65_536
        numbers = sorted(number for batch in batches for number in batch.column("n").to_pylist())
        assert numbers == list(range(300_000))
    assert not any(Path(split.snapshot).exists() for split in opened.splits)


def test_a_read_without_rows_has_its_columns(database: DuckDB, session: DuckDBSession) -> None:
    opened = database.open_read(session, "SELECT 1 AS n WHERE FALSE", 2)
    assert sum(batch.num_rows for split in opened.splits for batch in database.read(split)) == 0
    assert len(opened.splits) == 1


def test_values_without_an_arrow_type_are_read_as_text(database: DuckDB, session: DuckDBSession) -> None:
    query = f"SELECT {2**127 - 1}::HUGEINT AS h, [1, 2] AS l, '10:00'::TIME AS t, '1'::JSON AS j"
    described = database.describe(session, query)
    assert [column.family for column in described] == ["other", "other", "other", "json"]
    read = ", ".join(f"{database.interchange(c, c.name)} AS {c.name}" for c in described)
    opened = database.open_read(session, f"SELECT {read} FROM ({query})", 1)
    rows = [row for split in opened.splits for batch in database.read(split) for row in batch.to_pylist()]
    assert rows == [{"h": str(2**127 - 1), "l": "[1, 2]", "t": "10:00:00", "j": "1"}]


def test_databases_in_memory_are_shared_by_name() -> None:
    one, other = (DuckDB(DuckDBConnection(name, path=":memory:")) for name in ("duck one", "duck other"))
    with closing(one.session()) as session:
        session.execute("CREATE TABLE t AS SELECT 1 AS x")
    with closing(one.session()) as session:
        assert session.query("SELECT x FROM t") == [(1,)]
        opened = one.open_read(session, "SELECT x FROM t", 1)
        assert [batch.to_pylist() for split in opened.splits for batch in one.read(split)] == [[{"x": 1}]]
    with closing(other.session()) as session, pytest.raises(duckdb.CatalogException):
        session.query("SELECT x FROM t")
    assert one.stage_root() != other.stage_root()


def test_conflicts_are_transient_and_a_twin_is_a_duplicate_key(database: DuckDB) -> None:
    with closing(database.session()) as one, closing(database.session()) as two:
        one.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v INTEGER)")
        one.execute("INSERT INTO t VALUES (1, 1)")
        one.begin()
        two.begin()
        one.execute("UPDATE t SET v = 2")
        with pytest.raises(duckdb.Error) as conflict:
            two.execute("UPDATE t SET v = 3")
        two.rollback()
        one.commit()
        one.begin()
        two.begin()
        one.execute("INSERT INTO t VALUES (2, 2)")
        two.execute("INSERT INTO t VALUES (2, 3)")
        one.commit()
        with pytest.raises(duckdb.Error) as duplicate:
            two.commit()
        with pytest.raises(duckdb.Error) as wrong:
            one.execute("INSERT INTO t VALUES (1, 2) ON CONFLICT (v) DO NOTHING")
    assert (database.is_transient(conflict.value), database.is_duplicate_key(conflict.value)) == (True, False)
    assert (database.is_transient(duplicate.value), database.is_duplicate_key(duplicate.value)) == (False, True)
    assert (database.is_transient(wrong.value), database.is_duplicate_key(wrong.value)) == (False, False)


def test_columns_widen_without_losing_a_value(database: DuckDB, session: DuckDBSession) -> None:
    assert database.widening("SMALLINT", "BIGINT")
    assert database.widening("FLOAT", "DOUBLE")
    assert database.widening("DECIMAL(5,2)", "DECIMAL(8, 3)")
    for narrow, declared in (
        ("BIGINT", "INTEGER"),
        ("DECIMAL(8,2)", "DECIMAL(8,4)"),
        ("VARCHAR", "BIGINT"),
        ("BIGINT", "BIGINT"),
    ):
        assert not database.widening(narrow, declared)
    session.execute("CREATE TABLE t AS SELECT 1.25::DECIMAL(5,2) AS x")
    session.execute(database.alter_type_sql("t", "x", database.ddl_type(Numeric(8, 3)), nullable=True))
    existing = database.find_table(session, TableName("", "t"))
    assert existing is not None
    assert existing.columns[0].type == "DECIMAL(8,3)"


def test_the_length_of_text_is_checked_and_hostile_names_are_quoted(database: DuckDB, session: DuckDBSession) -> None:
    column = StageColumn('a "b"; --', String(3))
    session.execute(f'CREATE TABLE t ("a ""b""; --" VARCHAR CHECK ({database.check_clause(column)}))')
    session.execute("INSERT INTO t VALUES ('ééé'), (NULL)")
    with pytest.raises(duckdb.ConstraintException):
        session.execute("INSERT INTO t VALUES ('abcd')")
    name = database.create_work_table(session, WorkTable('w "1"', (column,)), "1")
    assert session.execute(f"INSERT INTO {name} SELECT * FROM t") == 2


def test_views_cannot_be_loaded(database: DuckDB, session: DuckDBSession) -> None:
    session.execute("CREATE VIEW v AS SELECT 1 AS x")
    existing = database.find_table(session, TableName("", "v"))
    assert existing is not None
    assert "view" in existing.problem


def test_the_bits_of_a_double_need_no_function(session: DuckDBSession) -> None:
    values = [0.0, -0.0, 1.5, 0.1, -1.7976931348623157e308, 5e-324, float("inf")]
    sql = _float_text("CAST(? AS DOUBLE)", "duckdb")
    for value in values:
        assert session.query(f"SELECT {sql}", (value,)) == [(struct.pack(">d", value).hex(),)]
    assert session.query(f"SELECT {sql}", (None,)) == [(None,)]
