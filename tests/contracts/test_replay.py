"""Rejects that are replayed: a row comes into its table exactly as it would have come there without being rejected."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.pipeline.normalize import Default, Replace, Truncate
from ematix_flow.declare.pipeline.transforms import FilterWhere
from ematix_flow.declare.quality.expectations import quality_of
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Bytes, Double, Float, Numeric, String, Text, TimestampTZ
from ematix_flow.engine.rejects import list_rejects, replay_rejects
from tests.contracts.flows import START
from tests.contracts.systems import only
from tests.contracts.values import ROWS, TYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow


def table_of(name: str, *columns: Column) -> Table:
    return Table("analytics", name, (Column(BigInt(), primary_key=True, name="nr"), *columns))


def replayed(flow: Flow) -> tuple[int, int]:
    done = replay_rejects(flow.pipeline, options=flow.options())
    return done["replayed"], done["rejected"]


def pairs(flow: Flow) -> list[tuple[Row, Row]]:
    """Return each row that was loaded with its twin that was rejected, both without their keys."""
    rows = {row.pop("nr"): row for row in flow.rows()}
    return [(rows[key], rows[-key]) for key in rows if key > 0]


SHORT = Column(String(3), name="code")
MENDED = replace(SHORT, normalizers=(Truncate(3),))


def mended(flow: Flow) -> Flow:
    """Declare the table anew, so that a code that was too long fits."""
    flow.table = replace(flow.table, columns=(*flow.table.columns[:-1], MENDED))
    return flow


def test_every_value_of_every_type_is_replayed_as_it_would_have_been_loaded(flows: Flows) -> None:
    columns = [Column(kind, name=name) for name, kind in TYPES.items()]
    source = (Column(BigInt(), name="nr"), *columns, Column(Text(), name="code"))
    flow = flows(table_of("typed", *columns, SHORT), source=source, mode="append", on_bad_row="reject")
    good = [row | {"nr": number, "code": "abc"} for number, row in enumerate(ROWS, start=1)]
    result = flow.run([*good, *({**row, "nr": -row["nr"], "code": "abcd"} for row in good)])
    assert (result["rows_inserted"], result["rows_rejected"]) == (len(ROWS), len(ROWS))
    assert replayed(mended(flow)) == (len(ROWS), 0)
    for loaded, again in pairs(flow):
        assert again == loaded


OF_ITS_OWN: dict[str, dict[str, tuple[str, Any]]] = {
    "postgres": {
        "listed": ("ARRAY[1, 2]", Text()),
        "document": ("""'{"a": 1.50, "b": [0.10, 1e2]}'::jsonb""", Text()),
        "spaced": ("""'{"a":  1.50,\n"a": 2.0}'::json""", Text()),
        "padded": ("'ab'::char(5)", Text()),
        "_row": ("'a name that could mean the row'", Text()),
        "during": ("INTERVAL '1 month 2 days'", Text()),
        "small": ("0.1::real", Float()),
        "raw": (r"'\x00ff41'::bytea", Bytes()),
        "plain": (r"'\x00ff41'", Bytes()),
        "digits": ("12345678901234567890.12345", Numeric(38, 5)),
    },
    "duckdb": {
        "listed": ("[1, 2]", Text()),
        "nested": ("{'a': 1.50, 'b': [0.1]}", Text()),
        "document": ("""'{"a": 1.50, "b": [0.10, 1e2]}'::JSON""", Text()),
        "raw": (r"'\x00\xFFA'::BLOB", Bytes()),
        "plain": ("'00FF41'", Bytes()),
        "huge": ("170141183460469231731687303715884105727::HUGEINT", Text()),
        "digits": ("12345678901234567890.12345::DECIMAL(38, 5)", Numeric(38, 5)),
    },
    "mysql": {
        "document": ("""CAST('{"a": 1.50, "b": [0.10]}' AS CHAR)""", Text()),
        "small": ("CAST(0.1 AS FLOAT)", Double()),
        "bigger": ("CAST(16777213 AS FLOAT)", Double()),
        "raw": ("x'00FF41'", Bytes()),
        "plain": ("'00FF41'", Bytes()),
        "digits": ("CAST('12345678901234567890.12345' AS DECIMAL(38, 5))", Numeric(38, 5)),
    },
    "sqlite": {
        "added": ("0.1 + 0.2", Double()),
        "raw": ("x'00ff41'", Bytes()),
        "plain": ("'00FF41'", Bytes()),
        "document": ("""'{"a": 1.50, "b": [0.10]}'""", Text()),
        "digits": ("'12345678901234567890.12345'", Numeric(38, 5)),
    },
}
"""Values that only one system has, or has in its own way, and the columns they are loaded into."""


@only("postgres", "duckdb", "mysql", "sqlite")
def test_values_that_a_system_has_in_its_own_way_are_replayed_as_they_would_have_been_loaded(
    flows: Flows, system: Any
) -> None:
    values = OF_ITS_OWN[system.kind]
    table = table_of("own", *(Column(kind, name=name) for name, (_, kind) in values.items()), SHORT)
    listed = ", ".join(f"{value} AS {name}" for name, (value, _) in values.items())
    flow = flows(table, mode="append", on_bad_row="reject")
    flow.query = f"SELECT 1 AS nr, {listed}, 'abc' AS code UNION ALL SELECT -1, {listed}, 'abcd'"
    assert flow.run()["rows_rejected"] == 1
    assert replayed(mended(flow)) == (1, 0)
    [(loaded, again)] = pairs(flow)
    assert again == loaded


@only("duckdb")
def test_bytes_and_documents_of_the_source_are_shown_and_kept_apart_from_texts(flows: Flows) -> None:
    table = table_of("shown", Column(Bytes(), name="raw"), Column(Text(), name="doc"), SHORT)
    flow = flows(table, mode="append", on_bad_row="reject")
    flow.query = """SELECT -1 AS nr, '\\x00\\xFF'::BLOB AS raw, '{"a": 1.50}'::JSON AS doc, 'abcd' AS code"""
    flow.run()
    [reject] = list_rejects(flow.pipeline)
    assert json.loads(reject.row_json) == {
        "nr": -1,
        "raw": {"_flow_bytes": "00FF"},
        "doc": '{"a": 1.50}',
        "code": "abcd",
    }


NAME = Column(Text(), nullable=False, name="name", normalizers=(Replace("a", "aa"),))
SHAPED = table_of(
    "shaped", NAME, Column(Numeric(8, 2), name="amount"), Column(Bytes(), name="raw"), Column(Double(), name="share")
)
OF_PEOPLE = (
    Column(BigInt(), name="nr"),
    Column(Text(), name="label"),
    Column(Numeric(8, 2), name="amount"),
    Column(Bytes(), name="raw"),
    Column(Double(), name="share"),
)  # fmt: skip


def shaping(flow: Flow, limit: int | None = None) -> Flow:
    """Return the flow with a column map, a transform and a normaliser that changes a value each time it is applied."""
    target = replace(flow.target, column_map={"name": "label"})
    if limit is not None:
        options = {"expectations": lambda t: t.column("amount").between(0, limit), "on_quality_failure": "reject"}
        target = replace(target, quality=quality_of(options, flow.table, flow.target.write))
    flow.declared = {"targets": (target,), "transforms_pre": (FilterWhere("COALESCE(name, '') <> 'aa'"),)}
    return flow


def person(number: int, **values: Any) -> Row:
    return {"nr": number, "label": "banana", "amount": Decimal("1.50"), "raw": b"\x00\xffA", "share": 0.1} | values


WHOLE = {"name": "baanaanaa", "amount": Decimal("1.50"), "raw": b"\x00\xffA", "share": 0.1}


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_row_that_an_expectation_refused_is_not_shaped_twice(flows: Flows, mode: str) -> None:
    flow = shaping(flows(SHAPED, source=OF_PEOPLE, mode=mode), limit=10)
    assert flow.run([person(1), person(2, amount=Decimal("20.25")), person(3, label="a")])["rows_rejected"] == 1
    # Still not as expected: what is rejected again is known to be shaped as well.
    assert replayed(flow) == (0, 1)
    assert replayed(shaping(flow, limit=100)) == (1, 0)
    assert flow.rows() == [{"nr": 1, **WHOLE}, {"nr": 2, **WHOLE, "amount": Decimal("20.25")}]


def test_a_row_that_a_constraint_refused_is_not_shaped_twice(flows: Flows) -> None:
    flow = shaping(flows(SHAPED, source=OF_PEOPLE, mode="append", on_bad_row="reject"))
    flow.run([person(2, amount=Decimal(5))])
    assert flow.run([person(1), person(2)])["rows_rejected"] == 1
    flow.execute(f"DELETE FROM {flow.target_name} WHERE nr = 2")
    assert replayed(flow) == (1, 0)
    assert flow.rows() == [{"nr": 1, **WHOLE}, {"nr": 2, **WHOLE}]


def test_rejects_of_versions_that_did_not_tell_are_known_by_their_ids(flows: Flows) -> None:
    flow = shaping(flows(SHAPED, source=OF_PEOPLE, mode="append"), limit=10)
    flow.run([person(1, amount=Decimal(20)), person(2, amount=Decimal(30))])
    [one, other] = flow.points("rejects")
    assert [reject["reject_id"].rpartition(":")[2] for reject in (one, other)] == ["q1", "q2"]
    flow.execute(
        f"UPDATE {flow.metadata_name('rejects')} SET reject_id = '{one['run_id']}:c7', row_json = "
        """'{"nr": 1, "name": "baanaanaa", "amount": "20.00", "raw": null, "share": null}' """
        f"WHERE reject_id = '{one['reject_id']}'"
    )
    assert replayed(shaping(flow, limit=100)) == (2, 0)
    assert [row["name"] for row in flow.rows()] == ["baanaanaa", "baanaanaa"]


def test_a_row_without_a_value_that_it_needs_is_kept_as_the_source_has_it(flows: Flows) -> None:
    flow = shaping(flows(SHAPED, source=OF_PEOPLE, mode="append", on_bad_row="reject"))
    assert flow.run([person(1), person(2, label=None), person(None, label="papaya")])["rows_rejected"] == 2  # type: ignore[arg-type]
    rejected_rows = [json.loads(reject.row_json) for reject in list_rejects(flow.pipeline)]
    assert {row.get("label") for row in rejected_rows} == {None, "papaya"}
    assert all("name" not in row for row in rejected_rows)
    named = replace(NAME, normalizers=(Default("banana"), *NAME.normalizers))
    flow.table = replace(SHAPED, columns=(SHAPED.columns[0], named, *SHAPED.columns[2:]))
    assert replayed(shaping(flow)) == (1, 1)
    assert flow.rows() == [{"nr": 1, **WHOLE}, {"nr": 2, **WHOLE}]


@only("postgres", "duckdb", "mysql")
def test_a_short_float_of_a_row_without_a_value_is_the_number_that_it_was(flows: Flows) -> None:
    flow = flows(table_of("floats", NAME, Column(Double(), name="share")), mode="append", on_bad_row="reject")
    kind = "FLOAT" if flow.database.kind == "mysql" else "REAL"
    row = f"CAST(0.1 AS {kind}) AS share"
    flow.query = f"SELECT 1 AS nr, 'banana' AS name, {row} UNION ALL SELECT -1, NULL, {row}"
    assert flow.run()["rows_rejected"] == 1
    named = replace(NAME, normalizers=(Default("banana"), *NAME.normalizers))
    flow.table = replace(flow.table, columns=(flow.table.columns[0], named, *flow.table.columns[2:]))
    assert replayed(flow) == (1, 0)
    [(loaded, again)] = pairs(flow)
    assert again == loaded


def test_rows_of_a_pipeline_that_shapes_nothing_go_through_what_is_declared_later(flows: Flows) -> None:
    plain = table_of("plain", Column(Text(), name="name"), Column(Double(), name="share"))
    flow = flows(plain, mode="append")

    def expecting(table: Table) -> Flow:
        options = {"expectations": lambda t: t.column("name").is_in(["aa"]), "on_quality_failure": "reject"}
        flow.table = table
        flow.declared = {"targets": (replace(flow.target, quality=quality_of(options, table, flow.target.write)),)}
        return flow

    assert expecting(plain).run([{"nr": 1, "name": "a", "share": 0.5}])["rows_rejected"] == 1
    columns = (plain.columns[0], replace(plain.columns[1], normalizers=(Replace("a", "aa"),)), plain.columns[2])
    assert replayed(expecting(replace(plain, columns=columns))) == (1, 0)
    assert flow.rows() == [{"nr": 1, "name": "aa", "share": 0.5}]


@only("duckdb", "sqlite", "postgres")
def test_an_infinite_number_of_a_row_that_was_refused_is_replayed(flows: Flows) -> None:
    flow = shaping(flows(SHAPED, source=OF_PEOPLE, mode="append"), limit=10)
    flow.run([person(1, share=float("inf"), amount=Decimal(20)), person(2, share=float("-inf"), amount=Decimal(20))])
    assert replayed(shaping(flow, limit=100)) == (2, 0)
    assert [row["share"] for row in flow.rows()] == [float("inf"), float("-inf")]


def test_the_time_of_an_event_that_is_no_column_comes_along(flows: Flows) -> None:
    table = table_of("versions", Column(Text(), name="name"), Column(Numeric(8, 2), name="amount"))
    source = (*table.columns, Column(TimestampTZ(), name="happened"))
    flow = flows(table, source=source, mode="scd2", event_timestamp_column="happened")

    def expecting(limit: int) -> Flow:
        options = {"expectations": lambda t: t.column("amount").between(0, limit), "on_quality_failure": "reject"}
        flow.declared = {"targets": (replace(flow.target, quality=quality_of(options, table, flow.target.write)),)}
        return flow

    row = {"nr": 1, "name": "a", "amount": Decimal(20), "happened": START - timedelta(days=3)}
    assert expecting(10).run([row])["rows_rejected"] == 1
    assert replayed(expecting(100)) == (1, 0)
    [version] = flow.versions()
    assert (version["amount"], version["valid_from"]) == (Decimal(20), START - timedelta(days=3))


UNREAD = {
    "postgres": ("'infinity'::timestamptz", "infinity", "'-infinity'::timestamptz", "-infinity"),
    "mysql": ("happened", "0000-00-00 00:00:00.000000", "happened", "0000-00-00 00:00:00.000000"),
}


@only("postgres", "mysql")
def test_a_value_that_could_not_be_read_does_not_become_null(flows: Flows, system: Any) -> None:
    first, text, second, other = UNREAD[system.kind]
    table = table_of("unread", Column(TimestampTZ(), name="began"), Column(TimestampTZ(), name="ended"), SHORT)
    flow = flows(table, mode="append", on_bad_row="reject")
    flow.query = f"SELECT 1 AS nr, {first} AS began, {second} AS ended, 'abc' AS code"
    if system.kind == "mysql":
        flow.execute("CREATE TABLE `zero` (happened DATETIME(6))", "SET sql_mode = ''", "INSERT INTO `zero` VALUES (0)")
        flow.query += " FROM `zero`"
    assert flow.run()["rows_rejected"] == 1
    [reject] = list_rejects(flow.pipeline)
    assert json.loads(reject.row_json) == {"nr": 1, "began": text, "ended": other, "code": "abc"}
    assert replayed(flow) == (0, 1)
    assert flow.rows() == []
