"""Training sets: a spine with the values of several views, each as of its row's own instant, as one frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ematix_flow.engine.features.frames import check_frame, frame_of
from ematix_flow.engine.features.joins import in_order, join, joined_views, views_of
from ematix_flow.engine.features.manifest import write_manifest
from ematix_flow.engine.features.spine import spine_table

if TYPE_CHECKING:
    from collections.abc import Sequence


def training_set(
    conn: Any,
    *,
    spine: Any,
    feature_views: Sequence[Any],
    columns: Any = None,
    prefer: str = "auto",
    manifest: Any = None,
) -> Any:
    """Return the spine with the values of every view as of each row's instant, as one frame.

    `columns` names the columns of each view, as a dict by view, or of all of them, as one list. A path in `manifest`
    gets what is needed to build the same set again.
    """
    library = check_frame(prefer)
    views = views_of(feature_views)
    rows = in_order(spine_table(spine, views))
    joined = joined_views(views, columns, rows.column_names)
    table = join(conn, rows, joined)
    if manifest is not None:
        write_manifest(manifest, conn, rows, joined, table)
    return frame_of(table, library)
