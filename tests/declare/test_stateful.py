"""Windows, joins, change events, watermarks, state stores and lookups: each refuses what it could not mean."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ematix_flow import CDC, Aggregation, Dedupe, Join, Lookup, StateStore, Watermark, Window
from ematix_flow.errors import FlowError

COUNT = (Aggregation("count", "n"),)
TUMBLING = {"kind": "tumbling", "aggregations": COUNT, "duration_ms": 1000}
SESSION = {
    "kind": "session", "aggregations": COUNT, "gap_ms": 5, "max_session_duration_ms": 50, "group_by": ["user"],
}  # fmt: skip
JOIN = {"left_source": "a", "right_source": "b", "left_keys": "id", "right_keys": ["id"], "time_window_ms": 5}
CUSTOM = {"envelope": "custom", "op_field": "o", "after_field": "a", "key_field": "k", "op_map": {"I": "create"}}


def test_lists_become_tuples_and_other_words_their_own() -> None:
    assert Window(**SESSION) == Window(**{**SESSION, "group_by": ("user",), "aggregations": list(COUNT)})
    assert Join(**JOIN) == Join(**{**JOIN, "left_keys": ("id",), "right_keys": ("id",), "kind": "stream_stream_join"})
    assert Window(**TUMBLING).late_data == "drop"
    assert Window(**{**TUMBLING, "kind": "hopping", "hop_ms": 1000}).hop_ms == 1000
    assert Join(**{**JOIN, "time_window_ms": 0, "min_delta_ms": -5, "max_delta_ms": 5}).max_delta_ms == 5
    assert CDC(**CUSTOM).op_map == {"I": "create"}
    assert CDC(**{**CUSTOM, "op_map": {3: "create", True: "delete"}}).op_map == {"3": "create", "true": "delete"}


def test_a_column_for_marks_may_be_named_where_rows_are_deleted() -> None:
    assert CDC(soft_delete_column="gone").soft_column is None
    assert CDC(delete_mode="soft", soft_delete_column="gone").soft_column == "gone"


def test_change_events_may_be_declared_without_the_names_of_their_options() -> None:
    codes = {"I": "create"}
    given = CDC("custom", "o", "b", "a", "k", "t", codes, "soft", "gone", "fail", 7)
    fields = {"op_field": "o", "before_field": "b", "after_field": "a", "key_field": "k", "ts_field": "t"}
    deletes = {"delete_mode": "soft", "soft_delete_column": "gone"}
    assert given == CDC(
        envelope="custom", **fields, op_map=codes, **deletes, schema_evolution="fail", out_of_order_tolerance_ms=7
    )


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"agg": "median"}, "agg='median' is not known"),
        ({"agg": "sum"}, "sum needs column="),
        ({"agg": "count", "column": "x"}, "count takes no column="),
        ({"agg": "sum", "column": "x", "mode": "exact"}, "takes no mode="),
        ({"agg": "count_distinct", "column": "x", "mode": "exact"}, "belong together"),
        ({"agg": "count_distinct", "column": "x", "max_distinct_values_per_group": 5}, "belong together"),
        ({"agg": "count_distinct", "column": "x", "mode": "about"}, "mode='about'"),
        ({"agg": "count", "as_": ""}, "as_= is empty"),
    ],
)
def test_a_wrong_aggregation_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Aggregation(**{"as_": "n", **keywords})


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({**TUMBLING, "kind": "sliding"}, "kind='sliding'"),
        ({**TUMBLING, "aggregations": []}, "at least one aggregation"),
        ({**TUMBLING, "duration_ms": 0}, "duration_ms=0 is smaller"),
        ({**TUMBLING, "hop_ms": 500}, "of a tumbling window is its duration"),
        ({**TUMBLING, "gap_ms": 500}, "a tumbling window takes no gap_ms="),
        ({**TUMBLING, "kind": "hopping"}, "needs hop_ms="),
        ({**TUMBLING, "kind": "hopping", "hop_ms": 2000}, "longer than duration_ms="),
        ({**TUMBLING, "max_groups_per_window": 0}, "smaller than 1"),
        ({**TUMBLING, "late_data": "ignore"}, "late_data='ignore'"),
        ({**TUMBLING, "late_data": "reopen"}, "belong together"),
        ({**TUMBLING, "allowed_lateness_ms": 5}, "belong together"),
        ({**TUMBLING, "group_by": ("N",)}, "gives column 'n' twice"),
        ({**TUMBLING, "group_by": ("user", "user")}, "gives column 'user' twice"),
        ({**TUMBLING, "group_by": ("window_end",)}, "gives column 'window_end' twice"),
        ({**TUMBLING, "duration_ms": -1}, "duration_ms=-1 is smaller"),
        ({**TUMBLING, "duration_ms": 10**18}, "is longer than 10,000 years"),
        ({**TUMBLING, "kind": "hopping", "hop_ms": 0}, "hop_ms=0 is smaller"),
        ({**TUMBLING, "window_start_column": ""}, "a column needs a name"),
        ({**TUMBLING, "window_end_column": None}, "a column needs a name, not None"),
        ({**TUMBLING, "group_by": ("_flow_start",)}, "begins with '_flow_'"),
        ({**TUMBLING, "aggregations": (Aggregation("count", "_flow_order"),)}, "begins with '_flow_'"),
        ({**SESSION, "session_id_column": " x" * 100}, "longer than"),
        ({**SESSION, "gap_ms": 0}, "gap_ms=0 is smaller"),
        ({**SESSION, "gap_ms": None}, "needs gap_ms="),
        ({**SESSION, "max_session_duration_ms": None}, "needs max_session_duration_ms="),
        ({**SESSION, "group_by": ()}, "needs group_by="),
        ({**SESSION, "duration_ms": 5}, "takes no duration_ms="),
        ({**SESSION, "aggregations": (Aggregation("count", "session_id"),)}, "gives column 'session_id' twice"),
    ],
)
def test_a_wrong_window_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Window(**keywords)
    assert isinstance(caught.value, FlowError)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"right_source": "a"}, "are the same"),
        ({"left_keys": ()}, "needs at least one column"),
        ({"right_keys": ("a", "b")}, "has 1 column and right_keys= has 2"),
        ({"kind": "cross"}, "kind='cross'"),
        ({"time_window_ms": 0}, "a join needs time_window_ms="),
        ({"min_delta_ms": 1, "max_delta_ms": 5}, "min_delta_ms= and max_delta_ms= together"),
        ({"time_window_ms": 0, "min_delta_ms": 1}, "together"),
        ({"time_window_ms": 0, "min_delta_ms": 5, "max_delta_ms": 5}, "is not below"),
        ({"late_data": "dlq"}, "late_data='dlq'"),
        ({"late_data": "reopen"}, "belong together"),
        ({"left_column_prefix": "right_"}, "are the same"),
        ({"left_column_prefix": "RIGHT_"}, "are the same"),
        ({"left_column_prefix": None}, "left_column_prefix= takes text, not NoneType"),
        ({"left_keys": ""}, "left_keys= is empty"),
        ({"time_window_ms": -5}, "time_window_ms=-5 is smaller"),
        ({"time_window_ms": 10**18}, "is longer than 10,000 years"),
        ({"time_window_ms": 0, "min_delta_ms": -(10**18), "max_delta_ms": 5}, "is smaller than"),
        ({"time_window_ms": 0, "min_delta_ms": 5, "max_delta_ms": 1}, "is not below"),
    ],
)
def test_a_wrong_join_is_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        Join(**{**JOIN, **keywords})
    assert isinstance(caught.value, FlowError)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"envelope": "debezum"}, "did you mean 'debezium'?"),
        ({"delete_mode": "none"}, "delete_mode='none'"),
        ({"delete_mode": "soft"}, "belong together"),
        ({"schema_evolution": "add"}, "schema_evolution='add'"),
        ({"out_of_order_tolerance_ms": -1}, "smaller than 0"),
        ({**CUSTOM, "op_map": None}, "a custom envelope needs op_map="),
        ({**CUSTOM, "op_map": {"I": "insert"}}, "is not known"),
        ({**CUSTOM, "op_map": {2: "create", "2": "delete"}}, "op_map= has '2' as text and as a number"),
        ({**CUSTOM, "key_field": None}, "a custom envelope needs key_field="),
        ({"envelope": "canal", "key_field": "k"}, "does not go with envelope='canal'"),
    ],
)
def test_wrong_change_events_are_refused(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CDC(**keywords)


@pytest.mark.parametrize(
    ("create", "error", "message"),
    [
        (lambda: CDC(**{**CUSTOM, "op_map": {1.5: "create"}}), TypeError, "takes words of operations"),
        (lambda: Watermark(-1), ValueError, "lateness_ms=-1"),
        (lambda: Watermark(source_idleness_ms=True), TypeError, "takes a whole number, not bool"),
        (lambda: Watermark(source_idleness_ms=-1), ValueError, "source_idleness_ms=-1"),
        (lambda: Watermark(lateness_ms=10**18), ValueError, "is longer than 10,000 years"),
        (lambda: Dedupe("id", timedelta(hours=-1)), ValueError, "within=-3600000 is smaller than 1"),
        (lambda: StateStore("redis"), ValueError, "kind='redis'"),
        (lambda: StateStore("postgres"), ValueError, "needs url="),
        (lambda: StateStore("in_memory", checkpoint_interval_ms=0), ValueError, "smaller than 1"),
        (lambda: Lookup("db"), ValueError, "exactly one of table= and query="),
        (lambda: Lookup("db", "t", query="SELECT 1"), ValueError, "exactly one of table= and query="),
        (lambda: Lookup("db", query="SELECT 1", schema="s"), ValueError, "takes no schema="),
        (lambda: Lookup("db", "t", refresh_interval_ms=0), ValueError, "smaller than 1"),
        (lambda: Lookup(None, "t"), TypeError, "needs a connection"),  # type: ignore[arg-type]
        (lambda: Lookup({"url": "postgres://u:hidden@h"}, "t"), TypeError, "is not a connection"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_refused(create: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        create()
    assert isinstance(caught.value, FlowError)
    assert "hidden" not in str(caught.value)


def test_a_state_store_is_shown_without_its_password() -> None:
    shown = repr(StateStore("postgres", "postgres://me:hidden@host/db"))
    assert "hidden" not in shown
    assert "postgres://me:<redacted>@host/db" in shown
