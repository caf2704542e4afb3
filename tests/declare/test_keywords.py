"""Every accepted spelling of a keyword and of a duration."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ematix_flow.declare.pipeline.keywords import duration, pipeline_keywords, target_keywords
from ematix_flow.errors import FlowError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"incremental": True, "watermark_column": "at"}, {"incremental_column": "at"}),
        ({"watermark_column": "at"}, {"incremental_column": "at"}),
        ({"incremental": True, "incremental_column": "at"}, {"incremental_column": "at"}),
        ({"incremental": False, "watermark_column": "at"}, {}),
        ({"incremental": "files", "on_replaced": "load"}, {"incremental": "files", "on_replaced": "load"}),
        ({"ttl_seconds": 86_400 * 30}, {"ttl": timedelta(days=30)}),
        ({"ttl": timedelta(days=30)}, {"ttl": timedelta(days=30)}),
        ({"ttl": "12h"}, {"ttl": timedelta(hours=12)}),
        ({"continue_on_target_failure": True}, {"continue_on_failure": True}),
        ({"upstream_freshness_secs": 60}, {"upstream_freshness": timedelta(minutes=1)}),
        ({"upstream_freshness": "1d"}, {"upstream_freshness": timedelta(days=1)}),
        ({"connection": "warehouse"}, {"target_connection": "warehouse"}),
    ],
)
def test_both_spellings_mean_the_same(written: dict[str, Any], meant: dict[str, Any]) -> None:
    assert pipeline_keywords(written) == meant


@pytest.mark.parametrize(
    ("keyword", "near"),
    [("compare_colums", "compare_columns"), ("shedule", "schedule"), ("watermark_colum", "watermark_column")],
)
def test_an_unknown_keyword_is_a_type_error_that_names_the_nearest(keyword: str, near: str) -> None:
    with pytest.raises(TypeError, match=f"a pipeline has no keyword '{keyword}'") as caught:
        pipeline_keywords({keyword: 1})
    assert f"did you mean '{near}'?" in str(caught.value)


def test_a_target_has_fewer_keywords_than_a_pipeline() -> None:
    with pytest.raises(TypeError, match="a target has no keyword 'schedule'"):
        target_keywords({"schedule": "0 * * * *"})


@pytest.mark.parametrize(
    ("written", "error", "message"),
    [
        ({"ttl": timedelta(days=1), "ttl_seconds": 1}, ValueError, "two spellings of one option"),
        (
            {"continue_on_failure": True, "continue_on_target_failure": True},
            TypeError,
            "says continue_on_failure twice",
        ),
        ({"incremental_column": "a", "watermark_column": "b"}, ValueError, "name different columns"),
        ({"incremental": True}, ValueError, "needs watermark_column="),
        ({"incremental": "file"}, ValueError, "incremental='file' is not known"),
        ({"ttl": -1}, ValueError, "ttl is negative"),
        ({"lookback": "soon"}, ValueError, "lookback='soon' is not a duration"),
    ],
)
def test_contradictions_are_refused(written: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        pipeline_keywords(written)
    assert isinstance(caught.value, FlowError)


def test_keywords_of_quality_are_keywords_of_pipelines_and_targets() -> None:
    values = {
        "expectations": print,
        "on_quality_failure": "fail",
        "freshness_column": "at",
        "alert_on_quality_warn": True,
    }
    given = {**values, "freshness_sla": "6h"}
    assert pipeline_keywords(given) == target_keywords(given) == {**values, "freshness_sla": timedelta(hours=6)}


@given(st.integers(0, 365_000), st.sampled_from([("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)]))
def test_a_duration_reads_the_same_as_text_number_and_timedelta(amount: int, unit: tuple[str, int]) -> None:
    letter, seconds = unit
    as_number = duration("ttl", amount * seconds)
    assert duration("ttl", f"{amount}{letter}") == as_number == duration("ttl", as_number)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "h",
        "1w",
        "1.5h",
        "-1h",
        True,
        [],
        "1 h",
        float("nan"),
        float("inf"),
        1e13,
        "99999999d",
        "365001d",
        timedelta.max,
    ],
)
def test_anything_else_is_no_duration(value: object) -> None:
    with pytest.raises(ValueError, match="ttl="):
        duration("ttl", value)
