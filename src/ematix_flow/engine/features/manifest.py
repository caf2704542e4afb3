"""What a training set was made of, as a file: its spine, its views and a hash of its rows; replaying it proves them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ematix_flow.clock import SYSTEM_CLOCK
from ematix_flow.declare.project import PROJECT
from ematix_flow.engine.api.references import reference_to
from ematix_flow.engine.features.engines import join_plan, joined_as_planned
from ematix_flow.engine.features.joins import joined_views
from ematix_flow.errors import DeclareError, UnknownNameError
from ematix_flow.plan.training_join import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from ematix_flow.engine.features.joins import Joined
    from ematix_flow.plan.training_join import TrainingPlan

FORMAT = 1
SPINE = ".spine.parquet"
"""What the name of the file with the spine ends with, next to its manifest."""

_ARROW_SCHEMA = b"ARROW:schema"
"""Where Arrow writes the schema of a table into a Parquet file."""


def manifest_file(path: Any) -> Path:
    """Return the file of a manifest and make its folder; before rows are joined, which may take hours."""
    file, problem = Path(path), ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            problem = "it is a folder"
        elif not os.access(file.parent, os.W_OK):
            problem = "its folder is locked"
    except OSError as error:
        problem = str(error)
    if problem:
        message = f"the manifest {file} cannot be written: {problem}"
        raise DeclareError(message, hint='name a file, manifest="sets/set.json", where you may write.')
    return file


def write_manifest(
    file: Path, conn: Any, spine: pa.Table, joined: Sequence[Joined], result: pa.Table, plan: TrainingPlan
) -> None:
    """Write the manifest of a training set, and its spine beside it."""
    import pyarrow.parquet as pq

    reference = reference_to(conn)
    pq.write_table(spine, _spine_file(file))
    contents = {
        "format": FORMAT,
        "built_at": SYSTEM_CLOCK.now().isoformat(),
        "connection": reference if isinstance(reference, str) else getattr(reference, "name", "default"),
        "views": [
            {
                "name": one.view.features.name if one.view.features else one.view.qualified_name,
                "columns": [column.name for column in one.columns],
                "declaration": one.view.fingerprint,
            }
            for one in joined
        ],
        "spine": {"file": _spine_file(file).name, "rows": spine.num_rows, "sha256": table_hash(spine)},
        "join": {"engine": plan.engine, "reason": plan.reason},
        "result": {"columns": result.column_names, "sha256": table_hash(result)},
    }
    file.write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")


def replay(path: Any, connection: Any = None) -> dict[str, Any]:
    """Build the training set of a manifest again and return whether its rows are the same, with what differs."""
    file = Path(path)
    contents = _read(file)
    views, differences = [], []
    for one in contents["views"]:
        view = PROJECT.feature_views.get(one["name"])
        if view is None:
            message = f"the manifest names feature view {one['name']!r}, which the module does not declare"
            raise UnknownNameError(message, hint="load the module that declared this version.")
        if view.fingerprint != one["declaration"]:
            differences.append(f"feature view {one['name']} is declared with other columns now")
        views.append(view)
    spine = _read_spine(_spine_file(file))
    if table_hash(spine) != contents["spine"]["sha256"]:
        differences.append("the spine is not the one of the manifest")
    columns = {one["name"]: one["columns"] for one in contents["views"]}
    joined, conn = joined_views(views, columns, spine.column_names), connection or contents["connection"]
    plan = join_plan(conn, spine, views, AUTO)
    result = joined_as_planned(plan, conn, spine, joined)
    if table_hash(result) != contents["result"]["sha256"]:
        differences.append("the values are not those of the manifest: events that came later have changed the past")
    return {"manifest": str(file), "rows": spine.num_rows, "same": not differences, "differences": differences}


def table_hash(table: pa.Table) -> str:
    """Return a hash of the columns, types and values of a table, however it is divided into batches."""
    digest = hashlib.sha256()
    for field, column in zip(table.schema, table.columns, strict=True):
        digest.update(f"{field.name}\0{field.type}\0".encode())
        for value in column.to_pylist():
            digest.update(repr(value).encode() + b"\0")
    return digest.hexdigest()


def _read_spine(file: Path) -> pa.Table:
    """Return the spine in the types that it had: Parquet has no seconds, no `date64`, and other names inside of lists and maps."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as opened:
            table, written = opened.read(), opened.metadata.metadata or {}
    except (OSError, pa.ArrowInvalid) as error:
        message = f"the spine {file} cannot be read: {error}"
        raise DeclareError(
            message, hint="training_set() writes it beside the manifest; keep the two together."
        ) from None
    if _ARROW_SCHEMA not in written:
        return table
    return table.cast(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written[_ARROW_SCHEMA]))))


def _spine_file(manifest: Path) -> Path:
    return manifest.with_name(manifest.name + SPINE)


def _read(file: Path) -> dict[str, Any]:
    try:
        contents: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{file} is no manifest of a training set: {error}"
        raise DeclareError(message, hint='ematix.training_set(..., manifest="set.json") writes one.') from None
    if not isinstance(contents, dict) or contents.get("format") != FORMAT:
        message = f"{file} is no manifest that this version reads"
        raise DeclareError(message)
    return contents
