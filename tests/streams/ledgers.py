"""Two tables that several clients change as pgbench does, and more wildly, and what the same rows look like in any system."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Self

import psycopg

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import (
    JSONB,
    UUID,
    BigInt,
    Boolean,
    Bytes,
    Date,
    Double,
    Integer,
    Numeric,
    Text,
    Timestamp,
    TimestampTZ,
)

ACCOUNTS = Table(
    "shop",
    "accounts",
    (
        Column(Integer(), primary_key=True, name="branch"),
        Column(BigInt(), primary_key=True, name="id"),
        Column(Numeric(14, 2), nullable=True, name="balance"),
        Column(Double(), nullable=True, name="rate"),
        Column(Boolean(), nullable=True, name="active"),
        Column(Date(), nullable=True, name="born"),
        Column(Timestamp(), nullable=True, name="seen"),
        Column(TimestampTZ(), nullable=True, name="touched"),
        Column(UUID(), nullable=True, name="tag"),
        Column(JSONB(), nullable=True, name="extra"),
        Column(Bytes(), nullable=True, name="photo"),
        Column(Text(), nullable=True, name="story"),
        Column(JSONB(), nullable=True, name="labels"),
        Column(JSONB(), nullable=True, name="places"),
    ),
)
"""Its log has the keys of rows that are gone or moved, and no large value that stays as it is."""

PAPERS = Table(
    "shop",
    "papers",
    (
        Column(BigInt(), primary_key=True, name="id"),
        Column(Text(), nullable=True, name="title"),
        Column(Text(), nullable=True, name="body"),
        Column(JSONB(), nullable=True, name="words"),
    ),
)
"""Its log has whole rows (REPLICA IDENTITY FULL), so that large values stay when a key changes."""

TABLES = (ACCOUNTS, PAPERS)

_DDL = """
CREATE TABLE accounts (branch int, id bigint, balance numeric(14, 2), rate float8, active boolean, born date, seen timestamp,
    touched timestamptz, tag uuid, extra jsonb, photo bytea, story text, labels text[], places int[], PRIMARY KEY (branch, id));
ALTER TABLE accounts ALTER extra SET STORAGE EXTERNAL, ALTER photo SET STORAGE EXTERNAL, ALTER story SET STORAGE EXTERNAL,
    ALTER labels SET STORAGE EXTERNAL, ALTER places SET STORAGE EXTERNAL;
CREATE TABLE papers (id bigint PRIMARY KEY, title text, body text, words text[]);
ALTER TABLE papers ALTER body SET STORAGE EXTERNAL, ALTER words SET STORAGE EXTERNAL;
ALTER TABLE papers REPLICA IDENTITY FULL;
CREATE TABLE marks (id serial PRIMARY KEY);
"""
_CLIENTS = 3
_KEYS = 30
_BRANCHES = 3
_LARGE = 3000
"""Characters that do not fit into a page of a table with others, and so are kept outside of their row."""

_Statement = tuple[str, tuple[object, ...]]


def create_tables(url: str) -> None:
    """Make the tables, with some rows."""
    chance = random.Random(1)  # noqa: S311 - repeatable, not secret
    with psycopg.connect(url) as connection:
        connection.execute(_DDL.encode())
        for _ in range(40):
            connection.execute(*_new_account(chance))
            connection.execute(*_new_paper(chance))


def source_rows(url: str, table: Table) -> list[tuple[Any, ...]]:
    """Return the rows of a table of the source, every value in one spelling."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(f"SELECT {', '.join(table.column_names)} FROM {table.name}".encode()).fetchall()
    return plain_rows(table, rows)


