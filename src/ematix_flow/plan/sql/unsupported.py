"""What a dialect cannot express, with the reason; such a shape is evaluated by Spark, which can express everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.declare.pipeline import normalize as n
from ematix_flow.declare.pipeline.regex import has_lazy, has_lookaround

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A reason, and the arguments it holds for."""

    reason: str
    when: Callable[[Any], bool] = lambda _: True


_REGEX = n.RegexReplace

UNSUPPORTED: dict[tuple[type, str], tuple[Unsupported, ...]] = {
    (n.ToTimezone, "mysql"): (
        Unsupported("named zones need tables that a MySQL server may not have", lambda m: m.tz != "UTC"),
    ),
    (_REGEX, "mysql"): (
        Unsupported("MariaDB always replaces every match", lambda m: "g" not in m.flags),
        Unsupported("MySQL and MariaDB write groups differently", lambda m: bool(set("\\$") & set(m.replacement))),
    ),
    (_REGEX, "duckdb"): (Unsupported("DuckDB cannot look ahead or behind", lambda m: has_lookaround(m.pattern)),),
    (_REGEX, "postgres"): (
        Unsupported("PostgreSQL decides about greed once per pattern", lambda m: has_lazy(m.pattern)),
    ),
    (n.ParseNumeric, "duckdb"): (Unsupported("DuckDB holds 38 digits", lambda m: m.precision > 38),),  # noqa: PLR2004
    (n.ParseNumeric, "mysql"): (
        Unsupported("MySQL holds 65 digits, 30 of them decimals", lambda m: m.precision > 64 or m.scale > 29),  # noqa: PLR2004
    ),
}
"""(normaliser, dialect) -> reasons."""


def reason_against(step: object, dialect: str) -> str:
    """Return why the dialect cannot express a step, or an empty text."""
    entries = UNSUPPORTED.get((type(step), dialect), ())
    return next((entry.reason for entry in entries if entry.when(step)), "")
