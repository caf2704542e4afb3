"""The result of a run as the dictionary that callers and the command line read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline import TargetDeclaration
    from ematix_flow.engine.loading import Loaded
    from ematix_flow.records import Counts


def result_of(loaded: Loaded, target: TargetDeclaration) -> dict[str, Any]:
    """Give what a load did: run id, status, path and the counts that belong to its mode."""
    committed = loaded.committed
    result: dict[str, Any] = {"run_id": committed.run_id, "status": "success", "path": loaded.path}
    result |= counts_of(committed.counts, target.write.mode)
    files = loaded.plan.read.files if loaded.plan is not None else None
    if files is not None:
        result |= {"files_loaded": len(files.chosen), "files_known": files.known, "files_replaced": len(files.replaced)}
    if committed.audited is not None:
        result["quality"] = committed.audited.to_dict()
    if committed.replayed:
        result["recovered"] = True
    return result


def counts_of(counts: Counts, mode: str) -> dict[str, int]:
    """Give the counts that belong to a mode, under the names of a result."""
    result = {
        "rows_inserted": counts.inserted,
        "rows_deleted": counts.deleted,
        "rows_rejected": counts.rejected,
    }
    if mode == "merge":
        result |= {"rows_updated": counts.updated, "rows_unchanged": counts.unchanged}
    if mode == "scd2":
        result |= {"rows_closed": counts.closed, "rows_updated": counts.updated, "rows_unchanged": counts.unchanged}
    return result
