# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""Lake tables have one name in lineage, whether they are read or written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
import pytest

from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.declare.connection.registry import DeltaLocalConnection, IcebergConnection
from ematix_flow.engine import Options, run_pipeline
from ematix_flow.events import RunPlanned
from ematix_flow.observe.bus import Bus

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.events import LoadFacts

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes"), pytest.mark.usefixtures("quick_lakes")]


@ematix.table(schema="sales", name="sold")
class Sold:
    id: Annotated[BigInt, pk()]
    customer: Text


def facts(source: Any, target: Any, query: Any) -> LoadFacts:
    heard: list[Any] = []
    bus = Bus()
    bus.subscribe(heard.append)
    declare = ematix.pipeline(
        target=Sold, source_connection=source, target_connection=target, mode="append", name=f"to_{target.name}"
    )
    run_pipeline(declare(lambda _: query).pipeline, Options(bus=bus))
    (plan,) = (event for event in heard if isinstance(event, RunPlanned))
    return plan.facts()


def test_a_lake_table_has_one_name(tmp_path: Path) -> None:
    delta = DeltaLocalConnection(name="delta", path=str(tmp_path / "my lake"))
    iceberg = IcebergConnection(name="ice", catalog_type="hadoop", warehouse=str(tmp_path / "ice"))
    first = facts(None, delta, pa.table({"id": [1], "customer": ["a"]}))
    assert (first.output.namespace, first.output.name) == ("file", f"{tmp_path}/my lake/sales/sold")
    second = facts(delta, iceberg, "SELECT s.id, upper(s.customer) AS customer FROM sales.sold AS s")
    assert second.inputs == (first.output,)
    assert second.output.name == f"{tmp_path}/ice/sales/sold"
    assert {name: (one.dataset, one.field, one.changed) for name, (one,) in second.origins.items()} == {
        "id": (first.output, "id", False),
        "customer": (first.output, "customer", True),
    }
