"""MySQL: tables are created as declared and found again as they were declared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pymysql
import pytest

from ematix_flow import types as t
from ematix_flow.connect.base.columns import ColumnSchema, TableName
from ematix_flow.connect.base.stage import StageColumn
from ematix_flow.connect.mysql.database import MySQL
from ematix_flow.declare.connection.registry import MySQLConnection
from ematix_flow.errors import PlanError
from ematix_flow.plan.sql.ddl import ColumnDefinition, TableDefinition, create_table_sql, differences
from ematix_flow.plan.sql.render import native_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ematix_flow.connect.mysql.session import MySQLSession
    from ematix_flow.declare.table.types import ColumnType

pytestmark = pytest.mark.service

HOSTILE = ("select", "Mixed Case", "a`b", "a\"b'c", "ünï çødé", "back\\slash", "percent % ?", "x" * 63)
TYPES = (
    t.SmallInt(), t.Integer(), t.BigInt(), t.Float(), t.Double(), t.Boolean(), t.Text(), t.Date(), t.Timestamp(),
    t.TimestampTZ(), t.JSON(), t.JSONB(), t.UUID(), t.Bytes(), t.String(70), t.Numeric(38, 10),
)  # fmt: skip


@pytest.fixture
def database(mysql_url: str) -> MySQL:
    return MySQL(MySQLConnection("shop", url=mysql_url))


@pytest.fixture
def session(database: MySQL) -> Iterator[MySQLSession]:
    session = database.session()
    yield session
    session.close()


def definition(
    name: str, *columns: StageColumn, schema: str = "", unique: tuple[tuple[str, ...], ...] = ()
) -> TableDefinition:
    key = tuple(column.name for column in columns if column.in_key)
    return TableDefinition(
        TableName(schema, name), tuple(ColumnDefinition(c, not c.in_key) for c in columns), key, unique
    )


def test_every_declared_type_is_reflected_as_it_was_declared(database: MySQL, session: MySQLSession) -> None:
    keys = (StageColumn("k1", t.Text(), in_key=True), StageColumn("k2", t.Bytes(), in_key=True))
    table = definition("every", *keys, *(StageColumn(f"c{i}", kind) for i, kind in enumerate(TYPES)))
    session.execute(create_table_sql(table, database))
    existing = database.find_table(session, table.place)
    assert existing is not None
    assert existing.problem == ""
    assert existing.primary_key == ("k1", "k2")
    assert differences(table, existing, database) == ()


def test_names_of_any_kind_work(database: MySQL, session: MySQLSession) -> None:
    columns = [StageColumn(name, t.Integer(), in_key=index == 0) for index, name in enumerate(HOSTILE)]
    for index, name in enumerate(HOSTILE):
        schema = f"{database.info()['dbname']}{name}"[:64] if index < 3 else ""
        database.create_schema(session, schema)
        database.create_schema(session, schema)
        table = definition(name, *columns, schema=schema, unique=((HOSTILE[1], HOSTILE[2]),))
        session.execute(create_table_sql(table, database))
        existing = database.find_table(session, table.place)
        assert existing is not None
        assert existing.primary_key == HOSTILE[:1]
        assert existing.unique == (HOSTILE[1:3],)
        assert existing.columns[1] == ColumnSchema(HOSTILE[1], "INT", nullable=True)
        session.execute(f"DROP TABLE {native_name(table.place, 'mysql')}")
        assert database.find_table(session, table.place) is None
        if schema:
            session.execute(f"DROP DATABASE {native_name(TableName('', schema), 'mysql')}")


def test_names_that_differ_in_case_are_two_tables(database: MySQL, session: MySQLSession) -> None:
    session.execute("CREATE TABLE Twin (a INT)")
    assert database.find_table(session, TableName("", "twin")) is None
    session.execute("CREATE TABLE twin (b INT UNIQUE)")
    existing = database.find_table(session, TableName("", "twin"))
    assert existing is not None
    assert [column.name for column in existing.columns] == ["b"]
    assert existing.unique == (("b",),)


def test_tables_that_cannot_be_rolled_back_have_a_problem(database: MySQL, session: MySQLSession) -> None:
    session.execute("CREATE TABLE old (a INT) ENGINE=MyISAM")
    session.execute("CREATE VIEW seen AS SELECT * FROM old")
    problems = [database.find_table(session, TableName("", name)) for name in ("old", "seen")]
    assert [existing.problem if existing else "" for existing in problems] == [
        "its storage engine MyISAM has no transactions; ALTER TABLE ... ENGINE=InnoDB",
        "it is a view",
    ]


def test_what_is_not_ours_keeps_its_own_name(database: MySQL, session: MySQLSession) -> None:
    session.execute(
        "CREATE TABLE o (a INT UNSIGNED, b MEDIUMINT, c ENUM('x','Y'), d TIME(3), e VARCHAR(9), UNIQUE (e(3)))"
    )
    existing = database.find_table(session, TableName("", "o"))
    assert existing is not None
    assert [c.type for c in existing.columns] == ["INT UNSIGNED", "MEDIUMINT", "enum('x','Y')", "TIME(3)", "VARCHAR(9)"]
    assert existing.unique == ()


@pytest.mark.parametrize(
    ("existing_type", "kind", "widens"),
    [
        ("SMALLINT", t.BigInt(), True), ("BIGINT", t.Integer(), False), ("FLOAT", t.Double(), True),
        ("DECIMAL(10,2)", t.Numeric(12, 4), True), ("DECIMAL(10,2)", t.Numeric(11, 4), False),
        ("VARCHAR(10)", t.String(20), True), ("VARCHAR(20)", t.String(10), False), ("VARCHAR(20)", t.Text(), True),
        ("TEXT", t.Text(), True), ("LONGTEXT", t.String(10), False), ("DATETIME", t.Timestamp(), True),
        ("BLOB", t.Bytes(), True), ("BIGINT", t.Double(), False),
    ],
)  # fmt: skip
def test_widening_never_loses_a_value(
    database: MySQL, session: MySQLSession, existing_type: str, kind: ColumnType, widens: bool
) -> None:
    wide = database.ddl_type(kind)
    assert database.widening(existing_type, wide) is widens
    if widens:
        session.execute(f"CREATE TABLE w (`a b` {existing_type} NOT NULL)")
        session.execute(database.alter_type_sql("w", "`a b`", wide, nullable=False))
        after = database.find_table(session, TableName("", "w"))
        assert after is not None
        assert after.columns == (ColumnSchema("a b", wide, nullable=False),)


def test_types_beyond_the_limits_of_mysql(database: MySQL, session: MySQLSession) -> None:
    with pytest.raises(PlanError, match="more digits"):
        database.ddl_type(t.Numeric(60, 31))
    table = definition("long", StageColumn("a", t.String(100_000)))
    session.execute(create_table_sql(table, database))
    session.execute("INSERT INTO `long` VALUES (REPEAT('é', 100000))")
    with pytest.raises(pymysql.Error):
        session.execute("INSERT INTO `long` VALUES (REPEAT('é', 100001))")
    assert session.query("SELECT MAX(CHAR_LENGTH(a)) FROM `long`") == [(100_000,)]
