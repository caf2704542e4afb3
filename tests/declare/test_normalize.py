from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow import normalize as n
from ematix_flow import transforms
from ematix_flow.declare.pipeline.datetime_format import Presence, read_format
from ematix_flow.declare.pipeline.regex import check_pattern, has_lazy, has_lookaround
from ematix_flow.declare.pipeline.transforms import check_transforms

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD: list[Callable[[], object]] = [
    lambda: n.replace("a", ""),
    lambda: n.regex_replace("[^a-z]+", "", "gi"),
    lambda: n.truncate(0),
    lambda: n.parse_timestamp("YYYY-MM-DD HH24:MI:SS"),
    lambda: n.parse_timestamp(formats=["YYYY-MM-DD", "MM/DD/YYYY"], on_failure="default", default="2026-01-01"),
    lambda: n.parse_date("DD.MM.YYYY", on_failure="error"),
    lambda: n.to_timezone("Europe/Berlin"),
    lambda: n.date_trunc("WEEK"),
    lambda: n.parse_int("default", 0),
    lambda: n.parse_numeric(10, 2),
    lambda: n.clamp(low=0, high=1.5),
    lambda: n.not_null_or(datetime(2026, 1, 1, tzinfo=UTC)),
    lambda: n.default(date(2026, 1, 1)),
    lambda: n.nullif("x"),
]


@pytest.mark.parametrize("create", GOOD)
def test_normalisers_are_values(create: Callable[[], object]) -> None:
    assert create() == create()
    assert hash(create()) == hash(create())


BAD: list[tuple[Callable[[], object], type[Exception]]] = [
    (lambda: n.replace("", "x"), ValueError),
    (lambda: n.replace(1, "x"), TypeError),  # type: ignore[arg-type]
    (lambda: n.regex_replace("(", "x"), ValueError),
    (lambda: n.regex_replace("a", "x", "gm"), ValueError),
    (lambda: n.truncate(-1), ValueError),
    (lambda: n.truncate("3"), TypeError),  # type: ignore[arg-type]
    (lambda: n.parse_timestamp("YYYY-MM-DD", formats=("YYYY",)), ValueError),
    (lambda: n.parse_timestamp(formats=()), ValueError),
    (lambda: n.parse_timestamp(formats=("YYYY", "YYYY-MM"), on_failure="error"), ValueError),
    (lambda: n.parse_date("MM/DD"), ValueError),
    (lambda: n.parse_int("nul"), ValueError),
    (lambda: n.parse_int("default"), ValueError),
    (lambda: n.parse_int(default=1), ValueError),
    (lambda: n.parse_numeric(2, 3), ValueError),
    (lambda: n.round(-1), ValueError),
    (lambda: n.round(1.5), TypeError),  # type: ignore[arg-type]
    (lambda: n.clamp(None, 1), ValueError),  # type: ignore[arg-type]
    (lambda: n.default(None), ValueError),  # type: ignore[arg-type]
    (lambda: n.default([1]), ValueError),  # type: ignore[arg-type]
    (lambda: n.default(float("nan")), ValueError),
    (lambda: n.parse_bool(truthy="yes"), TypeError),  # type: ignore[arg-type]
    (lambda: n.to_timezone("Mars/Olympus"), ValueError),
    (lambda: n.to_timezone("../etc/passwd"), ValueError),
    (lambda: n.date_trunc("fortnight"), ValueError),
    (lambda: n.sql(3), TypeError),  # type: ignore[arg-type]
    (n.deduplicate_by, ValueError),
    (lambda: n.deduplicate_by("a", keys=("b",)), TypeError),
    (lambda: n.deduplicate_by(keys=(1,)), TypeError),  # type: ignore[arg-type]
    (lambda: n.limit(-1), ValueError),
    (lambda: n.limit(True), TypeError),
    (lambda: n.sample_pct(1.5), ValueError),
    (lambda: n.sample_pct("x"), TypeError),  # type: ignore[arg-type]
    (lambda: n.filter_where(""), TypeError),
]


@pytest.mark.parametrize(("create", "error"), BAD)
def test_impossible_arguments_are_refused(create: Callable[[], object], error: type[Exception]) -> None:
    with pytest.raises(error):
        create()


def test_both_spellings_of_deduplicate_by() -> None:
    assert n.deduplicate_by("a", "b", order_by="c") == transforms.deduplicate_by(keys=["a", "b"], order_by="c")
    assert n.deduplicate_by(keys="a").keys == ("a",)


def test_any_object_that_wraps_sql_is_a_transform() -> None:
    class Wrap:
        def to_sql_wrap(self, inner: str) -> str:
            return inner

    wrap: Any = Wrap()
    assert check_transforms([n.limit(1), wrap]) == (n.limit(1), wrap)
    for wrong in ("c > 1", Wrap, 3):
        with pytest.raises(TypeError, match="pre-load transform"):
            check_transforms([wrong])
    with pytest.raises(TypeError, match="list"):
        check_transforms("c > 1")


def test_formats_are_pieces_of_fixed_width() -> None:
    parts = read_format("DD.MM.YYYY hh24:mi:ss.msOF")
    assert [parts.start(t) for t in ("DD", "MM", "YYYY", "HH24", "MI", "SS")] == [1, 4, 7, 12, 15, 18]
    assert (parts.fraction, parts.offset, parts.width) == (Presence.REQUIRED, Presence.REQUIRED, 19)


@pytest.mark.parametrize(
    "text", ["", "MM", "YYYY-DD", "YYYY-MM-DD HH:MI", "YYYY YYYY", "OF YYYY", "YYYY-Mon-DD", "YYYY^", "HH24:MI"]
)
def test_formats_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="format"):
        read_format(text)


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?i)a", "(?P<x>a)", "a++", r"\p{L}", r"[\S]", "[[:nope:]]", "(?<n>a)"])
def test_patterns_that_databases_read_differently_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        check_pattern(pattern)


def test_patterns_tell_what_they_need() -> None:
    assert has_lookaround("a(?=b)")
    assert has_lookaround("(?<!a)b")
    assert not has_lookaround("(?:a)[(?=]")
    assert has_lazy("a+?")
    assert not has_lazy("a+b?[+?]")
