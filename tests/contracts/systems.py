"""Every database that a load can go into, as one table: adding a system here puts it through all contract tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ematix_flow.connect.registry import open_database
from ematix_flow.declare.connection.registry import connection_from_fields
from tests.lakes.targets import bucket_of, lake_fields

if TYPE_CHECKING:
    from ematix_flow.connect.base.database import Database
    from ematix_flow.declare.connection.registry import Connection


@dataclass(frozen=True)
class System:
    """A kind of database, the fixture that gives an empty one, and what it cannot hold."""

    kind: str
    fixture: str
    field: str = "path"
    server: bool = False
    infinity: bool = True
    nul: bool = True
    schemas_outlive: bool = False
    """True where a schema is a database of its own, which outlives the one of the test."""

    @property
    def label(self) -> str:
        """Return the word for this system in the name of a test."""
        return self.kind

    def fields(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        """Return the settings that lead to this test's empty database of this kind."""
        return {"kind": self.kind, self.field: str(request.getfixturevalue(self.fixture))}

    def connect(self, request: pytest.FixtureRequest) -> Connection:
        """Return the connection to this test's empty database of this kind."""
        return connection_from_fields("target", self.fields(request))

    def open(self, request: pytest.FixtureRequest) -> Database:
        """Return this test's empty database of this kind."""
        return open_database(self.connect(request))


SYSTEMS = (
    System("duckdb", "duckdb_path"),
    System("sqlite", "sqlite_path"),
    System("postgres", "postgres_url", field="url", server=True, nul=False),
    System("mysql", "mysql_url", field="url", server=True, infinity=False, schemas_outlive=True),
)


