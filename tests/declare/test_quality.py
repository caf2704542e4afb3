from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from ematix_flow import (  # noqa: TC001 - read from annotations
    JSON,
    BigInt,
    ManagedTable,
    Target,
    Text,
    TimestampTZ,
    ematix,
    natural_key,
    nullable,
    pk,
)
from ematix_flow.declare.quality.checks import Expectation
from ematix_flow.declare.quality.tester import Tester

if TYPE_CHECKING:
    from ematix_flow.declare.quality.expectations import Quality


class Orders(ManagedTable):
    __schema__ = "mart"
    __tablename__ = "orders"

    id: Annotated[BigInt, pk()]
    code: Annotated[Text, natural_key()]
    amount: Annotated[BigInt, nullable()]
    at: TimestampTZ
    body: Annotated[JSON, nullable()]


NUMBERS = count()
"""A pipeline has a name of its own."""


def declared(mode: str = "append", **options: Any) -> Quality:
    @ematix.pipeline(target=Orders, mode=mode, source_table="raw.orders", name=f"p{next(NUMBERS)}", **options)
    def load() -> None: ...

    return load.pipeline.targets[0].quality


def names(quality: Quality) -> list[str]:
    return [one.name for one in quality.expectations]


def test_without_keywords_nothing_is_expected() -> None:
    quality = declared()
    assert (quality.expectations, quality.on_failure, quality.sla, quality.column) == ((), "warn", None, None)


def test_the_function_is_called_once_and_its_words_become_values() -> None:
    testers: list[Tester] = []

    def expectations(t: Tester) -> None:
        testers.append(t)
        t.column("amount").between(0, 10, severity="warn")
        t.column("code").is_in(["a", "b"])
        t.column("code").regex("^[a-z]+$")
        t.column("amount").exists_in("raw.amounts", "amount")
        t.unique(["code", "at"], severity="fail")
        t.row_count(at_least=1, at_most=5)
        t.freshness("at", within="6h")
        t.sql("even", "amount % 2 = 0")
        t.query("none", "SELECT * FROM rows WHERE amount < 0")
        t.python("mine", lambda rows: len(rows) > 0)

    quality = declared(expectations=expectations, on_quality_failure="reject")
    assert len(testers) == 1
    first, *_ = quality.expectations
    assert first == Expectation("between", "between(amount)", ("amount",), "warn", 0, 10)
    assert quality.expectations[6].within == timedelta(hours=6)
    assert quality.on_failure == "reject"
    assert names(quality)[10:] == ["not_null(id)", "not_null(code)", "not_null(at)", "unique(id)", "unique(code)"]


def test_a_list_of_values_is_taken_too_and_the_table_repeats_none_of_them() -> None:
    t = Tester()
    quality = declared(expectations=[t.column("id").not_null(severity="fail"), t.column("id").unique()])
    assert [one.severity for one in quality.expectations if one.name == "not_null(id)"] == ["fail"]
    assert names(quality).count("unique(id)") == 1


def test_scd2_may_have_a_key_more_than_once() -> None:
    assert not [name for name in names(declared("scd2", expectations=[])) if name.startswith("unique")]


def test_two_expectations_of_one_name_are_told_apart() -> None:
    def twice(t: Tester) -> None:
        t.column("amount").between(0, 90, severity="warn")
        t.column("amount").between(0, 100, severity="fail")

    assert names(declared(expectations=twice))[:2] == ["between(amount)", "between(amount) #2"]


def test_freshness_is_checked_when_there_is_both_a_limit_and_a_column() -> None:
    quality = declared(freshness_sla="6h", freshness_column="at")
    assert (quality.sla, quality.column) == (timedelta(hours=6), "at")
    assert names(quality)[0] == "freshness(at)"
    assert declared(freshness_sla=60).expectations == ()


def test_a_target_of_a_fan_out_says_its_own() -> None:
    class Other(ManagedTable):
        __schema__ = "mart"
        __tablename__ = "other"
        id: Annotated[BigInt, pk()]

    @ematix.pipeline(
        name="fan",
        source_table="raw.orders",
        targets=[
            Target(
                table=Orders, mode="append", expectations=lambda t: t.row_count(at_least=1), on_quality_failure="fail"
            ),
            ematix.target(Other, mode="append"),
        ],
    )
    def fan() -> None: ...

    mine, other = fan.pipeline.targets
    assert mine.quality.on_failure == "fail"
    assert names(mine.quality)[0] == "row_count"
    assert other.quality.expectations == ()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"expectations": lambda t: t.column("amuont")}, KeyError, "did you mean 'amount'"),
        ({"expectations": [Tester().column("amuont").not_null()]}, KeyError, "did you mean 'amount'"),
        ({"expectations": lambda t: t.unique(["id", "cod"])}, KeyError, "did you mean 'code'"),
        ({"expectations": "id"}, TypeError, "takes a function of a Tester"),
        ({"expectations": lambda t: t.column("amount").regex("a")}, ValueError, "regex is for text, string"),
        ({"expectations": lambda t: t.column("code").regex("(?P<a>b)")}, ValueError, "databases read differently"),
        ({"expectations": lambda t: t.column("body").unique()}, ValueError, "'body' is json"),
        ({"expectations": lambda t: t.column("amount").between(None, None)}, TypeError, "has no end"),
        ({"expectations": lambda t: t.column("amount").between(2, 1)}, ValueError, "2 is greater than 1"),
        ({"expectations": lambda t: t.column("amount").between(0, float("nan"))}, ValueError, "that end"),
        ({"expectations": lambda t: t.column("at").between(object(), datetime(2026, 1, 1, tzinfo=UTC))}, TypeError, "not object"),
        ({"expectations": lambda t: t.column("code").is_in("ab")}, TypeError, "a list of values"),
        ({"expectations": lambda t: t.column("code").is_in([])}, ValueError, "allows no value"),
        ({"expectations": lambda t: t.column("code").exists_in("codes", "id")}, ValueError, "not schema.table"),
        ({"expectations": lambda t: t.column("id").not_null(severity="loud")}, ValueError, "is not known"),
        ({"expectations": lambda t: t.row_count()}, TypeError, "at_least= or at_most="),
        ({"expectations": lambda t: t.row_count(at_least=-1)}, ValueError, "smaller than 0"),
        ({"expectations": lambda t: t.row_count(at_least=1, severity="reject")}, ValueError, "no row can be rejected"),
        ({"expectations": lambda t: t.freshness("at", within="soon")}, ValueError, "not a duration"),
        ({"expectations": lambda t: t.freshness("id", within="6h")}, ValueError, "'id' is big_int"),
        ({"expectations": lambda t: t.python("p", 3)}, TypeError, "takes a function"),
        ({"expectations": lambda t: t.sql("", "1 = 1")}, ValueError, "empty"),
        ({"on_quality_failure": "explode"}, ValueError, "is not known"),
        ({"freshness_sla": "-1h"}, ValueError, "not a duration"),
        ({"freshness_sla": -1}, ValueError, "negative"),
        ({"freshness_column": "amount"}, ValueError, "not a point in time"),
        ({"freshness_column": "att"}, KeyError, "did you mean 'at'"),
        ({"alert_on_quality_warn": "yes"}, TypeError, "takes true or false"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_where_it_is_declared(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        declared(**options)
