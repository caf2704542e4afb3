"""Training sets: a spine with the values of several views, each as of its row's own instant, as one frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.connect.types.frames import is_spark_frame
from ematix_flow.engine.features.engines import join_plan, joined_as_planned
from ematix_flow.engine.features.frames import check_frame, frame_of
from ematix_flow.engine.features.joins import in_order, joined_views, views_of
from ematix_flow.engine.features.manifest import manifest_file, write_manifest
from ematix_flow.engine.features.on_spark import joined_frame
from ematix_flow.engine.features.spine import check_columns, ordered_names, spine_table
from ematix_flow.plan.training_join import AUTO, DATABASE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ematix_flow.declare.table.schema import Table
    from ematix_flow.plan.training_join import TrainingPlan


def training_set(  # noqa: PLR0913 - the public keywords
    conn: Any,
    *,
    spine: Any,
    feature_views: Sequence[Any],
    columns: Any = None,
    prefer: str = AUTO,
    manifest: Any = None,
    engine: str = AUTO,
) -> Any:
    """Return the spine with the values of every view as of each row's instant, as one frame.

    `columns` names the columns of each view, as a dict by view, or of all of them, as one list. A path in `manifest`
    gets what is needed to build the same set again. `engine` is who joins: the database or Spark, by size if it is `auto`.
    """
    library = check_frame(prefer)
    file = None if manifest is None else manifest_file(manifest)
    views = views_of(feature_views)
    rows = _rows(spine, views)
    plan = join_plan(conn, rows, views, engine)
    if is_spark_frame(rows) and (plan.engine == DATABASE or file is not None):
        rows = in_order(spine_table(rows, views))
    names = rows.columns if is_spark_frame(rows) else rows.column_names
    joined = joined_views(views, columns, ordered_names(names))
    if plan.engine != DATABASE and library == "spark" and file is None:
        return joined_frame(conn, rows, joined)
    table = joined_as_planned(plan, conn, rows, joined)
    if file is not None:
        write_manifest(file, conn, rows, joined, table, plan)
    return frame_of(table, library)


def preview_training_set(conn: Any, *, spine: Any, feature_views: Sequence[Any], engine: str = AUTO) -> TrainingPlan:
    """Return who would join a training set, and why; only sizes are read."""
    views = views_of(feature_views)
    return join_plan(conn, _rows(spine, views), views, engine)


def _rows(spine: Any, views: Sequence[Table]) -> Any:
    """Return a spine as an Arrow table; a frame of Spark stays where it is."""
    if not is_spark_frame(spine):
        return in_order(spine_table(spine, views))
    check_columns(spine.columns, views)
    return spine