@dataclass(frozen=True)
class Folder(System):
    """A folder of files of one format, here or in a bucket, with a DuckDB file beside it for what is loaded from."""

    format: str = "parquet"

    @property
    def label(self) -> str:
        """Return the format, and the bucket."""
        return f"files-{self.format}{'-s3' if self.server else ''}"

    def fields(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        """Return the settings that lead to this test's folder, which does not exist yet."""
        if self.server:
            location = {"prefix": "lake", **bucket_of(request)}
        else:
            location = {"path": str(request.getfixturevalue("tmp_path") / "lake")}
        return {"kind": self.kind, "format": self.format, **location}


FOLDERS = tuple(Folder("object_store_local", "duckdb_path", format=f) for f in ("parquet", "csv", "json_lines", "orc"))
BUCKET = Folder("object_store_s3", "duckdb_path", server=True)
FILES = (FOLDERS[0], BUCKET)
"""The format of most tests, in both places."""


@dataclass(frozen=True)
class Lake(System):
    """Tables of a lake that Spark reads and writes, in a folder or a bucket, with a DuckDB file for what is loaded from."""

    variant: str = ""

    @property
    def label(self) -> str:
        """Return the format and the place."""
        return self.variant

    def fields(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        """Return the settings that lead to this test's lake, which does not exist yet."""
        bucket = bucket_of(request) if self.server else None
        return lake_fields(self.variant, request.getfixturevalue("tmp_path"), bucket)


LAKES = (
    Lake("delta", "duckdb_path", variant="delta_local"),
    Lake("delta", "duckdb_path", variant="delta_s3", server=True),
    Lake("iceberg", "duckdb_path", variant="iceberg"),
    Lake("iceberg", "duckdb_path", variant="iceberg_s3", server=True),
)

_NO_MERGE = "a table of files can be appended to and replaced; rows in it are never looked up"
_NO_CONSTRAINTS = "files have no constraints, so nothing refuses a key that is there already"
ABOUT_CONSTRAINTS = (
    "test_a_slot_that_failed_is_loaded_by_its_next_attempt_under_the_same_run_id",
    "test_a_constraint_of_the_target_refuses_the_load_once",
    "test_a_key_that_is_there_already_fails_the_whole_load_once",
    "test_a_load_that_fails_leaves_the_watermark",
    "test_a_truncate_that_fails_leaves_the_old_rows",
    "test_of_two_rows_that_exclude_each_other_one_is_loaded",
    "test_rows_that_a_constraint_refuses_can_be_rejected",
)
GAPS = {
    "test_merge": _NO_MERGE,
    "test_last_row": _NO_MERGE,
    "test_scd2_event_time": _NO_MERGE,
    "test_scd2_load_time": _NO_MERGE,
    "test_scd2_order": _NO_MERGE,
    "test_feature_views": _NO_MERGE,
    "test_closed_versions_count_as_updated_rows_in_the_history": _NO_MERGE,
    "test_evolve_widens_types_or_refuses_before_a_row_moves": _NO_MERGE,
    "test_hostile_columns_work_in_every_mode": _NO_MERGE,
    "test_hostile_table_names_work": _NO_MERGE,
    "test_look_back_reads_a_tail_again_and_finds_late_rows": _NO_MERGE,
    "test_look_back_counts_fractions_of_a_second": _NO_MERGE,
    "test_look_back_from_a_number_counts_in_seconds": _NO_MERGE,
    "test_null_in_the_watermark_column_can_be_merged_in_every_run": _NO_MERGE,
    "test_a_source_of_nulls_only_is_loaded_too": _NO_MERGE,
    "test_staging_is_gone_after_a_load": _NO_MERGE,
    "test_the_history_has_a_row_per_run_with_its_counts": _NO_MERGE,
    "test_the_ledger_has_a_token_per_load": _NO_MERGE,
    "test_the_run_log_names_what_the_target_holds": _NO_MERGE,
    "test_two_slots_of_two_pipelines_do_not_share_a_token": _NO_MERGE,
    "test_sharing": _NO_MERGE,
    "test_a_hostile_name_passes_through_spark_too": _NO_MERGE,
    "test_a_source_that_went_backwards_loads_nothing_and_keeps_the_watermark": _NO_MERGE,
    "test_another_watermark_column_starts_from_the_beginning": _NO_MERGE,
    "test_a_merge_begins_again_where_its_watermark_is_gone": _NO_MERGE,
    "test_the_tables_have_the_documented_columns_in_the_documented_places": "they are tables of the state, not of a database",
    "test_a_replayed_reject_has_every_value_that_the_source_had": "it drops the table, and files are no table to drop",
    "test_quality": "a folder of files answers no SQL, so expectations are refused for it; test_file_tables.py sees that",
    **dict.fromkeys(ABOUT_CONSTRAINTS, _NO_CONSTRAINTS),
}
"""Tests of flows, or whole modules of them, that say nothing about folders of files, each with the reason."""

_NO_LAKE_CONSTRAINTS = "a lake table has no constraints, so nothing refuses a key that is there already"
_ABOUT_THE_SOURCE = "it is about the source, and that of a lake is a DuckDB file"
LAKE_GAPS = {
    "test_rows_that_begin_within_a_row_of_their_group_are_replaced_by_it": "backfills of sessions are refused there",
    **dict.fromkeys(ABOUT_CONSTRAINTS, _NO_LAKE_CONSTRAINTS),
    "test_a_merge_that_moves_a_key_onto_another_is_refused_whole": _NO_LAKE_CONSTRAINTS,
    "test_without_continue_the_first_failure_stops_and_a_retry_completes": _NO_LAKE_CONSTRAINTS,
    "test_with_continue_the_others_are_loaded_and_a_retry_mends_the_one_that_failed": _NO_LAKE_CONSTRAINTS,
    "test_every_target_remembers_for_itself_how_far_it_came": _NO_LAKE_CONSTRAINTS,
    "test_quality": "each takes seconds there; tests/lakes/test_quality.py measures the same",
    "test_a_target_whose_watermark_another_one_took_is_refused_with_a_way_out": "each lake table has a watermark of its own",
    "test_a_replayed_reject_has_every_value_that_the_source_had": "it drops the table by the SQL of a database",
    "test_values_are_compared_in_the_sources_own_precision": _ABOUT_THE_SOURCE,
    "test_floating_point_numbers_are_compared_as_they_are": _ABOUT_THE_SOURCE,
    "test_floating_point_watermarks_of_earlier_versions_go_on": _ABOUT_THE_SOURCE,
    "test_long_decimals_keep_every_digit_or_are_refused": _ABOUT_THE_SOURCE,
}
"""Tests of flows that say nothing about lake tables, each with the reason."""

DELTA_GAPS = {
    "test_evolve_widens_types_or_refuses_before_a_row_moves": "no column of a Delta table is altered; other tests see it refuse",
    "test_identifiers": "without its column mapping Delta takes no blank, comma, semicolon or brace in a column's name",
}


_BELOW_FLOWS = (
    "it speaks to the parts of a database, or loads without Spark: neither a folder nor a lake works that way"
)
_BELOW_REPLAY = (
    "tests/lakes/test_quality.py and tests/engine/test_replayed_files.py replay rejects of lakes and of files"
)
DATABASES_ONLY = {
    "test_database": f"{_BELOW_FLOWS}; tests/connect holds the parts of both to their own promises",
    "test_modes": f"{_BELOW_FLOWS}; flows load in every mode, and tests/lakes/test_modes.py compares lakes with PostgreSQL",
    "test_differential": "thousands of loads; tests/lakes/test_modes.py makes such histories on lakes",
    "test_scd2_order": "hundreds of loads; tests/lakes/test_modes.py gives lakes events out of order",
    "test_replay": f"it is about databases as sources and what they refuse; {_BELOW_REPLAY}",
}
"""Whole modules about databases, each with the reason and with what tells the same of lakes."""


def lakes_for(names: set[str]) -> list[Lake]:
    """Return the lakes that a test of flows runs on, by its name and its module's."""
    gaps = {"delta": DATABASES_ONLY | LAKE_GAPS | DELTA_GAPS, "iceberg": DATABASES_ONLY | LAKE_GAPS}
    return [lake for lake in LAKES if not names & set(gaps[lake.kind])]


GAP_MODES = ("merge", "scd1", "scd2", "events")

SCHEMAS = ("analytics", "main", "hist")
"""Schemas that contract tests may use."""


def parameter(system: System, *markers: pytest.MarkDecorator) -> Any:
    """Return a system as a parameter of tests."""
    return pytest.param(system, id=system.label, marks=[*markers, *([pytest.mark.service] if system.server else [])])


PARAMETERS = [parameter(system) for system in SYSTEMS]


def only(*kinds: str) -> pytest.MarkDecorator:
    """Let a test run on these systems: the others cannot hold what it is about."""
    chosen = [parameter for parameter in PARAMETERS if parameter.id in kinds]
    return pytest.mark.parametrize("system", chosen, indirect=True)
