"""What the rows of a load have to satisfy before they become visible, as frozen values; nothing is measured here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.quality.checks import (
    FAIL,
    FRESHNESS,
    NOT_NULL,
    REJECT,
    UNIQUE,
    WARN,
    Expectation,
    check_expectation,
)
from ematix_flow.declare.quality.tester import Tester
from ematix_flow.declare.values import one_of, switch
from ematix_flow.errors import DeclareError, DeclareTypeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from ematix_flow.declare.pipeline.write import Write
    from ematix_flow.declare.table.schema import Table

POLICIES = (WARN, REJECT, FAIL)


@dataclass(frozen=True, slots=True)
class Quality:
    """What a target requires of its rows and of their age."""

    expectations: tuple[Expectation, ...] = ()
    on_failure: str = WARN
    """What becomes of a load in which an expectation fails that sets nothing itself."""
    sla: timedelta | None = None
    """How old the newest load, or the newest value of `column`, may be."""
    column: str | None = None
    alert_on_warn: bool = False
    dialect: str = ""
    """What the user's SQL is written in, where that is not the target's: a stand-in for tests."""


def quality_of(options: Mapping[str, Any], table: Table, write: Write) -> Quality:
    """Return the expectations in the keywords of a target; the function of `expectations=` is called here, once."""
    policy = options.get("on_quality_failure") or WARN
    one_of("on_quality_failure", policy, POLICIES)
    column, sla = options.get("freshness_column"), options.get("freshness_sla")
    if column is not None:
        _check_freshness_column(table, column)
    declared = _declared(options.get("expectations"), table)
    is_requested = options.get("expectations") is not None or (column is not None and sla is not None)
    if column is not None and sla is not None:
        declared.append(Expectation(FRESHNESS, f"{FRESHNESS}({column})", (column,), within=sla))
    for expectation in declared:
        check_expectation(expectation, table)
    expectations = _named([*declared, *_of_table(table, write, declared)] if is_requested else [])
    alert = switch("alert_on_quality_warn", options.get("alert_on_quality_warn") or False)
    return Quality(expectations, policy, sla, column, alert)


def _check_freshness_column(table: Table, name: object) -> None:
    if not isinstance(name, str):
        message = f"freshness_column= takes the name of a column, not {type(name).__name__}"
        raise DeclareTypeError(message)
    kind = table.column(name).type.kind
    if kind not in ("date", "timestamp", "timestamp_tz"):
        message = f"freshness_column={name!r} is {kind}, not a point in time"
        raise DeclareError(message, hint="name a column of type Date, Timestamp or TimestampTZ.")


def _declared(value: Any, table: Table) -> list[Expectation]:
    if value is None:
        return []
    if callable(value):
        tester = Tester(table)
        value(tester)
        return list(tester.expectations)
    if isinstance(value, list | tuple) and all(isinstance(one, Expectation) for one in value):
        return list(value)
    message = f"expectations= takes a function of a Tester or a list of expectations, not {type(value).__name__}"
    raise DeclareTypeError(message, hint='for example expectations=lambda t: t.column("id").not_null().')


def _of_table(table: Table, write: Write, declared: Iterable[Expectation]) -> list[Expectation]:
    """Return what the table declares of its own rows: columns without NULL, and keys; nothing declared is repeated."""
    implied = [Expectation(NOT_NULL, f"{NOT_NULL}({c.name})", (c.name,)) for c in table.columns if not c.nullable]
    # scd2 keeps several versions of one key, and by event time one load may bring them all.
    groups = () if write.mode == "scd2" else (table.primary_key, table.natural_keys or (), *table.unique_constraints)
    keys = dict.fromkeys(tuple(group) for group in groups if group)
    implied += [Expectation(UNIQUE, f"{UNIQUE}({', '.join(names)})", names) for names in keys]
    known = {(one.kind, one.columns) for one in declared}
    return [one for one in implied if (one.kind, one.columns) not in known]


def _named(expectations: list[Expectation]) -> tuple[Expectation, ...]:
    """Return the expectations, each under a name that no other one has."""
    counts: dict[str, int] = {}
    result = []
    for one in expectations:
        counts[one.name] = counts.get(one.name, 0) + 1
        number = counts[one.name]
        result.append(one if number == 1 else replace(one, name=f"{one.name} #{number}"))
    return tuple(result)
