"""Tables as targets of streams of lake tables: the rows of a commit go through the load path as a frame of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ematix_flow.connect.lake.stream_source import LakeStream
from ematix_flow.engine.batch.source import OpenSource
from ematix_flow.engine.spark.session import session_for
from ematix_flow.engine.stream.sinks.table import TableSink, declaration_of
from ematix_flow.engine.stream.sources import lake_frame
from ematix_flow.plan.source import SourceValue

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.plan.steps import OffsetRange


@dataclass
class LakeTableSink(TableSink):
    """A table that takes the rows of another one."""

    def exact(self, offset_range: OffsetRange) -> tuple[TargetDeclaration, OpenSource] | None:
        """Return the rows as Spark reads them; None where SQL of the stream, or the rows themselves, form the table."""
        table, source = self.target.declared_table, self.context.source
        if table is None or self.context.rows.transforms or not isinstance(source, LakeStream):
            return None
        frame = lake_frame(source, offset_range, session_for(self.context.options.load))
        opened = OpenSource(SourceValue(source.name, frame=frame), source.name, span=offset_range)
        return declaration_of(self.context.stream, self.target, table), opened
