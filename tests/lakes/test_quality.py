"""Expectations of lake tables: measured on Spark before the one change of a load; one that fails changes nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.declare.pipeline.normalize import Replace
from ematix_flow.declare.quality.expectations import quality_of
from ematix_flow.engine.rejects import replay_rejects
from ematix_flow.errors import QualityCheckFailed
from tests.depth import deep
from tests.lakes.targets import MODES, START, TargetTable, lake_fields

if TYPE_CHECKING:
    from pathlib import Path

    from ematix_flow.declare.pipeline.pipeline import Pipeline
    from ematix_flow.declare.quality.tester import Tester
    from tests.lakes.targets import Row

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("lakes")]

GOOD: list[Row] = [(1, "ab", 0.5, "1.5", START), (2, "cd", None, "99.99", START), (3, None, 1.5, None, None)]
BAD: list[Row] = [(4, "AB", 0.5, "-0.0001", START), (5, "zz", 0.5, "100.0001", START), (6, "zz", 0.5, "7", START)]


@dataclass
class CheckedTable(TargetTable):
    """A target whose rows are expected to be something."""

    quality: dict[str, Any] = field(default_factory=dict)

    def pipeline(self, columns: str = "*") -> Pipeline:
        created = super().pipeline("id, word, share, amount, at" if columns == "*" else columns)
        (target,) = created.targets
        return replace(created, targets=(replace(target, quality=quality_of(self.quality, self.table, target.write)),))

    def last_change(self) -> str:
        database = self.database()
        with closing(database.session()) as session:
            table_name = database.table_name(self.table.schema, self.table.name)
            return database.fingerprint(session, table_name, self.table.column_names)


def few(t: Tester) -> None:
    """Expect what is told by the one query, by a query of its own and of single rows."""
    t.column("word").unique()
    t.column("amount").between(0, 100)
    t.column("word").regex("^[a-z]{2}$")


def expected(t: Tester) -> None:
    """Expect one thing of each kind."""
    few(t)
    t.column("id").not_null()
    t.column("word").is_in(["ab", "cd", "zz"])
    t.column("id").exists_in("shop.known", "id")
    t.sql("small", "id < 100")
    t.sql("known too", "word IS NULL OR word IN (SELECT 'ab' UNION SELECT 'cd')")
    t.query("none twice", "SELECT id, COUNT(*) AS n FROM rows GROUP BY id HAVING COUNT(*) > 1")
    t.python("counts", lambda rows: len(list(rows)) == rows.query("SELECT COUNT(*) FROM rows")[0][0])
    t.freshness("at", within="3h")
    t.row_count(at_most=5, severity="warn")


def test_every_expectation_is_measured_on_a_lake(tmp_path: Path) -> None:
    fields = lake_fields("iceberg", tmp_path)
    known = TargetTable(fields, tmp_path, {"mode": "append"})
    known.table = replace(known.table, name="known")
    known.load([*GOOD, *BAD])
    target = CheckedTable(fields, tmp_path, MODES["merge_hard"], quality={"expectations": expected})
    done = target.load([*GOOD, *BAD])
    assert done["rows_inserted"] == 6
    failed = {one["name"]: one["failed_rows"] for one in done["quality"]["checks"] if one["verdict"] != "pass"}
    assert failed == {
        "unique(word)": 2, "between(amount)": 2, "regex(word)": 1, "is_in(word)": 1, "known too": 3, "row_count": None,
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "mode"), [deep("iceberg", "merge_hard"), ("delta_local", "append")])
def test_rows_of_a_lake_are_set_aside(kind: str, mode: str, tmp_path: Path) -> None:
    quality = {"expectations": few, "on_quality_failure": "reject"}
    target = CheckedTable(lake_fields(kind, tmp_path), tmp_path, MODES[mode], quality=quality)
    done = target.load([*GOOD, *BAD])
    assert (done["rows_inserted"], done["rows_rejected"]) == (3, 3)
    assert [row[0] for row in target.rows()] == ["1", "2", "3"]


def test_rows_of_a_lake_that_were_set_aside_are_replayed_as_they_are(tmp_path: Path) -> None:
    target = CheckedTable(lake_fields("delta_local", tmp_path), tmp_path, MODES["append"])
    columns = [replace(c, normalizers=(Replace("a", "aa"),)) if c.name == "word" else c for c in target.table.columns]
    target.table = replace(target.table, columns=tuple(columns))
    target.quality = {"expectations": lambda t: t.column("id").between(0, 1), "on_quality_failure": "reject"}
    assert (
        target.load([(n, "banana", 0.1 + 0.2, "-99999999999999999999.0001", START) for n in (1, 2)])["rows_rejected"]
        == 1
    )
    target.quality = {"expectations": lambda t: t.column("id").between(0, 9), "on_quality_failure": "reject"}
    assert replay_rejects(target.pipeline())["replayed"] == 1
    one, other = target.rows("id, word, share, amount, at")
    assert (one[0], other[0], one[1]) == ("1", "2", "baanaanaa")
    assert one[1:] == other[1:]


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "mode"), [("iceberg", "scd2_load"), ("delta_local", "truncate")])
def test_an_expectation_that_fails_leaves_no_change_in_a_lake(kind: str, mode: str, tmp_path: Path) -> None:
    target = CheckedTable(lake_fields(kind, tmp_path), tmp_path, MODES[mode])
    target.load(GOOD)
    before, change = target.rows(), target.last_change()
    target.quality = {"expectations": lambda t: t.column("amount").between(0, 100, severity="fail")}
    with pytest.raises(QualityCheckFailed, match=r"between\(amount\): 2 of 3 rows"):
        target.load(BAD)
    assert (target.rows(), target.last_change()) == (before, change)
    target.quality = {"expectations": lambda t: t.query("lost", "SELECT 1 FROM rows, shop.nowhere")}
    assert target.load(GOOD)["quality"]["outcome"] == "warn"
