"""Appends to Iceberg tables without an engine: no Java is started, and Iceberg itself finds the rows and goes on with the table."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ematix_flow import failpoints
from ematix_flow.connect.iceberg.files import LoadedTable
from ematix_flow.declare.table.schema import Column
from ematix_flow.declare.table.types import Text
from ematix_flow.engine.maintenance import maintain_pipeline
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.failpoints import FailpointError
from tests.depth import deep
from tests.lakes.targets import COLUMNS, START, TargetTable, bucket_of, lake_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.lakes.targets import Row

pytestmark = [pytest.mark.spark, pytest.mark.service, pytest.mark.xdist_group("lakes")]

MODULE = """
from typing import Annotated
from ematix_flow import BigInt, Text, ematix, pk

@ematix.connection
class target:
    kind = "iceberg"
    catalog_type = "jdbc"
    uri = "jdbc:sqlite:{folder}/catalog.db"
    warehouse = "{folder}/warehouse"

@ematix.connection
class landing:
    kind = "object_store_local"
    path = "."
    format = "csv"

@ematix.table(schema="shop")
class Things:
    id: Annotated[BigInt, pk()]
    word: Text

@ematix.pipeline(target=Things, source_connection="landing", target_connection="target", mode="append")
def things(files):
    return "in"
"""


def own(folder: Path) -> Path:
    """Return a folder that no test had before: Spark keeps the database of a catalog open."""
    subfolder = folder / uuid4().hex
    subfolder.mkdir()
    return subfolder


@pytest.fixture(params=[deep("iceberg_sql"), "iceberg_s3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TargetTable]:
    bucket = bucket_of(request) if request.param == "iceberg_s3" else None
    yield TargetTable(lake_fields(request.param, own(tmp_path), bucket), tmp_path, {"mode": "append"})
    failpoints.arm("")


@pytest.fixture
def in_folder(tmp_path: Path) -> Iterator[TargetTable]:
    yield TargetTable(lake_fields("iceberg_sql", own(tmp_path)), tmp_path, {"mode": "append"})
    failpoints.arm("")


def row(number: int) -> Row:
    return (number, f"word {number}", number / 2, f"{number}.25", START)


def ids(target: TargetTable) -> list[int]:
    return sorted(int(one[0]) for one in target.rows("id"))


def adds_files(target: TargetTable) -> bool:
    return "ADD FILES" in preview_pipeline(target.pipeline("id, word, share, amount, at")).text()


def statement(target: TargetTable, sql: str) -> list[tuple[Any, ...]]:
    """Run a statement as another program would, with the table in place of {}."""
    database: Any = target.database()
    return database.engine().query(sql.replace("{}", f"`{database.catalog.name}`.`shop`.`things`"))  # type: ignore[no-any-return]


@pytest.mark.deep
def test_an_append_and_its_dry_run_need_no_java(tmp_path: Path) -> None:
    folder = own(tmp_path)
    (tmp_path / "flows.py").write_text(MODULE.format(folder=folder), "utf-8")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,word\n1,a\n2,b\n", "utf-8")
    source = Path(__file__).parents[2] / "src"
    surroundings = {"PATH": "/nowhere", "HOME": str(tmp_path), "PYTHONPATH": str(source), "TMPDIR": str(tmp_path)}
    surroundings["EMATIX_FLOW_ENGINE"] = "local"
    surroundings |= {name: os.environ[name] for name in ("LANG",) if name in os.environ}
    for command in ("dry-run", "run", "dry-run", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "ematix_flow", command, "things", "--module", "flows"],
            cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    target = TargetTable(lake_fields("iceberg_sql", folder), tmp_path, {"mode": "append"})
    assert target.rows("id, word") == [("1", "a"), ("1", "a"), ("2", "b"), ("2", "b")]


@pytest.mark.deep
def test_iceberg_reads_the_files_and_goes_on_with_the_table(target: TargetTable) -> None:
    for number in range(1, 4):
        assert target.load([row(number)])["rows_inserted"] == 1
    assert adds_files(target)
    assert ids(target) == [1, 2, 3]
    assert target.rows("id, word, share, amount, at")[0][:4] == ("1", "word 1", "0.5", "1.2500")
    assert len(statement(target, "SELECT 1 FROM {}.snapshots")) == 3, "a load is one commit"
    merging = replace(target, options={"mode": "merge"})
    merging.load([(1, "changed", None, None, None), row(4)], "merged")
    assert target.load([row(5)], "after")["rows_inserted"] == 1
    assert ids(target) == [1, 2, 3, 4, 5]
    maintain_pipeline(target.pipeline())
    assert target.load([row(6)], "later")["rows_inserted"] == 1
    assert ids(target) == [1, 2, 3, 4, 5, 6]
    assert ("1", "changed") in target.rows("id, word")


@pytest.mark.parametrize("point", ["store.files_placed", "store.before_change", "store.after_change"])
def test_an_error_at_any_step_is_made_good_by_the_next_run(in_folder: TargetTable, point: str) -> None:
    in_folder.load([row(1)])
    failpoints.arm(f"{point}=raise")
    with pytest.raises(FailpointError):
        in_folder.load([row(2)], "second")
    failpoints.arm("")
    in_folder.again([row(2)], "second")
    assert ids(in_folder) == [1, 2]


@pytest.mark.deep
def test_a_commit_of_another_program_comes_first_and_the_same_files_follow(
    in_folder: TargetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_folder.load([row(1)])
    really, calls = LoadedTable.add, []

    def overtaken(table: LoadedTable, locations: Sequence[str], change: str) -> None:
        calls.append(1)
        if len(calls) == 1:
            statement(in_folder, "INSERT INTO {} SELECT * FROM {}")
        really(table, locations, change)

    monkeypatch.setattr(LoadedTable, "add", overtaken)
    assert in_folder.load([row(2)])["rows_inserted"] == 1
    assert len(calls) == 2
    assert ids(in_folder) == [1, 1, 2]
    assert len(list(Path(in_folder.fields["warehouse"], "shop/things/data").rglob("*.parquet"))) == 3


@pytest.mark.deep
def test_columns_are_known_by_their_ids_and_files_by_their_bounds(in_folder: TargetTable) -> None:
    in_folder.load([row(1), row(7)])
    bounds = "SELECT readable_metrics.id.lower_bound, readable_metrics.id.upper_bound, record_count FROM {}.files"
    assert statement(in_folder, bounds) == [(1, 7, 2)]
    statement(in_folder, "ALTER TABLE {} RENAME COLUMN word TO term")
    assert statement(in_folder, "SELECT id, term FROM {} ORDER BY id") == [(1, "word 1"), (7, "word 7")]


@pytest.mark.deep
def test_lists_of_files_are_put_together(in_folder: TargetTable) -> None:
    in_folder.load([row(1)])
    statement(in_folder, "ALTER TABLE {} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '2')")
    for number in range(2, 6):
        in_folder.load([row(number)])
    assert ids(in_folder) == [1, 2, 3, 4, 5]
    assert statement(in_folder, "SELECT COUNT(*) FROM {}.manifests") == [(1,)]


@pytest.mark.deep
def test_a_table_that_grew_is_filled_by_spark_until_the_declaration_follows(in_folder: TargetTable) -> None:
    in_folder.options = {"mode": "append", "on_drift": "evolve"}
    in_folder.load([row(1)])
    wider = (*COLUMNS, Column(Text(), nullable=True, name="note"))
    grown = replace(in_folder, table=replace(in_folder.table, columns=wider))
    assert "ADD FILES" not in preview_pipeline(grown.pipeline()).text()
    grown.load([row(2)])
    assert "ADD FILES" in preview_pipeline(grown.pipeline()).text()
    grown.load([row(3)])
    assert in_folder.rows("id, note") == [("1", None), ("2", "n"), ("3", "n")]


@pytest.mark.deep
@pytest.mark.parametrize(
    "alteration",
    [
        "WRITE ORDERED BY id",
        deep("ADD PARTITION FIELD bucket(4, id)"),
        deep("SET TBLPROPERTIES ('format-version' = '3')"),
        deep("SET TBLPROPERTIES ('write.format.default' = 'orc')"),
        deep("SET TBLPROPERTIES ('write.data.path' = 's3://elsewhere/data')"),
    ],
)
def test_what_a_table_asks_of_its_writers_is_left_to_spark(in_folder: TargetTable, alteration: str) -> None:
    in_folder.load([row(1)])
    statement(in_folder, "ALTER TABLE {} " + alteration)
    assert not adds_files(in_folder)
    if "ORDERED" in alteration:
        text = preview_pipeline(in_folder.pipeline("id, word, share, amount, at")).text()
        assert "written again by Spark: the table requires more of its writers than plain files" in text
    if "elsewhere" not in alteration:
        in_folder.load([row(2)])
        assert ids(in_folder) == [1, 2]


@pytest.mark.deep
def test_a_catalog_in_a_folder_is_left_to_spark(tmp_path: Path) -> None:
    target = TargetTable(lake_fields("iceberg", tmp_path), tmp_path, {"mode": "append"})
    target.load([row(1)])
    text = preview_pipeline(target.pipeline("id, word, share, amount, at")).text()
    assert "add every row, written again by Spark: a catalog in a folder has one safe writer" in text
