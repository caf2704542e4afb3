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


def run_ids_of(result: Any) -> tuple[str, ...]:
    """Give the ids of the loads of a result, which of several targets has one each."""
    if not isinstance(result, dict):
        return ()
    by_target = result.get("results", result)
    each = [result, *(by_target.values() if isinstance(by_target, dict) else ())]
    return tuple(str(one["run_id"]) for one in each if isinstance(one, dict) and "run_id" in one)


def errors_in(result: Any) -> dict[str, str]:
    """Give what went wrong with targets that others did not wait for."""
    errors = result.get("errors") if isinstance(result, dict) and result.get("status") == "failed" else None
    return errors if isinstance(errors, dict) else {}
