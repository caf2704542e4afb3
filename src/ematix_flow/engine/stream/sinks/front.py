"""Deduplication in front of a window or a join: a query of its own, whose rows are the range that the next query reads.

A range goes through it under the name that it keeps. So a batch that was interrupted writes the same lines again, and
whoever starts knows by the names which range the next query has not read yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ematix_flow.engine.stream.state.manifest import manifest_of, refuse_missing_lines, write_manifest
from ematix_flow.plan.stream.state import open_windows
from ematix_flow.run.streams.query import StateFolder, StateQuery, damaged, range_number
from ematix_flow.run.streams.ranges import NO_RANGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ematix_flow.engine.stream.state.rows import StateRows
    from ematix_flow.plan.stream.state import StatePlan


class Front:
    """The query that lets the first row of a key through."""

    def __init__(self, spark: SparkSession, following: StateFolder, state: StateRows, plan: StatePlan) -> None:
        self.folder = StateFolder(spark, f"{following.path}/front")
        """Its own state, and the lines that it reads."""
        self._following = following
        self._state = state
        self._query = StateQuery(spark, self.folder, plan, self._apply)

    @property
    def name(self) -> str:
        """Return the range that it has read last."""
        begun = self.folder.last_batch()
        return NO_RANGE if begun is None else self.folder.range_of(begun) or NO_RANGE

    def rejects_of(self, name: str) -> str:
        """Return where rows of a range are that came through and do not fit what follows."""
        return f"{self.folder.path}/rejects/{name}"

    def start(self, read: str) -> None:
        """Start the query; `read` is the range that the next one has read last."""
        name = self.name
        if name != read and range_number(name) != range_number(read) + 1:
            raise damaged(self.folder.path, f"it is at range {name}, and what follows it at {read}")
        manifest = manifest_of(self.folder, name)
        if manifest is not None and self.folder.last_batch() != self.folder.last_done():
            refuse_missing_lines(self.folder, name, manifest)
        self._query.start()

    def advance(self, name: str) -> None:
        """Let the query read a range, and return when the next one can read what came of it."""
        self._query.advance(name)

    def stop(self) -> None:
        """Stop the query; its state stays."""
        self._query.stop()

    def _apply(self, results: DataFrame, batch: int, name: str) -> None:
        """Write the rows that a batch lets through as the lines of the same range for the next query."""
        cached = results.persist()
        try:
            cached.count()
            # What follows from a range without new lines only forgets keys.
            if name == NO_RANGE or self.folder.range_of(batch - 1) == name:
                return
            manifest = manifest_of(self.folder, name)
            assert manifest is not None  # noqa: S101 - written before the range was read
            passed = self._state.pass_on(cached, self._following, name, manifest, self.rejects_of(name))
            following = replace(
                manifest,
                schemas=passed.schemas,
                rejects=manifest.rejects or passed.rejects,
                files=self._following.sizes(f"{self._following.input}/{name}"),
                windows=open_windows([*manifest.windows, *passed.windows], manifest.watermark),
            )
            write_manifest(self._following, name, following)
        finally:
            cached.unpersist()
