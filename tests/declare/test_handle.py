# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""What a decorated function is afterwards: callable, inspectable, and able to run with other keys."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest

import ematix_flow
from ematix_flow import BigInt, Text, ematix, pk
from ematix_flow.declare.pipeline.handle import with_keys

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.handle import PipelineHandle


@ematix.table(schema="main")
class Items:
    item_id: Annotated[BigInt, pk()]
    code: Text
    name: Text | None


def _declare(mode: str, **keywords: Any) -> PipelineHandle:
    @ematix.pipeline(target=Items, target_connection="here", mode=mode, **keywords)
    def load_items(conn: Any) -> str:
        """Load the items."""
        return "SELECT 1 AS item_id, 'a' AS code, 'A' AS name"

    return load_items


def test_the_handle_looks_like_the_function() -> None:
    handle = _declare("merge")
    assert (handle.__name__, handle.__doc__, handle.name) == ("load_items", "Load the items.", "load_items")
    assert handle.__wrapped__(None).startswith("SELECT")  # type: ignore[attr-defined]
    assert repr(handle) == "<pipeline 'load_items'>"


@pytest.mark.parametrize("method", ["sync", "preview", "dry_run", "__call__"])
def test_the_handle_can_be_asked_to_work(method: str) -> None:
    assert callable(getattr(_declare("merge"), method))


@pytest.mark.parametrize("mode", ["merge", "scd1", "scd2"])
def test_other_keys_leave_everything_else_as_declared(mode: str) -> None:
    target = _declare(mode, compare_columns=["name"]).pipeline.targets[0]
    changed = with_keys(target, ["code"])
    assert changed.write.keys == ("code",)
    assert changed.write.spelled == mode
    assert changed.write.compare_columns == ("name",)
    assert target.write.keys is None


def test_other_keys_are_checked() -> None:
    with pytest.raises(ValueError, match="at least one column name"):
        _declare("merge").sync(keys=[])


def test_keys_for_a_mode_without_keys_are_ignored_and_said_so() -> None:
    target = _declare("append").pipeline.targets[0]
    with pytest.warns(UserWarning, match="main.items is loaded with mode 'append', which has no keys"):
        assert with_keys(target, ("item_id",)) is target


@pytest.mark.slow
def test_declaring_loads_nothing_heavy() -> None:
    program = (
        "import sys; import ematix_flow; from ematix_flow import ematix, ManagedTable, connections\n"
        "heavy = {'pyspark', 'pyarrow', 'duckdb', 'sqlglot', 'pandas', 'psycopg', 'pymysql', 'ematix_flow.engine'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(ematix_flow.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
