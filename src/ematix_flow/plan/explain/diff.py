"""What a staged load would change in its target, as data and as lines of text; it queries nothing."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ematix_flow.plan.explain.text import LABEL, line
from ematix_flow.records import ROW_COUNTS, Counts

if TYPE_CHECKING:
    from collections.abc import Iterator

ARROW = " -> "
_PLAIN = re.compile(r"[^\s,='\"]+( [^\s,='\"]+)*")
"""Text that needs no quotes to be distinguished from what is around it."""
LONGEST = 60
"""Longer values are cut in text; JSON has all of them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One key that would change: its old and new values by column, where there are any."""

    kind: str
    key: dict[str, Any]
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """What a load would change in one target."""

    table: str
    mode: str
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    columns: tuple[tuple[str, int], ...] = ()
    """Of how many changed keys each column changes; columns that never do are left out."""
    samples: tuple[Sample, ...] = ()
    counts: Counts = field(default_factory=Counts)
    """What the load will report when it is applied."""
    statements: tuple[str, ...] = ()
    """How the table is created or widened first."""
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {
            "table": self.table,
            "mode": self.mode,
            "added": self.added,
            "changed": self.changed,
            "removed": self.removed,
            "unchanged": self.unchanged,
            "rejected": self.counts.rejected,
            "columns": dict(self.columns),
            "samples": [asdict(sample) for sample in self.samples],
            "rows": {f"rows_{name}": getattr(self.counts, name) for name in ROW_COUNTS},
            "statements": list(self.statements),
            "notes": list(self.notes),
        }


def diff_lines(diff: Diff) -> Iterator[str]:
    """Return the difference for people."""
    yield f"target {diff.table}, {diff.mode}"
    for statement in diff.statements:
        first, *remaining = statement.splitlines()
        yield line("first", first)
        yield from (f"{'':<{LABEL + 3}}{text}" for text in remaining)
    totals = ", ".join(f"{getattr(diff, kind):,} {kind}" for kind in ("added", "changed", "removed", "unchanged"))
    yield line("rows", f"{totals}, {diff.counts.rejected:,} rejected")
    if diff.columns:
        yield line("columns", ", ".join(f"{name} {rows:,}" for name, rows in diff.columns))
    yield from (line("note", note) for note in diff.notes)
    for sample in diff.samples:
        yield line({"added": "+", "changed": "~"}.get(sample.kind, "-"), _sample_text(sample))


def _sample_text(sample: Sample) -> str:
    key = ", ".join(f"{name}={_format_value(value)}" for name, value in sample.key.items())
    old, new = sample.old or {}, sample.new or {}
    if sample.kind == "changed":
        pairs = [
            f"{name}: {_format_value(old.get(name))}{ARROW}{_format_value(new.get(name))}"
            for name in new or old
            if old.get(name) != new.get(name)
        ]
        return f"{key}  {', '.join(pairs)}"
    return f"{key}  {', '.join(f'{name}={_format_value(value)}' for name, value in (new or old).items())}".strip()


def _format_value(value: Any) -> str:
    if value is None:
        return "NULL"
    text = str(value)
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value == "NULL"):
        text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
