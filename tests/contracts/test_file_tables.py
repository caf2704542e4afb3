"""Folders of files as targets, here and in a bucket: what no database has to promise, and what they refuse."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from ematix_flow.connect.files.transaction import FILES
from ematix_flow.connect.metadata.session import COMMITS, HOME, head_of, record_of
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.declare.pipeline.file_options import FileOptions
from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
from ematix_flow.declare.pipeline.write import write
from ematix_flow.declare.table.schema import Column, Table
from ematix_flow.declare.table.types import BigInt, Text, TimestampTZ
from ematix_flow.engine.review.dry_run import dry_run_pipeline
from ematix_flow.engine.review.preview import preview_pipeline
from ematix_flow.engine.review.validate import validate_pipeline
from ematix_flow.errors import UnsupportedError
from tests.contracts import systems
from tests.contracts.file_flows import folder_of, rows_as_recorded
from tests.contracts.flows import START
from tests.depth import quick_or_deep

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contracts.file_flows import FileFlow
    from tests.contracts.systems import Folder

    Flows = Callable[..., FileFlow]

COLUMNS = (Column(BigInt(), primary_key=True, name="id"), Column(Text(), name="what"), Column(TimestampTZ(), name="at"))
EVENTS = Table("analytics", "events", COLUMNS)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.every_system,
    pytest.mark.parametrize("system", [systems.parameter(folder) for folder in systems.FILES], indirect=True),
]


def event(key: int, what: str | None = "seen") -> dict[str, Any]:
    return {"id": key, "what": what, "at": START + timedelta(hours=key)}


def everything(flow: FileFlow) -> list[str]:
    """Return all files and folders that are there, and the folder itself."""
    with folder_of(flow.lake.store) as root:
        paths = [root, *root.rglob("*")] if root.exists() else []
        return sorted(path.relative_to(root).as_posix() for path in paths)


def shown(flow: FileFlow) -> list[str]:
    """Return the files that readers of the folder see."""
    with folder_of(flow.lake.store) as root:
        files = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        return sorted(path for path in files if not path.startswith("_"))


def visible_rows(flow: FileFlow, pattern: str, what: str = "id") -> list[tuple[Any, ...]]:
    """Return what a stranger with DuckDB sees of Parquet files."""
    with folder_of(flow.lake.store) as root:
        return duckdb.execute(
            f"SELECT {what} FROM read_parquet(?, union_by_name=true)", [str(root / pattern)]
        ).fetchall()


def ids(flow: FileFlow) -> list[int]:
    return [row["id"] for row in flow.rows()]


def test_files_lie_in_the_folder_of_their_table_in_the_order_of_their_loads(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append")
    for key in range(3):
        flow.run([event(key)])
    names = shown(flow)
    assert all(name.startswith("analytics/events/") and name.endswith(".parquet") for name in names)
    assert [visible_rows(flow, name) for name in names] == [[(0,)], [(1,)], [(2,)]]
    assert sorted(visible_rows(flow, "analytics/events/*.parquet")) == [(0,), (1,), (2,)]


def test_a_record_names_the_files_of_its_commit(flows: Flows) -> None:
    flow = flows(EVENTS, mode="truncate")
    flow.run([event(1)])
    flow.run([event(2), event(3)])
    numbers = range(1, head_of(flow.lake.store).number + 1)
    records = [record_of(flow.lake.store, number) for number in numbers]
    assert [record["number"] for record in records] == list(numbers)
    added = [file for record in records for file in record.get("added", ())]
    removed = [path for record in records for path in record.get("removed", ())]
    assert [file["rows"] for file in added] == [1, 2]
    assert removed == [added[0]["path"]]
    assert shown(flow) == [added[1]["path"]]


def test_a_prefix_and_options_say_where_and_how_files_are_written(flows: Flows) -> None:
    flow = flows(EVENTS, mode="truncate", files=FileOptions(prefix="raw/day=1", parquet_compression="zstd"))
    flow.run([event(1)])
    flow.run([event(2)])
    (name,) = shown(flow)
    assert name.startswith("raw/day=1/")
    assert ids(flow) == [2]
    with folder_of(flow.lake.store) as root:
        codecs = duckdb.execute("SELECT DISTINCT compression FROM parquet_metadata(?)", [str(root / name)]).fetchall()
    assert codecs == [("ZSTD",)]
    flow.files = FileOptions(csv_delimiter=";")
    with pytest.raises(UnsupportedError, match=r"csv_delimiter= is an option of csv files.*writes parquet"):
        flow.run()


@pytest.mark.parametrize("mode", ["merge", "scd2"])
def test_other_modes_are_refused_with_what_can_do_them(flows: Flows, mode: str) -> None:
    flow = flows(EVENTS, mode=mode)
    with pytest.raises(UnsupportedError) as refused:
        flow.run([event(1)])
    message = str(refused.value)
    assert f"{flow.connection.kind} can: append, truncate." in message
    assert f"{mode} can be done by: duckdb, sqlite, postgres, mysql." in message
    assert shown(flow) == []


def test_post_steps_and_names_that_readers_skip_are_refused(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append", declared={"transforms_post": ("SELECT 1",)})
    with pytest.raises(UnsupportedError, match=r"answers no SQL[\s\S]*transform_ref"):
        flow.run([event(1)])
    flow = flows(replace(EVENTS, name="_hidden"), mode="append")
    with pytest.raises(UnsupportedError, match="begin with neither"):
        flow.run([event(1)])


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ["Two Words", "it's", 'quo"ted', "semi;colon", "ünïcödé 漢", "per%cent*?[a]"])
def test_hostile_names_are_folders_like_others(flows: Flows, name: str) -> None:
    flow = flows(replace(EVENTS, name=name), mode="truncate")
    flow.run([event(1)])
    flow.run([event(2, 'it\'s \\ "x"\n%s ? $1')])
    assert [(row["id"], row["what"]) for row in flow.rows()] == [(2, 'it\'s \\ "x"\n%s ? $1')]


def test_truncate_spares_the_files_of_tables_further_down_and_takes_strangers_away(flows: Flows) -> None:
    outer = flows(EVENTS, "outer", mode="truncate", files=FileOptions(prefix="all"))
    inner = flows(replace(EVENTS, name="inner"), "inner", mode="append", files=FileOptions(prefix="all/inner"))
    outer.run([event(1)])
    inner.run([event(2)])
    outer.lake.store.write("all/stranger.parquet", b"not even Parquet")
    outer.run([event(3)])
    assert ids(inner) == [2]
    assert len(shown(outer)) == 2
    assert visible_rows(outer, "all/*.parquet") == [(3,)]


def test_a_load_that_is_asked_for_again_adds_no_file(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append")
    flow.run([event(1)], slot="one")
    before = shown(flow)
    assert flow.run([event(1)], slot="one")["recovered"] is True
    assert shown(flow) == before


def test_a_file_that_somebody_deletes_does_not_stop_later_loads(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append")
    flow.run([event(1)])
    flow.lake.store.delete(shown(flow)[0])
    flow.run([event(2)])
    assert visible_rows(flow, "analytics/events/*.parquet") == [(2,)]


def test_a_dry_run_counts_and_leaves_nothing_behind(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append")
    flow.give([event(1), event(2)])
    nothing = everything(flow)
    counted = dry_run_pipeline(flow.pipeline, flow.options())
    assert counted.targets[0].dry_run_error is None
    assert counted.targets[0].dry_run_rows_affected["rows_inserted"] == 2
    assert everything(flow) == nothing
    flow.run()
    before = everything(flow)
    dry_run_pipeline(flow.pipeline, flow.options())
    assert everything(flow) == before


def test_preview_and_validate_say_what_becomes_of_files(flows: Flows) -> None:
    flow = flows(EVENTS, mode="truncate")
    flow.give([event(1)])
    nothing = everything(flow)
    text = preview_pipeline(flow.pipeline, flow.options()).text(verbose=True)
    assert "REPLACE FILES" in text
    assert "remove the files that are there" in text
    assert flow.lake.store.display_address in text
    assert validate_pipeline(flow.pipeline, flow.options()).text().startswith("flow: ok")
    assert everything(flow) == nothing
    flow.run()
    assert validate_pipeline(flow.pipeline, flow.options()).ok
    flow.write["mode"] = "merge"
    refused = validate_pipeline(flow.pipeline, flow.options())
    assert f"{flow.connection.kind} can: append, truncate" in refused.text()


def test_a_database_and_a_folder_get_the_same_rows_from_one_source(flows: Flows, tmp_path: Path) -> None:
    flow = flows(EVENTS, mode="append")
    other = connection_from_fields("other", {"kind": "duckdb", "path": str(tmp_path / "other.duckdb")})
    merged = TargetDeclaration(replace(EVENTS, name="merged"), write("merge", incremental_column="at"), other)
    appended = replace(flow.target, write=write("append", incremental_column="at"))
    flow.declared = {"targets": (merged, appended), "fan_out": True}
    flow.run([event(1), event(2)])
    flow.add([event(3)])
    result = flow.run()
    assert {name: one["rows_inserted"] for name, one in result.items()} == {
        "analytics.merged": 1,
        "analytics.events": 1,
    }
    with duckdb.connect(str(tmp_path / "other.duckdb")) as connection:
        assert connection.execute("SELECT id FROM analytics.merged ORDER BY 1").fetchall() == [(1,), (2,), (3,)]
    assert ids(flow) == [1, 2, 3]


def test_the_state_has_the_documented_tables(flows: Flows) -> None:
    flow = flows(EVENTS, mode="append")
    flow.run([event(1)])
    with closing(flow.lake.session()) as session:
        for name in ("run_history", "watermarks", "ledger", "fences", "rejects"):
            assert flow.lake.find_table(session, flow.lake.metadata_table(name)) is not None
        ((path, rows),) = session.query(f"SELECT path, rows FROM {FILES}")
    assert ([path], rows) == (shown(flow), 1)
    assert json.loads(flow.lake.store.read(f"{HOME}{COMMITS}000000000001.json") or b"")["format"] == 1


def test_pipelines_that_write_to_one_folder_at_the_same_time_lose_nothing(flows: Flows, system: Folder) -> None:
    rounds = 3 if system.server else quick_or_deep(4, 12)  # every object of a bucket is a request
    pipelines = [flows(replace(EVENTS, name=f"events_{n % 2}"), f"loads_{n}", mode="append") for n in range(4)]
    for number, flow in enumerate(pipelines):
        # Each reads rows of its own, so that the source can be given once.
        flow.query = f'SELECT id + 1000 * {number} AS id, what, "at" FROM {pipelines[0].source_name}'
        flow.held = None
    pipelines[0].give([event(1), event(2)])
    failures: list[BaseException] = []

    def work(flow: FileFlow) -> None:
        try:
            for _ in range(rounds):
                flow.run()
        except BaseException as error:  # noqa: BLE001 - told by the test itself
            failures.append(error)

    threads = [threading.Thread(target=work, args=(flow,), daemon=True) for flow in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    for flow in pipelines[:2]:
        types = {"id": BigInt()}
        rows = rows_as_recorded(flow.lake, "analytics", flow.table.name, types)
        assert len(rows) == 2 * 2 * rounds
    assert {row["status"] for row in pipelines[0].points("run_history")} == {"success"}
    assert len(pipelines[0].points("ledger")) == 4 * rounds


@pytest.mark.usefixtures("system")
def test_every_declared_gap_is_a_test() -> None:
    folder = Path(__file__).parent
    text = "\n".join(path.read_text() for path in folder.glob("test_*.py"))
    declared = {**systems.GAPS, **systems.DATABASES_ONLY, **systems.LAKE_GAPS, **systems.DELTA_GAPS}
    missing = [name for name in declared if f"def {name}(" not in text and not (folder / f"{name}.py").exists()]
    assert missing == []
