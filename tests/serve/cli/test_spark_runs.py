from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.serve.cli.test_start_up import loaded_by

if TYPE_CHECKING:
    from collections.abc import Callable

    Flow = Callable[..., Any]

FILES = """
from flows import Copies
from ematix_flow import ematix

@ematix.connection
class raw:
    kind = "files"
    path = "raw"
    format = "csv"

@ematix.pipeline(target=Copies, source_connection="raw", target_connection="lite", mode="append", on_bad_row="reject")
def from_files(conn):
    return "copies.csv"


@ematix.pipeline(target=Copies, source_connection="raw", target_connection="lite", mode="append")
def by_query(conn):
    return "SELECT CAST(id AS BIGINT) AS id, upper(name) AS name FROM source WHERE id <> 'x'"
"""


@pytest.fixture
def files(project: Path) -> None:
    (project / "files.py").write_text(FILES, encoding="utf-8")
    Path("raw").mkdir()
    Path("raw/copies.csv").write_text("id,name\n1,a\n2,b\nx,c\n", encoding="utf-8")


@pytest.mark.spark
def test_a_run_through_spark_ends_with_its_java_and_keeps_stdout_clean(flow_process: Flow, files: None) -> None:
    outcome = flow_process("run", "from_files", "-m", "files", EMATIX_FLOW_ENGINE="spark")
    result = json.loads(outcome.out)
    assert (outcome.code, result["path"], result["rows_inserted"], result["rows_rejected"]) == (0, "cross_db", 2, 1)
    assert "main.copies: 2 rows staged, 1 rejected; committing." in outcome.err

    listed = json.loads(flow_process("rejects", "list", "from_files", "-m", "files", "--format", "json").out)
    assert [(reject["column_name"], reject["row"]["name"]) for reject in listed] == [("id", "c")]
    shown = flow_process("rejects", "show", "from_files", listed[0]["reject_id"][:8], "-m", "files")
    assert "row.name         c" in shown.out
    assert flow_process("rejects", "show", "from_files", "zzz", "-m", "files").code == 2


@pytest.mark.deep
@pytest.mark.spark
def test_a_long_preview_asks_spark_and_a_short_one_does_not_load_it(flow_process: Flow, files: None) -> None:
    assert "pyspark" not in loaded_by("preview", "by_query", "-m", "files")
    result = flow_process("preview", "by_query", "-m", "files", "-v")
    assert result.code == 0, result.err
    shown = result.out.partition("would run what it evaluates like this")[2]
    assert "== Physical Plan ==" in shown
    assert "MapInArrow" in shown
    assert "is assumed to give the declared columns" not in result.out
    # Without Java the rest of the plan is still told.
    without = flow_process(
        "preview", "by_query", "-m", "files", "-v", "--format", "json", JAVA_HOME="/nowhere", PATH=""
    )
    assert without.code == 0, without.err
    assert "Spark could not explain the query" in json.loads(without.out)["notes"][-1]
