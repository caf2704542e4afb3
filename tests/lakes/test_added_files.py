"""Appends to Delta tables without an engine: no Java is started, and Delta itself finds the rows and goes on with the table."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import failpoints
from ematix_flow.connect.delta import commit as delta_commit
from ematix_flow.connect.delta import log as delta_log
from ematix_flow.declare.table.schema import Column
from ematix_flow.declare.table.types import Text
from ematix_flow.engine.batch.options import Options
from ematix_flow.engine.maintenance import maintain_pipeline
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.engine.spark.session import session_for
from ematix_flow.errors import TransientError
from ematix_flow.failpoints import FailpointError
from tests.depth import deep
from tests.lakes.targets import COLUMNS, START, TargetTable, bucket_of, lake_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lakes.targets import Row

pytestmark = [pytest.mark.spark, pytest.mark.service, pytest.mark.xdist_group("lakes")]

MODULE = """
from typing import Annotated
from ematix_flow import BigInt, Text, ematix, pk

@ematix.connection
class lake:
    kind = "delta_local"
    path = "lake"

@ematix.connection
class landing:
    kind = "object_store_local"
    path = "."
    format = "csv"

@ematix.table(schema="shop")
class Things:
    id: Annotated[BigInt, pk()]
    word: Text

@ematix.pipeline(target=Things, source_connection="landing", target_connection="lake", mode="append")
def things(files):
    return "in"
"""


@pytest.fixture(params=["delta_local", deep("delta_s3")])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TargetTable]:
    bucket = bucket_of(request) if request.param == "delta_s3" else None
    yield TargetTable(lake_fields(request.param, tmp_path, bucket), tmp_path, {"mode": "append"})
    failpoints.arm("")


def row(number: int) -> Row:
    return (number, f"word {number}", number / 2, f"{number}.25", START)


def ids(target: TargetTable) -> list[int]:
    return sorted(int(one[0]) for one in target.rows("id"))


def test_an_append_needs_no_java(tmp_path: Path) -> None:
    (tmp_path / "flows.py").write_text(MODULE, "utf-8")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,word\n1,a\n2,b\n", "utf-8")
    source = Path(__file__).parents[2] / "src"
    surroundings = {"PATH": "/nowhere", "HOME": str(tmp_path), "PYTHONPATH": str(source), "TMPDIR": str(tmp_path)}
    surroundings["EMATIX_FLOW_ENGINE"] = "local"
    surroundings |= {name: os.environ[name] for name in ("LANG",) if name in os.environ}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "ematix_flow", "run", "things", "--module", "flows"],
            cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    target = TargetTable({"kind": "delta_local", "path": str(tmp_path / "lake")}, tmp_path, {"mode": "append"})
    assert target.rows("id, word") == [("1", "a"), ("1", "a"), ("2", "b"), ("2", "b")]


def test_delta_reads_the_files_past_a_checkpoint_and_goes_on_with_the_table(target: TargetTable) -> None:
    for number in range(1, 13):
        assert target.load([row(number)])["rows_inserted"] == 1
    assert "ADD FILES" in preview_pipeline(target.pipeline("id, word, share, amount, at")).text()
    database = target.database()
    assert delta_log.version(database.store, "shop/things/") == 12  # type: ignore[attr-defined]
    assert ids(target) == list(range(1, 13))
    merging = replace(target, options={"mode": "merge"})
    merging.load([(1, "changed", None, None, None), row(13)], "merged")
    assert target.load([row(14)], "after")["rows_inserted"] == 1
    assert ids(target) == list(range(1, 15))
    maintain_pipeline(target.pipeline())
    assert ids(target) == list(range(1, 15))
    assert ("1", "changed") in target.rows("id, word")


@pytest.mark.parametrize("point", ["store.files_placed", "store.before_change", "store.after_change"])
def test_an_error_at_any_step_is_made_good_by_the_next_run(target: TargetTable, point: str) -> None:
    target.load([row(1)])
    failpoints.arm(f"{point}=raise")
    with pytest.raises(FailpointError):
        target.load([row(2)], "second")
    failpoints.arm("")
    target.again([row(2)], "second")
    assert ids(target) == [1, 2]


@pytest.mark.deep
def test_a_conflict_is_tried_again_with_the_same_files(target: TargetTable, monkeypatch: pytest.MonkeyPatch) -> None:
    target.load([row(1)])
    really, calls = delta_commit.add_files, []

    def refused_once(*given: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise TransientError("somebody was first")
        really(*given)

    monkeypatch.setattr(delta_commit, "add_files", refused_once)
    assert target.load([row(2)])["rows_inserted"] == 1
    assert len(calls) == 2
    assert ids(target) == [1, 2]
    database = target.database()
    files = [entry.key for entry in database.store.listed("shop/things/") if entry.key.endswith(".parquet")]  # type: ignore[attr-defined]
    assert len(files) == 2


@pytest.mark.deep
def test_a_table_that_grew_is_filled_by_delta_until_the_declaration_follows(tmp_path: Path) -> None:
    target = TargetTable(lake_fields("delta_local", tmp_path), tmp_path, {"mode": "append", "on_drift": "evolve"})
    target.load([row(1)])
    wider = (*COLUMNS, Column(Text(), nullable=True, name="note"))
    grown = replace(target, table=replace(target.table, columns=wider))
    assert "ADD FILES" not in preview_pipeline(grown.pipeline()).text()
    grown.load([row(2)])
    assert "ADD FILES" in preview_pipeline(grown.pipeline()).text()
    grown.load([row(3)])
    assert target.rows("id, note") == [("1", None), ("2", "n"), ("3", "n")]


@pytest.mark.deep
def test_a_constraint_of_somebody_else_is_kept_by_delta(tmp_path: Path) -> None:
    target = TargetTable(lake_fields("delta_local", tmp_path), tmp_path, {"mode": "append"})
    target.load([row(1)])
    database = target.database()
    with closing(database.session()) as session:
        table_name = f"delta.`{tmp_path}/lake/shop/things`"
        database.data(session).execute(f"ALTER TABLE {table_name} ADD CONSTRAINT small CHECK (id < 5)")
    assert "ADD FILES" not in preview_pipeline(target.pipeline("id, word, share, amount, at")).text()
    target.load([row(2)])
    with pytest.raises(Exception, match="small"):
        target.load([row(9)])
    assert ids(target) == [1, 2]


def altered(target: TargetTable, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement of somebody else's on the table of a folder."""
    database = target.database()
    with closing(database.session()) as session:
        table_name = f"delta.`{target.folder}/lake/shop/things`"
        return list(database.data(session).query(statement.format(table=table_name)))


