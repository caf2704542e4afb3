"""Streams into tables that were there before: every type takes its values and refuses others, one row at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text
from ematix_flow.engine.api.sync import sync
from ematix_flow.errors import FlowError, RefusedError
from tests.depth import deep_but
from tests.engine.existing_tables import DUCKDB, MYSQL, POSTGRES, POSTGRES_TYPES, SQLITE, existing_on

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.existing_tables import Case

SYSTEMS = (
    *(("duckdb", case) for case in DUCKDB),
    *(("sqlite", case) for case in SQLITE),
    *(("postgres", case) for case in POSTGRES),
    *(("mysql", case) for case in MYSQL),
)
SHOWN = {
    "duckdb": "CAST(v AS VARCHAR)",
    "sqlite": "typeof(v) || ' ' || v",
    "postgres": "CAST(v AS TEXT)",
    "mysql": "CAST(CASE WHEN '{0}' LIKE 'BIT%' THEN v + 0 ELSE v END AS CHAR)",
}


def named(system: tuple[str, Case]) -> str:
    return f"{system[0]} {system[1][0]}"


PARAMETERS = [
    pytest.param(s, id=named(s), marks=pytest.mark.service if s[0] in ("postgres", "mysql") else ()) for s in SYSTEMS
]
REFUSING = [one for one in PARAMETERS if one.values[0][1][2]]
QUICK = {str(one.id) for one in REFUSING[1::2]}
"""Types whose refused values are named in every run, which tries loads of all the others."""


@pytest.fixture(params=deep_but(PARAMETERS, *({str(one.id) for one in PARAMETERS} - QUICK)))
def system(request: pytest.FixtureRequest) -> tuple[str, Case]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_column_of_any_type_takes_its_values_and_the_others_become_dead_letters(
    system: tuple[str, Case], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kind, (native, good, bad) = system
    existing = existing_on(kind, tmp_path, request)
    existing.run(
        *(POSTGRES_TYPES if kind == "postgres" else ()), f"CREATE TABLE things (id INTEGER, v {native}, w INTEGER)"
    )
    for number, (value, _) in enumerate(good):
        existing.put({"id": number, "v": value})
        if not native:
            # A column without a type keeps what the rows of a batch have in common.
            existing.drain()
    existing.put(
        {"id": 100, "v": None},
        *({"id": 200 + n, "v": value} for n, value in enumerate(bad)),
        {"id": 300, "v": good[0][0]},
    )
    existing.drain(transform_on_error="dlq")
    shown = SHOWN[kind].format(native.replace("'", ""))
    rows = dict(existing.rows(f"SELECT id, {shown} FROM things"))
    assert rows == {**{n: text for n, (_, text) in enumerate(good)}, 100: None, 300: good[0][1]}
    rejected = existing.rows(f"SELECT row_json, column_name, reason FROM {_metadata_prefix(kind)}rejects")
    assert sorted(json.loads(row)["id"] for row, *_ in rejected) == [200 + n for n in range(len(bad))]
    assert {column for _, column, _ in rejected} <= {"v"}


@pytest.mark.slow
@pytest.mark.parametrize("chosen", deep_but(REFUSING, *QUICK))
def test_a_refused_value_is_named_with_its_column_and_its_row(
    chosen: tuple[str, Case], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kind, (native, good, bad) = chosen
    existing = existing_on(kind, tmp_path, request)
    existing.run(*(POSTGRES_TYPES if kind == "postgres" else ()), f"CREATE TABLE things (id INTEGER, v {native})")
    existing.put({"id": 1, "v": good[0][0]}, {"id": 22, "v": bad[0]}, {"id": 3, "v": good[0][0]})
    with pytest.raises(FlowError) as refused:
        existing.drain()
    message = str(refused.value)
    value = bad[0] if isinstance(bad[0], str) else json.dumps(bad[0])
    digits = value[:10] if native.startswith(("TIMESTAMP", "DATETIME(")) else value[:40]
    assert digits in message.replace('\\"', '"')
    assert "\n  v: " in message
    assert '"id":22' in message.replace(" ", "")
    assert existing.rows("SELECT COUNT(*) FROM things") == [(0,)]


def _metadata_prefix(kind: str) -> str:
    return "ematix_flow_" if kind in ("sqlite", "mysql") else "ematix_flow."


@pytest.mark.slow
def test_columns_that_are_not_written_are_no_reason_to_refuse(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    existing = existing_on("duckdb", tmp_path, request)
    existing.run("CREATE TABLE things (id INTEGER, more STRUCT(a INTEGER)[] DEFAULT [])")
    existing.put({"id": 1})
    assert existing.drain() == 1
    assert existing.rows("SELECT * FROM things") == [(1, [])]


@pytest.mark.service
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_declared_text_column_stands_for_a_type_that_has_no_declaration(
    mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    existing = existing_on("postgres", tmp_path, request)
    existing.run(*POSTGRES_TYPES, "CREATE TABLE things (id BIGINT PRIMARY KEY, v mood, w citext, t time, a inet)")
    existing.run("ALTER TABLE things ADD _loaded_at TIMESTAMPTZ NOT NULL, ADD _batch_id UUID NOT NULL")
    names = ("v", "w", "t", "a")
    columns = (Column(BigInt(), primary_key=True, name="id"), *(Column(Text(), name=name) for name in names))
    table = Table("public", "things", columns)
    rows = [{"id": 1, "v": "happy", "w": "Ada", "t": "10:00", "a": "10.0.0.1"}, {"id": 2, **dict.fromkeys(names)}]
    first = sync(target=table, source=rows, target_connection=existing.connection, mode=mode)
    assert first["rows_inserted"] == 2
    stored_rows = existing.rows("SELECT v::text, w::text, t::text, a::text FROM things WHERE id = 1")
    assert stored_rows == [("happy", "Ada", "10:00:00", "10.0.0.1/32")]
    if mode == "merge":
        rows[1]["v"] = "so so"
        again = sync(target=table, source=rows, target_connection=existing.connection, mode=mode)
        assert (again["rows_updated"], again["rows_unchanged"]) == (1, 1)
    bad = [{"id": 3, "v": "angry", **dict.fromkeys(names[1:])}]
    with pytest.raises(RefusedError, match=r'v: refused; row \{"id": 3, "v": "angry"'):
        sync(target=table, source=bad, target_connection=existing.connection, mode=mode)


@pytest.mark.service
def test_a_key_of_an_own_type_finds_its_row(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    existing = existing_on("mysql", tmp_path, request)
    existing.run("CREATE TABLE things (id INT UNSIGNED PRIMARY KEY, v ENUM('low','high'), w TEXT)")
    existing.put({"id": 4294967295, "v": "low", "w": "a"})
    existing.drain(mode="merge", keys=["id"])
    existing.put({"id": 4294967295, "v": "high", "w": "b"}, {"id": 1, "v": "low", "w": "c"})
    existing.drain(mode="merge", keys=["id"])
    assert existing.rows("SELECT id, v, w FROM things ORDER BY id") == [(1, "low", "c"), (4294967295, "high", "b")]
