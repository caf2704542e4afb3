"""Loads that read only files which were not loaded yet: what counts as new, what is refused and what is remembered."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import failpoints
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.engine import (
    Options,
    apply_plan,
    diff_pipeline,
    dry_run_pipeline,
    preview_pipeline,
    run_pipeline,
    validate_pipeline,
)
from ematix_flow.engine.api.testing import run_with
from ematix_flow.engine.rejects import replay_rejects
from ematix_flow.errors import BadRowsError, PlanError, RunError
from ematix_flow.failpoints import FailpointError
from ematix_flow.run_log import SqliteRunLog
from tests.engine.bucket_loads import Bucket
from tests.engine.inboxes import Inbox, content
from tests.services.s3 import s3_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.services.s3 import S3Server

pytestmark = pytest.mark.slow


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    yield Inbox(str(tmp_path), {"kind": "sqlite", "path": str(tmp_path / "target.db")}, str(tmp_path / "log.db"))
    failpoints.arm("")


def test_every_file_is_loaded_once_whatever_its_name(inbox: Inbox) -> None:
    inbox.put("m.csv", 1, 2)
    assert inbox.run()["rows_inserted"] == 2
    again = inbox.run()
    assert (again["rows_inserted"], again["files_loaded"], again["files_known"]) == (0, 0, 1)
    inbox.put("a.csv", 3)
    inbox.put("z/deep.csv", 4)
    late = inbox.run()
    assert (late["rows_inserted"], late["files_loaded"], late["files_known"]) == (2, 2, 1)
    assert inbox.ids() == [1, 2, 3, 4]
    assert [key for key, _ in inbox.remembered()] == ["in/a.csv", "in/m.csv", "in/z/deep.csv"]


def test_files_of_a_plan_are_remembered_when_it_is_applied(inbox: Inbox) -> None:
    inbox.put("a.csv", 1, 2)
    options = Options(run_log=SqliteRunLog(inbox.run_log))
    planned = diff_pipeline(inbox.pipeline(), options)
    inbox.put("b.csv", 3)
    assert apply_plan(planned.plan_id, options)["rows_inserted"] == 2
    assert [key for key, _ in inbox.remembered()] == ["in/a.csv"]
    assert inbox.run()["files_loaded"] == 1
    assert inbox.ids() == [1, 2, 3]


def test_a_file_may_be_gone_after_its_load(inbox: Inbox) -> None:
    with pytest.raises(RunError, match="no files match 'in'"):
        inbox.run()
    first = inbox.put("a.csv", 1)
    inbox.run()
    first.unlink()
    with pytest.warns(UserWarning, match="has no file now"):
        assert inbox.run()["files_known"] == 0
    inbox.put("b.csv", 2)
    inbox.run()
    assert inbox.ids() == [1, 2]


def test_names_with_an_underscore_or_a_dot_are_not_read(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    inbox.put("_being_written.csv", 2)
    inbox.put(".hidden/b.csv", 3)
    assert inbox.run()["files_loaded"] == 1
    assert inbox.ids() == [1]


def test_a_file_without_rows_is_known_too(inbox: Inbox) -> None:
    inbox.put("a.csv")
    assert [inbox.run()["files_loaded"], inbox.run()["files_known"]] == [1, 1]


def test_json_files_without_a_line_are_known_too(inbox: Inbox) -> None:
    inbox = replace(inbox, path="in/*.jsonl")
    folder = inbox.put("none.csv").parent
    (folder / "a.jsonl").write_bytes(b"")
    (folder / "b.jsonl").write_bytes(b"\n \r\n")
    assert [inbox.run()["files_loaded"], inbox.run()["files_known"]] == [2, 2]
    (folder / "c.jsonl").write_bytes(b'{"id": 1, "label": "c"}\n')
    assert inbox.run()["files_loaded"] == 1
    assert inbox.ids() == [1]


def same_size(inbox: Inbox, file: Path) -> None:
    inbox.put(file.name, 2)


def same_time(inbox: Inbox, file: Path) -> None:
    before = file.stat()
    inbox.put(file.name, 2)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def overwritten(inbox: Inbox, file: Path) -> None:
    file.write_text(content(2, 3), encoding="utf-8")


@pytest.mark.parametrize("replace_file", [same_size, same_time, overwritten])
def test_a_file_that_changed_under_its_name_is_refused(
    inbox: Inbox, replace_file: Callable[[Inbox, Path], None]
) -> None:
    file = inbox.put("a.csv", 1)
    inbox.run()
    replace_file(inbox, file)
    inbox.put("b.csv", 9)
    with pytest.raises(PlanError, match=r"1 file of inbox has changed since it was loaded: in/a\.csv"):
        inbox.run()
    assert inbox.ids() == [1], "nothing is loaded, not even the new file"


def test_a_changed_file_can_be_left_out_or_loaded(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    inbox.put("b.csv", 2)
    inbox.run()
    inbox.put("a.csv", 3, 4)
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"is left out: in/a\.csv"):
            assert inbox.run(on_replaced="ignore")["rows_inserted"] == 0
    result = inbox.run(on_replaced="load")
    assert (result["rows_inserted"], result["files_loaded"], result["files_replaced"]) == (2, 1, 1)
    assert inbox.run()["files_known"] == 2, "what was loaded last is what is known"
    assert inbox.ids() == [1, 2, 3, 4]
    assert inbox.remembered() == [("in/a.csv", len(content(3, 4))), ("in/b.csv", len(content(2)))]


def test_merge_takes_the_rows_of_new_files(inbox: Inbox) -> None:
    merging = replace(inbox, options={"mode": "merge"})
    merging.put("a.csv", 1, 2)
    merging.run()
    merging.put("b.csv", 2, 3)
    result = merging.run()
    assert (result["rows_inserted"], result["rows_unchanged"]) == (1, 1)
    assert merging.run()["rows_unchanged"] == 0, "known files are not read again"


def test_bad_rows_are_rejects_of_a_loaded_file_or_fail_all_files(inbox: Inbox) -> None:
    inbox.put("a.csv", 1, "none")
    inbox.put("b.csv", 2)
    with pytest.raises(BadRowsError):
        inbox.run()
    assert (inbox.ids(), inbox.remembered()) == ([], [])
    result = inbox.run(on_bad_row="reject")
    assert (result["rows_inserted"], result["rows_rejected"], result["files_loaded"]) == (2, 1, 2)
    again = inbox.run(on_bad_row="reject")
    assert (again["rows_rejected"], again["files_known"]) == (0, 2)
    assert replay_rejects(inbox.pipeline())["rejected"] == 1
    assert len(inbox.remembered()) == 2


def test_a_file_that_changes_while_it_is_read_fails_the_load(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    from ematix_flow.run.local import threads

    file = inbox.put("a.csv", 1)

    def write_on(*partitions: Any) -> Any:
        parts = staged(*partitions)
        with file.open("a", encoding="utf-8") as writer:
            writer.write("2,late\n")
        return parts

    staged = threads.stage_in_threads
    with monkeypatch.context() as patch:
        patch.setattr(threads, "stage_in_threads", write_on)
        with pytest.raises(RunError, match=r"a\.csv changed while it was read"):
            inbox.run()
    assert inbox.ids() == []
    inbox.run()
    assert inbox.ids() == [1, 2]


def test_pipelines_and_tables_remember_by_themselves(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    inbox.run()
    second = replace(inbox, name="second", options={"mode": "merge"})
    assert second.run()["rows_unchanged"] == 1
    assert replace(inbox, schema="elsewhere").run()["rows_inserted"] == 1, "another table has not seen the file"
    assert inbox.run()["files_known"] == 1


@pytest.mark.parametrize("point", ["commit.before_commit", "commit.after_commit"])
def test_an_interrupted_load_is_taken_up_and_new_files_come_with_the_next(inbox: Inbox, point: str) -> None:
    inbox.put("a.csv", 1)
    failpoints.arm(f"{point}=raise@1")
    with pytest.raises(FailpointError):
        inbox.run()
    failpoints.arm("")
    inbox.put("b.csv", 2)
    assert inbox.run().get("recovered", False) == (point == "commit.after_commit")
    inbox.run()
    assert inbox.ids() == [1, 2]


def test_a_fresh_run_does_not_load_a_committed_file_again(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    failpoints.arm("commit.after_commit=raise@1")
    with pytest.raises(FailpointError):
        inbox.run()
    failpoints.arm("")
    run_pipeline(inbox.pipeline(), Options(new=True, run_log=SqliteRunLog(inbox.run_log)))
    assert inbox.ids() == [1]


def test_a_fan_out_remembers_by_target(inbox: Inbox, tmp_path: Path) -> None:
    one = inbox.pipeline().targets[0]
    other = replace(one, table=replace(one.table, name="copies"))
    both = replace(inbox.pipeline(), targets=(one, other), fan_out=True, continue_on_failure=True)
    options = Options(run_log=SqliteRunLog(inbox.run_log))
    inbox.put("a.csv", 1)
    failpoints.arm("commit.before_commit=raise@2")
    assert list(run_pipeline(both, options)["errors"]) == ["main.copies"]
    failpoints.arm("")
    inbox.put("b.csv", 2)
    result = run_pipeline(both, options)
    assert [result[name]["files_loaded"] for name in ("main.items", "main.copies")] == [1, 2]


def test_a_plan_says_which_files_are_new(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    inbox.put("b.csv", 2)
    assert "2 new, 0 known, 0 replaced" in preview_pipeline(inbox.pipeline()).text()
    inbox.run()
    inbox.put("a.csv", 3)
    inbox.put("c.csv", 4)
    preview = preview_pipeline(inbox.pipeline())
    files = {"new": ["in/c.csv"], "known": 1, "replaced": ["in/a.csv"], "on_replaced": "error"}
    assert preview.to_dict()["targets"][0]["read"]["files"] == files
    assert any("a run would be refused: 1 file " in note for note in preview.notes)
    assert "in/a.csv" in str(dry_run_pipeline(inbox.pipeline()).errors)
    counted = dry_run_pipeline(inbox.pipeline(on_replaced="load")).targets[0].dry_run_rows_affected
    assert counted == {"rows_staged": 2, "rows_inserted": 2, "rows_deleted": 0, "rows_rejected": 0}
    assert validate_pipeline(inbox.pipeline()).ok
    assert inbox.remembered() == [("in/a.csv", len(content(1))), ("in/b.csv", len(content(2)))]


@pytest.mark.parametrize("refused", [preview_pipeline, run_pipeline])
def test_only_files_can_be_new(inbox: Inbox, refused: Callable[..., Any]) -> None:
    inbox.put("a.csv", 1)
    with pytest.raises(PlanError, match="a query may need those that were loaded before"):
        refused(replace(inbox.pipeline(), function=lambda: "SELECT * FROM source"))
    base = connection_from_fields("source", {"kind": "sqlite", "path": inbox.target["path"]})
    rows = replace(inbox.pipeline(), function=lambda: "SELECT 1 AS id, 'a' AS label", source_connection=base)
    with pytest.raises(PlanError, match="needs a source of files, and this one is a database"):
        refused(rows)


def test_a_trial_takes_rows_in_the_place_of_files(inbox: Inbox) -> None:
    assert run_with(inbox.pipeline(), [{"id": 1, "label": "x"}]).rows == [{"id": 1, "label": "x"}]


@pytest.mark.service
def test_objects_of_a_bucket_are_known_by_the_tag_of_their_content(
    s3_server: S3Server, s3_bucket: str, inbox: Inbox
) -> None:
    bucket = Bucket(s3_fields(s3_server, s3_bucket, prefix="raw", format="csv"))
    inbox = replace(inbox, source=bucket.fields)
    bucket.put("in/b.csv", content(1).encode())
    assert inbox.run()["rows_inserted"] == 1
    bucket.put("in/b.csv", content(1).encode())
    assert inbox.run()["files_known"] == 1, "the same content again is no other file"
    bucket.put("in/a.csv", content(2).encode())
    assert inbox.run()["files_loaded"] == 1
    bucket.put("in/b.csv", content(3).encode())
    with pytest.raises(PlanError, match=r"in/b\.csv"):
        inbox.run()
    assert inbox.run(on_replaced="load")["rows_inserted"] == 1
    assert inbox.ids() == [1, 2, 3]
    assert [key for key, _ in inbox.remembered()] == ["in/a.csv", "in/b.csv"]


@pytest.mark.spark
def test_new_files_that_spark_shapes(inbox: Inbox, spark: Any) -> None:
    from ematix_flow.declare.pipeline.transforms import filter_where

    pipeline = replace(inbox.pipeline(), transforms_pre=(filter_where("id > 1"),))
    options = Options(run_log=SqliteRunLog(inbox.run_log))
    inbox.put("a.csv", 1, 2)
    assert run_pipeline(pipeline, options)["rows_inserted"] == 1
    inbox.put("b.csv", 3)
    assert [run_pipeline(pipeline, options)["files_loaded"] for _ in range(2)] == [1, 0]
    assert inbox.ids() == [2, 3]


def test_a_preview_without_the_target_says_that_it_cannot_know(inbox: Inbox) -> None:
    inbox.put("a.csv", 1)
    away = replace(inbox, target={"kind": "postgres", "url": "postgresql://nobody@127.0.0.1:9/none"})
    preview = preview_pipeline(away.pipeline())
    assert any("which files are new is not known" in note for note in preview.notes)
    assert "files" not in preview.to_dict()["targets"][0]["read"]
