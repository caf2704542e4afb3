"""What a load has done, and the result of a run as the dictionary that callers and the command line read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.config.redact import redact, redacted
from ematix_flow.errors import RunError
from ematix_flow.plan.steps import NO_ENGINE

if TYPE_CHECKING:
    from ematix_flow.declare.pipeline.pipeline import TargetDeclaration
    from ematix_flow.plan.steps import TargetPlan
    from ematix_flow.records import Committed, Counts


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One target after its load."""

    plan: TargetPlan | None
    committed: Committed
    path: str

    @property
    def engine(self) -> str:
        """Return the engine that moved the rows; empty where an earlier attempt had done so."""
        return NO_ENGINE if self.plan is None else self.plan.stage.engine

    @property
    def engine_reason(self) -> str:
        """Return why it was that one."""
        return "an earlier run had committed the load" if self.plan is None else self.plan.stage.by.reason


def result_of(loaded: LoadResult, target: TargetDeclaration) -> dict[str, Any]:
    """Return what a load did: run id, status, path and the counts that belong to its mode."""
    committed = loaded.committed
    result: dict[str, Any] = {
        "run_id": committed.run_id,
        "status": "success",
        "path": loaded.path,
        "engine": loaded.engine,
    }
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
    """Return the counts that belong to a mode, under the names of a result."""
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


MAX_RESULT_CHARACTERS = 100_000
"""How long a result may be in the run log; of a longer one only the counts are stored."""


def result_to_text(result: Any) -> str:
    """Return a result as the text that a run log stores: JSON without secrets, of bounded length."""
    for short in (result, _only_counts(result)):
        text = _as_json(short)
        if 0 < len(text) <= MAX_RESULT_CHARACTERS:
            return text
    return _as_json({"status": "success"})


def _as_json(value: Any) -> str:
    """Return a value as JSON; nothing when it cannot be written so, as with keys that are no text."""
    try:
        return json.dumps(redacted(value), default=lambda one: redact(str(one)))
    except (TypeError, ValueError, RecursionError):
        return ""


def result_from_text(text: str) -> Any:
    """Return the result that a run log stored, marked as one that an earlier run has loaded."""
    result = json.loads(text)
    for one in _loads_in(result).values():
        one["recovered"] = True
    return result


def loaded_in(result: Any) -> str:
    """Return what the loads of a result have changed, as text."""
    changes = []
    for name, one in _loads_in(result).items():
        counts = [f"{value:,} {key.removeprefix('rows_')}" for key, value in _counts(one).items() if value]
        changes.append(f"{name}: {', '.join(counts)}" if name and counts else name or ", ".join(counts))
    return "; ".join(filter(None, changes)) or "nothing to change"


def _only_counts(result: Any) -> Any:
    loads: dict[str, Any] = {
        name: {key: one[key] for key in _NAMED if key in one} | _counts(one) for name, one in _loads_in(result).items()
    }
    return loads.get("") or loads


def _counts(load: dict[str, Any]) -> dict[str, int]:
    return {key: value for key, value in load.items() if key.startswith("rows_") and isinstance(value, int)}


_NAMED = ("run_id", "status", "path", "engine")


def _loads_in(result: Any) -> dict[str, dict[str, Any]]:
    """Return the loads of a result by target; the only one of a pipeline with one target has no name."""
    if not isinstance(result, dict):
        return {}
    if "run_id" in result:
        return {"": result}
    return {name: one for name, one in result.items() if isinstance(one, dict) and "run_id" in one}


def run_ids_of(result: Any) -> tuple[str, ...]:
    """Return the ids of the loads of a result, which of several targets has one each."""
    if not isinstance(result, dict):
        return ()
    by_target = result.get("results", result)
    each = [result, *(by_target.values() if isinstance(by_target, dict) else ())]
    return tuple(str(one["run_id"]) for one in each if isinstance(one, dict) and "run_id" in one)


def errors_in(result: Any) -> dict[str, str]:
    """Return what went wrong with targets that others did not wait for."""
    errors = result.get("errors") if isinstance(result, dict) and result.get("status") == "failed" else None
    return errors if isinstance(errors, dict) else {}


def whole(result: Any) -> Any:
    """Return a result; that of a fan-out that went on after a failure is raised as the error that it is."""
    errors = errors_in(result)
    if errors:
        raise RunError("; ".join(f"{target}: {text}" for target, text in errors.items()))
    return result
