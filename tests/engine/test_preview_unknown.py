# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""The preview of a function that only a run can evaluate: it says what it does not know instead of guessing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import BigInt, Text, ematix, pk

if TYPE_CHECKING:
    from tests.engine.conftest import Warehouse


@ematix.table(schema="mart")
class Orders:
    id: Annotated[BigInt, pk()]
    name: Text


@pytest.mark.slow
def test_a_function_that_uses_its_connection_is_a_note(duck: Warehouse) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append")
    def load(conn: Any) -> str:
        return f"SELECT {conn.fetch_scalar_int('SELECT 1')} AS id, 'a' AS name"

    result = load.preview()
    assert "not known before the function runs" in result.notes[0]
    assert result.targets[0].plan.read.kind == "frame"
    assert (result.targets[0].path, result.to_dict()["targets"][0]["stage"]["by"]) == (None, None)
    shown = result.text(verbose=True)
    for label in ("path", "shape", "stage"):
        assert f"  {label:<9} not known before the function runs\n" in shown
    assert "Spark" not in shown
    assert load()["path"] == "same_db"


@pytest.mark.slow
def test_a_path_is_forced_when_the_source_is_known(duck: Warehouse) -> None:
    @ematix.pipeline(target=Orders, target_connection="warehouse", mode="append", force_path="same_db")
    def load(conn: Any) -> str:
        return f"SELECT {conn.fetch_scalar_int('SELECT 1')} AS id, 'a' AS name"

    assert load.preview().targets[0].path is None
    assert load.validate().ok
    assert load()["path"] == "same_db"