@pytest.mark.deep
def test_a_text_of_limited_length_is_kept_by_delta(tmp_path: Path) -> None:
    target = TargetTable(lake_fields("delta_local", tmp_path), tmp_path, {"mode": "append"})
    columns = "id BIGINT NOT NULL, word VARCHAR(6), share DOUBLE, amount DECIMAL(38,4), at TIMESTAMP"
    altered(
        target,
        f"CREATE TABLE {{table}} ({columns}, _loaded_at TIMESTAMP NOT NULL, _batch_id STRING NOT NULL) USING delta",
    )
    target.load([row(1)])
    with pytest.raises(Exception, match="6"):
        target.load([row(10)])
    assert target.rows("id, word") == [("1", "word 1")]


@pytest.mark.deep
def test_spark_believes_what_is_noted_of_a_checkpoint_that_it_did_not_write(tmp_path: Path) -> None:
    target = TargetTable(lake_fields("delta_local", tmp_path), tmp_path, {"mode": "append"})
    target.load([row(1)])
    altered(target, "ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointInterval' = '3')")
    altered(target, "INSERT INTO {table} SELECT * FROM {table}")
    noted = tmp_path / "lake" / "shop" / "things" / "_delta_log" / "_last_checkpoint"
    before = noted.read_text("utf-8")
    assert noted.with_name("._last_checkpoint.crc").exists()
    for number in range(2, 5):
        target.load([row(number)])
    assert noted.read_text("utf-8") != before
    context = session_for(Options())().sparkContext
    path = context._jvm.org.apache.hadoop.fs.Path(noted.as_uri())
    opened = path.getFileSystem(context._jsc.hadoopConfiguration()).open(path)
    assert context._jvm.org.apache.commons.io.IOUtils.toString(opened, "UTF-8") == noted.read_text("utf-8")
    assert ids(target) == [1, 1, 2, 3, 4]


@pytest.mark.deep
@pytest.mark.parametrize("written", ["json", deep("parquet")])
def test_a_table_with_checkpoints_of_the_second_version_is_known_and_filled_by_delta(
    tmp_path: Path, written: str
) -> None:
    target = TargetTable(lake_fields("delta_local", tmp_path), tmp_path, {"mode": "append"})
    target.load([row(1)])
    database = target.database()
    columns = database.columns()  # type: ignore[attr-defined]
    settings = {"spark.databricks.delta.checkpointV2.topLevelFileFormat": written}
    table_name = f"delta.`{tmp_path}/lake/shop/things`"
    properties = "'delta.checkpointPolicy' = 'v2', 'delta.checkpointInterval' = '1'"
    database.engine().run(f"ALTER TABLE {table_name} SET TBLPROPERTIES ({properties})", settings)  # type: ignore[attr-defined]
    database.engine().run(f"INSERT INTO {table_name} SELECT * FROM {table_name}", settings)  # type: ignore[attr-defined]
    log = tmp_path / "lake" / "shop" / "things" / "_delta_log"
    assert list(log.glob(f"*.checkpoint.*-*.{written}"))
    for version in range(2):
        (log / f"{version:020}.json").unlink()
    assert database.columns() == columns  # type: ignore[attr-defined]
    assert "ADD FILES" not in preview_pipeline(target.pipeline("id, word, share, amount, at")).text()
    target.load([row(2)])
    assert ids(target) == [1, 1, 2]
