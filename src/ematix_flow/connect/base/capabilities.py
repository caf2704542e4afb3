"""What a system can do, as data; no system is queried here."""

from __future__ import annotations

from dataclasses import dataclass

ALL_MODES = ("append", "truncate", "merge", "scd2", "cdc")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The dates and the instants that a system can store, counted from 1970, and the years for people."""

    days: tuple[int, int]
    micros: tuple[int, int]
    of_dates: str
    of_instants: str


FOUR_DIGITS = TimeRange(
    (-719_162, 2_932_896), (-62_135_596_800_000_000, 253_402_300_799_999_999), "1 and 9999", "1 and 9999"
)
"""What is written as text: of a year with more or fewer digits the text has another meaning, or none."""

FINITE = TimeRange((2 - 2**31, 2**31 - 2), (2 - 2**63, 2**63 - 2), "5877642 BC and 5881580", "290308 BC and 294246")
"""What files count from 1970: databases that know infinite times count the first and the last numbers for them."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a system can do, as data that the planner and the documents read."""

    modes: tuple[str, ...] = ()
    adds_files: bool = False
    """Staged files can become part of a table as they are, where the table has no partitions and nothing of its own."""
    rewrites: str = ""
    """Why a lake's engine writes staged rows again, where its tables never take files."""
    source: bool = False
    guarantee: str = ""
    """The delivery guarantee, in one sentence for the documents."""
    transactional_ddl: bool = False
    enforces_types: bool = True
    """False where the database itself would take a value outside the declared type."""
    float_bits: bool = True
    """True where SQL can return the bits of a float, which the row hash requires."""
    constraints: bool = True
    """True where the system itself keeps keys unique."""
    rolls_back: bool = True
    """False where a change of rows is final at once, so that a simulation may only count."""
    stages_ahead: bool = False
    """True where rows can be staged while another load commits."""
    reports_merges: bool = False
    """True where a MERGE answers with the rows it inserted, updated and deleted."""
    answers_sql: bool = True
    """False where a table is a list of files that tasks write whole, and its rows cannot be queried."""
    partition_transforms: tuple[str, ...] | None = None
    """What partitions can be made of besides columns; None where tables have no partitions."""
    cannot_store: tuple[str, ...] = ()
    """Values of a declared type it cannot store: nul (in text), nan, infinity, far_instant, empty_partition."""
    times: TimeRange | None = None
    """The dates and times it can store, where they are fewer than rows can carry."""
    max_character: str = "\U0010ffff"
    """The last character of Unicode that the name of a table or a column may have."""
