# ruff: noqa: TC001 - annotations are looked up in this module while the tests run
"""What a list of targets takes over from its pipeline."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from ematix_flow import BigInt, Target, Text, ematix, pk
from ematix_flow.declare.project import PROJECT


@ematix.table(schema="analytics")
class Events:
    event_id: Annotated[BigInt, pk()]
    name: Text | None


@ematix.table(schema="archive")
class Archive:
    event_id: Annotated[BigInt, pk()]


def declared(*targets: Any, **keywords: Any) -> Any:
    @ematix.pipeline(targets=list(targets), name="fan", **keywords)
    def fan(conn: Any) -> str:
        return f"SELECT {conn}"

    return PROJECT.pipeline("fan").targets


@pytest.mark.parametrize(
    "targets",
    [
        (Target(table=Events), Target(table=Archive)),
        (ematix.target(Events, mode="append"), ematix.target(Archive, mode="append")),
    ],
)
def test_both_kinds_of_targets_take_over_what_the_pipeline_says(targets: tuple[Any, ...]) -> None:
    pipeline = declared(
        *targets, mode="append", column_map={"event_id": "id"}, on_drift="warn", target_connection="warehouse"
    )
    assert [target.column_map for target in pipeline] == [{"event_id": "id"}] * 2
    assert [target.write.on_drift for target in pipeline] == ["warn"] * 2
    assert [target.connection for target in pipeline] == ["warehouse"] * 2


def test_what_a_target_says_itself_counts() -> None:
    own = ematix.target(Events, mode="append", on_drift="evolve", target_connection="lake", column_map={"name": "n"})
    pipeline = declared(own, mode="merge", on_drift="warn", target_connection="warehouse", column_map={"name": "other"})
    assert pipeline == (own,)


def test_a_target_takes_over_only_what_its_mode_takes() -> None:
    merge, append, scd2 = declared(
        ematix.target(Events, mode="scd1"),
        ematix.target(Archive, mode="append"),
        ematix.target(Events, mode="scd2", keys=["name"], target_connection="lake"),
        keys=["event_id"],
        compare_columns=["name"],
        update_columns=["name"],
    )
    assert (merge.write.keys, merge.write.compare_columns, merge.write.update_columns) == (
        ("event_id",), ("name",), ("name",)
    )  # fmt: skip
    assert (append.write.keys, append.write.compare_columns, append.write.update_columns) == (None, None, None)
    assert (scd2.write.keys, scd2.write.compare_columns, scd2.write.update_columns) == (("name",), ("name",), None)


def test_an_option_that_no_target_takes_is_refused() -> None:
    with pytest.raises(ValueError, match="keys= does not go with the mode of any target"):
        declared(Target(table=Events), Target(table=Archive), mode="append", keys=["event_id"])


def test_a_shared_column_map_names_columns_of_any_target() -> None:
    events, archive = declared(
        Target(table=Events), Target(table=Archive), mode="append", column_map={"name": "n", "typo": "x"}
    )
    assert events.column_map == {"name": "n", "typo": "x"}
    assert archive.column_map == {"typo": "x"}


def test_the_mode_of_the_pipeline_stays_required_where_a_target_has_none() -> None:
    with pytest.raises(TypeError, match="needs a mode"):
        declared(Target(table=Events), keys=["event_id"])


def test_post_steps_go_with_one_target_only() -> None:
    with pytest.raises(ValueError, match="transforms_post= runs after the load of one target"):
        declared(Target(table=Events), Target(table=Archive), mode="append", transforms_post=["ANALYZE"])
    assert declared(Target(table=Events), mode="append", transforms_post=[])


def test_two_targets_cannot_be_the_same_table() -> None:
    duplicates = [Target(table=Events, connection="lake", prefix=prefix) for prefix in ("a", "b")]
    with pytest.raises(ValueError, match=r"two targets are the table analytics\.events of connection 'lake'"):
        declared(*duplicates, mode="append")
    assert len(declared(duplicates[0], Target(table=Events, connection="warehouse"), mode="append")) == 2
