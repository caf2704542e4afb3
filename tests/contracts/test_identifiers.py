"""Names that nobody would choose, end to end in every mode: reserved words, blanks, quotes, case and 63 bytes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, String, Text, TimestampTZ
from tests.contracts.flows import START, in_and_out
from tests.contracts.systems import Lake

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.flows import Flow, Row
    from tests.contracts.systems import System

    Flows = Callable[..., Flow]

pytestmark = pytest.mark.slow

KEY, TIME, LONG = "Order By", "when", "ü" * 31
VALUES = ("select", "Mixed", 'dou"ble', "back`tick", "a'b", "semi; --", "dot.ted", "per%cent", "que?stion", "100", LONG)
NAMES = ("group", "Two Words", "it's", 'quo"ted', "semi;colon", "x" * 63)


def table_called(name: str) -> Table:
    columns = (
        Column(String(20), primary_key=True, name=KEY),
        Column(BigInt(), primary_key=True, name="from"),
        *(Column(Text(), name=value) for value in VALUES),
        Column(TimestampTZ(), name=TIME),
    )
    return Table("analytics", name, columns)


def row(key: str, value: str | None, hours: int = 0) -> Row:
    return {KEY: key, "from": 1, **dict.fromkeys(VALUES, value), TIME: START + timedelta(hours=hours)}


MODES: dict[str, dict[str, Any]] = {
    "append": {"mode": "append"},
    "truncate": {"mode": "truncate"},
    "merge": {"mode": "merge", "handle_deletes": "hard", "compare_columns": VALUES},
    "scd2": {"mode": "scd2", "handle_deletes": "soft", "ttl": timedelta(days=3)},
    "events": {"mode": "scd2", "event_timestamp_column": TIME, "compare_columns": VALUES},
    "incremental": {"mode": "merge", "incremental_column": TIME, "lookback": timedelta(hours=1)},
}


EXPECTED = {
    "append": [("a", "x"), ("b", None), ("c", "y")],
    "scd2": [("a", "x"), ("a", "y"), ("b", None)],
    "events": [("a", "x"), ("a", "y"), ("b", None)],
}


@in_and_out
def test_hostile_columns_work_in_every_mode(flows: Flows) -> None:
    for mode, options in MODES.items():
        flow = flows(table_called(f"Two Words {mode}"), f"a pipeline: '{mode}'", **options)
        flow.run([row("a", "x", 1), row("b", None, 1)])
        flow.run([row("c", "y", 5)] if mode == "append" else [row("a", "y", 5), row("b", None, 1)])
        versions = [(version[KEY], version[LONG]) for version in flow.rows()]
        assert sorted(versions, key=str) == EXPECTED.get(mode, [("a", "y"), ("b", None)]), mode
        assert f"a pipeline: '{mode}'" in {run["pipeline_name"] for run in flow.points("run_history")}


@in_and_out
def test_hostile_table_names_work(flows: Flows, system: System) -> None:
    # Every name is three loads; on Spark the two with quotes have to do.
    for name in NAMES[2:4] if isinstance(system, Lake) else NAMES:
        flow = flows(table_called(name), f"loads {name}"[:40], **MODES["events"])
        flow.run([row("a", "x", 1), row("a", "y", 2)])
        assert [version[LONG] for version in flow.rows()] == ["x", "y"]
        merged = flows(table_called(f"m{name}"[:63]), f"merges {name}"[:40], **MODES["merge"])
        merged.run([row("a", "x"), row("b", "x")])
        merged.run([row("a", "y")])
        assert [version[LONG] for version in merged.rows()] == ["y"]


@in_and_out
def test_a_hostile_name_passes_through_spark_too(flows: Flows) -> None:
    flow = flows(table_called('quo"ted'), **MODES["merge"])
    flow.run([row("a", 'it\'s \\ "x"\n%s ? $1'), row("b", "")])
    assert [one["select"] for one in flow.rows()] == ['it\'s \\ "x"\n%s ? $1', ""]
