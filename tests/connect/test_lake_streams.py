"""Where streams of lake tables go next, told from logs and snapshots alone; no Spark reads a row here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.delta.stream_source import DeltaStream
from ematix_flow.connect.iceberg.stream_source import line_of
from ematix_flow.connect.lake.stream_source import AddedFiles, WholeTable
from ematix_flow.declare.connection.registry import connection_from_fields
from ematix_flow.errors import RunError, StreamLostError, UnsupportedError

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600_000
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}


class Log:
    """A Delta table that is nothing but its log and empty files."""

    def __init__(self, folder: Path, table: str = "t1", **configuration: str) -> None:
        self.folder = folder / "lake [1]" / "shop" / "things"
        (self.folder / "_delta_log").mkdir(parents=True, exist_ok=True)
        self.count = 0
        mapped = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"} if configuration else {}
        field = {"name": "id", "type": "long", "nullable": True, "metadata": mapped}
        self.write(
            {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
            metaData={
                "id": table,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": [field]}),
                "partitionColumns": [],
                "configuration": configuration,
            },
        )
        self.stream = DeltaStream(
            connection_from_fields("lake", {"kind": "delta_local", "path": str(folder / "lake [1]")}), "shop.things"
        )

    def write(self, *more: dict[str, Any], **action: Any) -> int:
        """Write the next version, an hour after the one before, and return its number."""
        actions = [{"commitInfo": {"timestamp": self.count * HOUR}}, *more, *([action] if action else [])]
        self.file(self.count).write_text("\n".join(json.dumps(one) for one in actions))
        self.count += 1
        return self.count - 1

    def file(self, version: int) -> Path:
        """Return the file of a version."""
        return self.folder / "_delta_log" / f"{version:020}.json"

    def add(self, path: str, rows: int = 1, **more: Any) -> dict[str, Any]:
        """Make a file and return the action that adds it."""
        (self.folder / path).touch()
        stats = json.dumps({"numRecords": rows})
        action = {"path": path.replace(" ", "%20"), "partitionValues": {}, "dataChange": True, "stats": stats}
        action |= {"size": 0, "modificationTime": 0}
        return {"add": action | more}


def test_versions_come_one_by_one_and_those_without_rows_are_passed_over(tmp_path: Path) -> None:
    log = Log(tmp_path)
    stream = log.stream
    begin = stream.start("earliest")
    assert stream.ahead(begin, 100) == begin
    first, second = log.write(log.add("a"), log.add("b", 3)), log.write(log.add("c"))
    at = stream.ahead(begin, 1)
    assert (at, stream.distance(begin, at)) == ({"version": first, "table": "t1"}, 4)
    assert stream.added(begin, at) == WholeTable(stream.relation, first)
    log.write(commitInfo={})
    end = stream.ahead(at, 1)
    assert end == stream.start(str(json.dumps({"version": second})))
    assert stream.ahead(end, 1) == end
    assert stream.distance(end, stream.start("latest")) == 0
    assert stream.distance(end, begin) == 0


def test_the_files_of_a_version_are_grouped_by_their_values(tmp_path: Path) -> None:
    log = Log(tmp_path)
    begin = log.stream.start("latest")
    values = ({"p": "x"}, {"p": ""}, {"p": "x"})
    adds = [log.add(f"file {n}", partitionValues=value) for n, value in enumerate(values)]
    log.write(*adds, {"remove": {"path": "old", "dataChange": False}})
    added = log.stream.added(begin, log.stream.start("latest"))
    assert isinstance(added, AddedFiles)
    path = str(log.folder / "file ")
    assert added.groups == (((("p", "x"),), (f"{path}0", f"{path}2")), ((("p", None),), (f"{path}1",)))


@pytest.mark.parametrize("removed", [True, False])
def test_a_version_that_changes_rows_is_refused(tmp_path: Path, removed: bool) -> None:
    log = Log(tmp_path)
    log.write(log.add("a"))
    at = log.stream.start("latest")
    remove = {"remove": {"path": "a", "dataChange": True}}
    log.write(remove) if removed else log.write(log.add("b", deletionVector=VECTOR))
    with pytest.raises(RunError, match=r"version 2 of table .* removes or changes rows") as raised:
        log.stream.ahead(at, 1)
    assert """--to '{"version":2}'""" in str(raised.value.hint)


def test_a_table_whose_past_cannot_be_read_begins_as_it_is(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(log.add("a"))
    log.write(log.add("ab", dataChange=False), {"remove": {"path": "a", "dataChange": False}})
    newest = log.write(log.add("c"))
    begin = log.stream.start("earliest")
    assert log.stream.ahead(begin, 1)["version"] == newest
    assert log.stream.ahead(begin, 1, log.stream.start('{"version": 1}'))["version"] == 1


def test_an_instant_is_the_newest_version_of_its_time(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for name in "abc":
        log.write(log.add(name))
    assert log.stream.start("1970-01-01T02:30:00Z")["version"] == 2
    assert log.stream.start("1969-01-01T00:00:00Z") == log.stream.start("earliest")
    for unknown in ('{"offset": 1}', '{"version": true}', "soon"):
        with pytest.raises(RunError):
            log.stream.start(unknown)


def test_what_is_gone_is_an_error(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(log.add("a"))
    at = log.stream.start("latest")
    log.write(log.add("b"))
    (log.folder / "b").unlink()
    with pytest.raises(StreamLostError, match="vacuumed"):
        log.stream.added(at, log.stream.ahead(at, 1))
    with pytest.raises(StreamLostError, match="has versions 0 to 2, and 10 is next"):
        log.stream.start('{"version": 9}')
    again = Log(tmp_path, "t2")
    again.write(again.add("x"))
    again.write(again.add("y"))
    again.write(again.add("z"))
    with pytest.raises(StreamLostError, match="made again"):
        log.stream.ahead(at, 1)


def test_a_table_that_is_not_there_or_has_other_names_is_refused(tmp_path: Path) -> None:
    log = Log(tmp_path, **{"delta.columnMapping.mode": "name"})
    with pytest.raises(UnsupportedError, match="other names in its files"):
        log.stream.ahead(log.stream.start("earliest"), 1)
    log.file(0).unlink()
    with pytest.raises(RunError, match="there is no Delta table"):
        log.stream.start("latest")


def test_the_line_of_snapshots_leaves_out_what_was_taken_back() -> None:
    none: dict[str, str] = {}
    rows = [
        (1, None, "append", 0, {"added-records": "5"}, False),
        (2, 1, "append", 1, {"added-records": "9"}, False),
        (3, 1, "replace", 2, {"added-records": "5", "deleted-records": "5"}, False),
        (4, 3, "overwrite", 3, none, False),
        (5, 4, "delete", 4, {"deleted-records": "1"}, True),
    ]
    line = line_of(rows)
    assert not line.cut
    assert [(one.number, one.rows, one.removes) for one in line.commits] == [
        (1, 5, False),
        (3, 0, False),
        (4, 0, False),
        (5, 0, True),
    ]
    assert line_of(rows[1:]).cut
    assert line_of([]).commits == ()
