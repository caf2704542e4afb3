"""Rows of a snapshot become messages column by column: the same as one by one, whatever stands in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow import CDC
from ematix_flow.connect.base.stream_source import FIELDS, VALUE
from ematix_flow.connect.change_log.messages import (
    READ,
    Rows,
    envelope_template,
    object_template,
    row_table,
    source_text,
)
from ematix_flow.connect.changes.decoder import ChangeDecoder, ChangeTable
from ematix_flow.connect.postgres.cdc import snapshot
from ematix_flow.connect.postgres.cdc.source import PostgresChanges
from ematix_flow.connect.postgres.cdc.values import Types
from ematix_flow.declare.connection.registry import PostgresCDCConnection

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.slow

BOOLEAN, INTEGER, NUMERIC, TEXT, NAIVE, INSTANT, BYTES, INTEGERS, DOMAIN = (
    16,
    23,
    1700,
    25,
    1114,
    1184,
    17,
    1007,
    70_000,
)
DOMAINS = {DOMAIN: (NUMERIC, 0)}

HOSTILE = (
    "",
    "a",
    "null",
    '"',
    "\\",
    'say "x"',
    "a\\nb",
    "line\nbreak",
    "tab\t",
    "\x01",
    "é中😀",
    "a,b",
    "\\.",
    "\\N",
    "\r",
)
texts = st.sampled_from(HOSTILE) | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
VALUES: dict[int, st.SearchStrategy[str]] = {
    BOOLEAN: st.sampled_from(("t", "f")),
    INTEGER: st.integers(-(2**31), 2**31 - 1).map(str),
    NUMERIC: st.sampled_from(
        ("0", "-0.50", "1e+20", "123456789012345678901234567890.5", "NaN", "Infinity", "-Infinity")
    ),
    DOMAIN: st.sampled_from(("1", "2.5", "NaN")),
    TEXT: texts,
    NAIVE: st.sampled_from(("2026-01-02 03:04:05", "2026-01-02 03:04:05.000001", "infinity", "0044-03-15 00:00:00 BC")),
    INSTANT: st.sampled_from(("2026-01-02 03:04:05+00", "12026-01-02 03:04:05.5+00", "-infinity")),
    BYTES: st.sampled_from(("\\x", "\\x00ff")),
    INTEGERS: st.sampled_from(("{}", "{1,NULL}")),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[int, list[str | None]]:
    """Return a type, and values of it."""
    oid = draw(st.sampled_from(sorted(VALUES)))
    return oid, draw(st.lists(st.none() | VALUES[oid], max_size=6))


@given(columns())
def test_many_values_are_written_as_each_of_them(column: tuple[int, list[str | None]]) -> None:
    oid, values = column
    types = Types(DOMAINS)
    array = pa.array(values, pa.string())
    each = [None if value is None else types.converter(oid)(value) for value in values]
    expected = ["null" if one is None else one for one in each]
    fragments = types.fragments(oid, array)
    assert types.converted(oid, array).to_pylist() == expected
    assert fragments is None or fragments.to_pylist() == expected
    if oid in (BYTES, INTEGERS):
        assert fragments is None


@given(st.lists(st.tuples(st.integers(0, 99).map(str), texts | st.none(), st.sampled_from(("1.5", "2"))), min_size=1))
def test_fields_that_are_known_make_the_rows_that_their_messages_make(rows: list[tuple[str | None, ...]]) -> None:
    names = ("id", "name", "amount")
    table = ChangeTable("shop.things", (("id", "big_int"), ("name", "text"), ("amount", "numeric")), ("id",), ("id",))
    messages = message_table(names, (INTEGER, TEXT, NUMERIC), rows)
    decoder = ChangeDecoder(CDC(), table)
    one_by_one = decoder.decode_messages(messages.select([name for name in messages.column_names if name != FIELDS]))
    decoded = decoder.decode_messages(messages)
    assert [column.to_pylist() for column in decoded.columns] == [column.to_pylist() for column in one_by_one.columns]
    assert decoded.wrong == one_by_one.wrong
    assert decoded.messages == one_by_one.messages
    assert [json.loads(one)["after"]["name"] for one in messages.column(VALUE).to_pylist()] == [row[1] for row in rows]


def message_table(names: Sequence[str], oids: Sequence[int], rows: Sequence[tuple[str | None, ...]]) -> pa.Table:
    """Return the messages of rows, with their fields where these are plain."""
    types, source = Types(), source_text({"lsn": 7, "sequence": '["9","7"]', "ts_ms": 1_767_225_600_000})
    read = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    plain = [types.fragments(oid, column) for oid, column in zip(oids, read, strict=True)]
    converted = [types.converted(oid, column) for oid, column in zip(oids, read, strict=True)]
    fields = pa.StructArray.from_arrays(plain, list(names)) if all(one is not None for one in plain) else None
    payloads = envelope_template(READ, names, source, 1_767_225_600_000).filled(converted)
    keys = object_template(["id"]).filled(converted[:1])
    return row_table(Rows(payloads, keys, pa.nulls(len(rows), pa.string()), fields, "t", 1_767_225_600_000), ())


@pytest.mark.service
def test_rows_are_read_as_they_are_over_the_borders_of_blocks(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "TOGETHER", 4)
    rows: list[tuple[Any, ...]] = [(number, text, None if number % 3 else text) for number, text in enumerate(HOSTILE)]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute('CREATE TABLE "odd, ""t" (id int PRIMARY KEY, "a""b,\n" text NOT NULL, c text)')
        connection.execute("CREATE TABLE alone (only_text text PRIMARY KEY)")
        with connection.cursor() as cursor:
            cursor.executemany('INSERT INTO "odd, ""t" VALUES (%s, %s, %s)', rows)
            cursor.executemany("INSERT INTO alone VALUES (%s)", [(text,) for text in HOSTILE])
    assert sorted(read_after(postgres_url, 'public."odd, ""t"')) == sorted(rows, key=lambda row: row[0])
    assert sorted(read_after(postgres_url, "public.alone")) == sorted((text,) for text in HOSTILE)


def read_after(url: str, table: str) -> list[tuple[Any, ...]]:
    """Return the rows that a stream begins with."""
    source = PostgresChanges(PostgresCDCConnection("pg", url=url), table)
    try:
        source.begin()
        begin = source.start("earliest")
        end = source.ahead(begin, 10)
        (partition,) = source.plan_partitions(begin, end, ("_key",))
        read = [one for block in partition.read() for one in block.column(VALUE).to_pylist()]
        return [tuple(json.loads(payload)["after"].values()) for payload in read]
    finally:
        source.close()
