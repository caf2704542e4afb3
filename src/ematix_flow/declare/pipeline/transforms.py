"""What happens to the rows of a load before they are written, as values; the SQL is built in plan.sql."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ematix_flow.errors import DeclareError, DeclareTypeError


@runtime_checkable
class SqlWrap(Protocol):
    """Anything that wraps the rows so far in SQL of its own."""

    def to_sql_wrap(self, inner: str) -> str:
        """Return a query over `inner`, the name of a relation."""


@dataclass(frozen=True, slots=True, init=False)
class DeduplicateBy:
    """Keep one row per key: the first by `order_by`, where NULL comes last unless the order says otherwise."""

    keys: tuple[str, ...]
    order_by: str | None

    def __init__(
        self, *columns: str, keys: tuple[str, ...] | list[str] | str | None = None, order_by: str | None = None
    ) -> None:
        if columns and keys is not None:
            raise DeclareTypeError("deduplicate_by() takes its keys once", hint="deduplicate_by('id') or keys=('id',)")
        chosen = columns or ((keys,) if isinstance(keys, str) else tuple(keys or ()))
        if not chosen:
            raise DeclareError("deduplicate_by() needs at least one key")
        _require_text("deduplicate_by(keys)", *chosen)
        if order_by is not None:
            _require_text("deduplicate_by(order_by=)", order_by)
        object.__setattr__(self, "keys", chosen)
        object.__setattr__(self, "order_by", order_by)


@dataclass(frozen=True, slots=True)
class FilterWhere:
    """Keep the rows for which the expression is true."""

    expression: str

    def __post_init__(self) -> None:
        _require_text("filter_where(expression)", self.expression)


@dataclass(frozen=True, slots=True)
class Limit:
    """Keep at most `n` rows; not of an incremental load, which never reads the others again."""

    n: int

    def __post_init__(self) -> None:
        n: object = self.n
        if not isinstance(n, int) or isinstance(n, bool):
            raise DeclareTypeError(f"limit() takes a whole number, not {n!r}")
        if n < 0:
            raise DeclareError(f"limit() takes a number from 0, not {n}")


@dataclass(frozen=True, slots=True)
class SamplePct:
    """Keep a random share of the rows, from 0 to 1."""

    p: float

    def __post_init__(self) -> None:
        p: object = self.p
        if not isinstance(p, int | float) or isinstance(p, bool):
            raise DeclareTypeError(f"sample_pct() takes a share from 0 to 1, not {p!r}")
        if not 0 <= p <= 1:
            raise DeclareError(f"sample_pct() takes a share from 0 to 1, not {p}")


PreTransform = DeduplicateBy | FilterWhere | Limit | SamplePct | SqlWrap


def check_transforms(entries: object) -> tuple[PreTransform, ...]:
    """Return the entries as a tuple; anything that is no transform is refused."""
    if not isinstance(entries, tuple | list):
        raise DeclareTypeError(f"transforms_pre= takes a list, not {entries!r}")
    for entry in entries:
        if isinstance(entry, type) or not isinstance(entry, PreTransform):
            raise DeclareTypeError(
                f"{entry!r} is not a pre-load transform",
                hint="use deduplicate_by, filter_where, limit, sample_pct, or an object with to_sql_wrap(inner)",
            )
    return tuple(entries)


def _require_text(what: str, *values: object) -> None:
    for value in values:
        if not isinstance(value, str) or not value:
            raise DeclareTypeError(f"{what} takes text, not {value!r}")


deduplicate_by = DeduplicateBy
filter_where = FilterWhere
limit = Limit
sample_pct = SamplePct