def differences(table: Table, stored: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> list[str]:
    """Return what rows of a target have that the rows of the source have not, or have otherwise; shortly, for values are large."""
    count = len(table.primary_key)
    left, right = ({row[:count]: row for row in rows} for rows in (plain_rows(table, stored), expected))
    assert len(left) == len(stored), "a key is there twice"
    missing = [f"{key} is missing" for key in right.keys() - left.keys()]
    surplus = [f"{key} is not in the source" for key in left.keys() - right.keys()]
    return missing + surplus + [
        f"{key} {name}: {str(one)[:60]} instead of {str(other)[:60]}"
        for key in left.keys() & right.keys()
        for name, one, other in zip(table.column_names, left[key], right[key], strict=True)
        if one != other
    ]  # fmt: skip


def plain_rows(table: Table, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with every value in one spelling."""
    kinds = [column.type.kind for column in table.columns]
    return [tuple(_plain(kind, value) for kind, value in zip(kinds, row, strict=True)) for row in rows]


def _plain(kind: str, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case "numeric":
            plain: Any = f"{Decimal(str(value)):.2f}"
        case "double":
            plain = float(value)
        case "boolean":
            plain = bool(value)
        case "date":
            plain = str(value)[:10]
        case "timestamp" | "timestamp_tz":
            at = datetime.fromisoformat(str(value))
            plain = (at if at.tzinfo is None else at.astimezone(UTC)).replace(tzinfo=None).isoformat()
        case "jsonb":
            plain = json.loads(value) if isinstance(value, str) else value
        case "bytes":
            plain = bytes(value).hex()
        case _:
            plain = str(value)
    return plain


class Clients:
    """Clients that change the rows at the same time until they are stopped; some of their transactions are rolled back."""

    def __init__(self, url: str, seed: int = 0) -> None:
        self._url = url
        self._threads = [threading.Thread(target=self._work, args=(seed + number,)) for number in range(_CLIENTS)]
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self.transactions = 0

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if self._failures:
            raise self._failures[0]

    def work(self, transactions: int) -> None:
        """Come back after about so many more transactions."""
        end = self.transactions + transactions
        while self.transactions < end and not self._failures:
            time.sleep(0.02)

    def _work(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        try:
            with psycopg.connect(self._url, options="-c deadlock_timeout=20ms") as connection:
                while not self._stop.wait(0.02):
                    try:
                        _transaction(connection, chance)
                    except (psycopg.errors.DeadlockDetected, psycopg.errors.UniqueViolation):
                        connection.rollback()
                    self.transactions += 1
        except BaseException as error:  # noqa: BLE001 - told to the test, which waits for the thread
            self._failures.append(error)


def _transaction(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    if chance.random() < 0.01:
        connection.execute(f"TRUNCATE {chance.choice(('accounts', 'papers'))}".encode())
    for _ in range(chance.choice((1, 1, 2, 5))):
        for statement in _change(chance):
            connection.execute(*statement)
    if chance.random() < 0.1:
        connection.execute("SAVEPOINT here")
        connection.execute("UPDATE accounts SET balance = -1 WHERE id = %s", (chance.randrange(_KEYS),))
        connection.execute("ROLLBACK TO here")
    if chance.random() < 0.1:
        connection.rollback()
    else:
        connection.commit()


def _change(chance: random.Random) -> list[_Statement]:
    """Return the statements of one change: of money mostly, as in a bank."""
    key = (chance.randrange(_BRANCHES), chance.randrange(_KEYS))
    match chance.choice(("money", "money", "money", "large", "insert", "delete", "again", "move", "paper", "paper")):
        case "money":
            sql = "UPDATE accounts SET balance = balance + %s, touched = clock_timestamp()"
            changes = [_of(key, sql, chance.randrange(-5000, 5000) / 100)]
        case "large":
            sql = "UPDATE accounts SET story = %s, photo = %s, labels = %s"
            changes = [_of(key, sql, _text(chance), _text(chance).encode(), _texts(chance))]
        case "insert":
            changes = [_new_account(chance, key)]
        case "delete":
            changes = [_of(key, "DELETE FROM accounts")]
        case "again":
            changes = [_of(key, "DELETE FROM accounts"), _new_account(chance, key)]
        case "move":
            # What is large is written with it: the log has neither that nor the row which had it.
            sql = "UPDATE accounts SET id = %s, story = 'moved', photo = NULL, extra = '{}', labels = '{x}', places = NULL"
            changes = [_of(key, sql, key[1] + 1000 * chance.randrange(1, 9))]
        case _:
            changes = [_paper(chance)]
    return changes


def _of(key: tuple[int, int], sql: str, *values: object) -> _Statement:
    """Return a statement about one account."""
    return f"{sql} WHERE branch = %s AND id = %s", (*values, *key)


def _paper(chance: random.Random) -> _Statement:
    """Return a change of a paper."""
    key = chance.randrange(_KEYS)
    return chance.choice((
        _new_paper(chance),
        ("UPDATE papers SET title = %s WHERE id = %s", (_text(chance, 5), key)),
        ("UPDATE papers SET id = %s, title = 'moved' WHERE id = %s", (chance.randrange(_KEYS), key)),
        ("DELETE FROM papers WHERE id = %s", (key,)),
    ))  # fmt: skip


def _new_account(chance: random.Random, key: tuple[int, int] | None = None) -> _Statement:
    branch, number = key or (chance.randrange(_BRANCHES), chance.randrange(_KEYS))
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(10**15))
    row = (
        branch, number, Decimal(chance.randrange(-(10**13), 10**13)) / 100, chance.choice((0.1, -1e-9, 1.5e300, None)),
        chance.choice((True, False, None)), date(1900, 1, 1) + timedelta(days=chance.randrange(60000)), at.replace(tzinfo=None), at,
        str(uuid.UUID(int=chance.getrandbits(128))), json.dumps({"n": chance.randrange(9), "t": _text(chance)}),
        _text(chance).encode(), _text(chance), _texts(chance), chance.choice((None, [1, 2], list(range(1500)))),
    )  # fmt: skip
    return f"INSERT INTO accounts VALUES ({', '.join(['%s'] * len(row))}) ON CONFLICT DO NOTHING", row


def _new_paper(chance: random.Random) -> _Statement:
    row = (chance.randrange(_KEYS), _text(chance, 5), _text(chance), _texts(chance))
    return "INSERT INTO papers VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING", row


def _texts(chance: random.Random) -> list[str | None] | None:
    return chance.choice((None, [], ["a", "b,c", 'd"e', None], [_text(chance, _LARGE)]))


def _text(chance: random.Random, most: int = 0) -> str:
    letters = "abc 'é\\🦉\n\""
    return "".join(chance.choices(letters, k=most or chance.choice((0, 5, _LARGE))))
